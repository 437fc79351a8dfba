"""The house itself: what importing costs, what is promised by name, what the program does at its door."""

import subprocess
import sys
from pathlib import Path

import pytest

import clearhead

ROOT = Path(__file__).parent.parent


def python(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, cwd=ROOT)


@pytest.mark.parametrize(
    "code",
    [
        "import clearhead",
        "import clearhead.primer.numpy",
        "import clearhead.cli.main",
        "import clearhead.cli.main as m\ntry: m.main(['--help'])\nexcept SystemExit: pass",
    ],
)
def test_torch_is_not_imported_before_a_model_is_needed(code: str) -> None:
    done = python("-c", f"{code}\nimport sys; print('torch' in sys.modules)")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "False"


def test_every_promised_name_is_there() -> None:
    for name in clearhead.__all__:
        assert getattr(clearhead, name) is not None
    assert set(clearhead.__all__) <= set(dir(clearhead))
    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        clearhead.lode  # noqa: B018


def test_module_and_program_are_one() -> None:
    assert python("-m", "clearhead", "--version").stdout.strip() == clearhead.__version__


@pytest.mark.parametrize("words", [["nonsense"], ["--nonsense"]])
def test_a_wrong_word_is_one_line_and_exit_2(words: list[str]) -> None:
    done = python("-m", "clearhead", *words)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("clearhead: ") and done.stderr.count("\n") == 1


def test_no_file_has_become_a_god_and_the_core_stays_readable() -> None:
    lines = {p: len(p.read_text().splitlines()) for p in (ROOT / "clearhead").rglob("*.py")}
    assert max(lines.values()) <= 500, max(lines, key=lines.get)
    # What a person reads to know the core: kernels are alternatives, the mask doctor is a visitor, and no
    # forward pass runs what says how much a part costs.
    beside = {"doctor.py", "cost.py", "counted.py"}
    core = [p for p in (ROOT / "clearhead/nn").glob("*.py") if p.name not in beside]
    assert sum(map(_code_lines, core)) <= 1870


def _code_lines(path: Path) -> int:
    """Lines that are neither blank, nor comment, nor docstring, nor of a function that tells a cost."""
    import ast

    text = path.read_text()
    prose: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            prose |= set(range(node.lineno, node.end_lineno + 1))
        if isinstance(node, ast.FunctionDef) and node.name.strip("_").endswith("cost"):
            prose |= set(range(node.lineno, node.end_lineno + 1))
    rows = enumerate(text.splitlines(), 1)
    return sum(1 for n, row in rows if n not in prose and row.strip() and not row.strip().startswith("#"))
