"""The package as a whole: what importing costs, promised names, the program, the size of the core."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
import torch

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


def test_no_file_is_too_long() -> None:
    lines = {p: len(p.read_text().splitlines()) for p in (ROOT / "clearhead").rglob("*.py")}
    assert max(lines.values()) <= 500, max(lines, key=lines.get)


def test_what_a_forward_pass_runs_stays_readable() -> None:
    """The core is what a person reads to follow one forward pass of a LLaMA: the files it runs, traced."""
    sizes = {"vocab_size": 20, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
    model = clearhead.build("llama", num_attention_heads=2, num_key_value_heads=1, **sizes).model
    ran: set[str] = set()
    sys.setprofile(lambda frame, event, argument: ran.add(frame.f_code.co_filename))
    try:
        model(torch.tensor([[1, 2, 3]]))
    finally:
        sys.setprofile(None)
    core = [Path(name) for name in ran if Path(name).is_relative_to(ROOT / "clearhead")]
    assert ROOT / "clearhead/nn/multi_head.py" in core
    assert len(core) <= 17 and sum(map(_code_lines, core)) <= 1_790


def _code_lines(path: Path) -> int:
    """Lines that are neither blank, nor comment, nor docstring, nor of a function that tells a cost."""
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


def test_packages_are_used_through_their_init() -> None:
    """Another package's file is imported only if that package's `__all__` names it."""
    assert list(_imports_past_init()) == [], "export it in the package's __init__ and import it from there"


def test_families_import_from_the_core_in_few_lines() -> None:
    for path in (ROOT / "clearhead/families").glob("*.py"):
        lines = [line for line in path.read_text().splitlines() if line.startswith("from ..nn")]
        assert len(lines) <= 3, path.name


def _imports_past_init() -> Iterator[str]:
    package = ROOT / "clearhead"
    for path in sorted(package.rglob("*.py")):
        module = path.relative_to(package).parts
        if module[:2] == ("learn", "exercises"):
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not (isinstance(node, ast.ImportFrom) and node.level and node.module):
                continue
            target = (*module[: len(module) - node.level], *node.module.split("."))
            file = package.joinpath(*target).with_suffix(".py")
            if target[0] == module[0] or len(target) < 2 or not file.exists():
                continue
            if file.stem not in getattr(import_module(".".join(["clearhead", *target[:-1]])), "__all__", ()):
                yield f"{'/'.join(module)}:{node.lineno} imports from {'.'.join(target)}"
