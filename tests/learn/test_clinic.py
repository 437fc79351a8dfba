"""The clinic: each exercise fails unsolved and passes solved; no learner's file can hang or break it."""

import json
import re
from pathlib import Path

import pytest

from clearhead.cli.main import main
from clearhead.learn import clinic
from clearhead.learn.examine import main as examine_file
from clearhead.learn.language import language

LANGUAGES = ("en", "zh")
QUICK = "crooked-table"  # needs neither torch nor NumPy


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CLEARHEAD_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CLEARHEAD_LANG", "en")
    return tmp_path / "home"


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as done:
        main(["learn", "clinic", *words])
    said = capsys.readouterr()
    return int(done.value.code or 0), said.out, said.err


def chinese(text: str) -> bool:
    return any(0x4E00 <= ord(letter) < 0xA000 for letter in text)


def found(name: str, code: str, folder: Path) -> dict[str, bool]:
    """What each check says of a text of code; here, without a process of its own."""
    file, report = folder / "user.py", folder / "report.json"
    file.write_text(code)
    examine_file(name, str(file), str(report))
    told = json.loads(report.read_text())
    assert "error" not in told and told["running"] is None
    return {each["check"]: each["passed"] for each in told["outcomes"]}


def test_there_are_enough_exercises() -> None:
    kinds = [exercise.kind for exercise in clinic.exercises().values()]
    assert kinds.count("fix") >= 15 and kinds.count("implement") >= 4 and set(kinds) == {"fix", "implement"}


@pytest.mark.parametrize("name", [e.name for e in clinic.exercises().values() if e.kind == "implement"])
def test_a_skeleton_fails_every_check_and_says_what_to_write(name: str, tmp_path: Path) -> None:
    exercise = clinic.find_exercise(name)
    assert "raise NotImplementedError" in exercise.code("broken") and name.startswith("implement-")
    assert not any(found(name, exercise.code("broken"), tmp_path).values())
    # What is given in the skeleton is what the solution keeps: names and arguments.
    signatures = [line for line in exercise.code("broken").splitlines() if line.lstrip().startswith("def ")]
    assert all(line in exercise.code("fixed") for line in signatures)


@pytest.mark.parametrize(
    ("name", "old", "new", "red"),
    [
        ("implement-attention", " / math.sqrt(q.shape[-1])", "", "the_worked_example"),
        ("implement-attention", "~mask", "mask", "the_mask_blocks"),
        ("implement-attention", "softmax(-1)", "softmax(-2)", "other_lengths_and_widths"),
        ("implement-positions", "even / width", "2 * even / width", "the_formula"),
        ("implement-multi-head", "x.view(batch, tokens, self.heads, width // self.heads).transpose(1, 2)",
         "x.reshape(batch, self.heads, tokens, width // self.heads)", "heads_hold_their_columns"),
        ("implement-multi-head", "self.k(memory)", "self.k(query)", "cross_attention_equals_torch"),
        ("implement-encoder-layer", "else ~real", "else real", "padding_is_ignored"),
        ("implement-encoder-layer", "self.norm1(x + mixed)", "self.norm1(mixed)", "equals_torch"),
        ("implement-transformer", ".triu(1)", ".triu(2)", "the_future_is_invisible"),
        ("implement-transformer", " + self.waves[: ids.shape[1]]", "", "it_learns_to_reverse"),
        ("implement-transformer", ", src_key_padding_mask=src == 0", "", "padding_is_invisible"),
    ],
)  # fmt: skip
def test_a_usual_mistake_turns_its_check_red(name: str, old: str, new: str, red: str, tmp_path: Path) -> None:
    code = clinic.find_exercise(name).code("fixed")
    assert code.count(old) == 1
    assert found(name, code.replace(old, new), tmp_path)[red] is False
    report = json.loads((tmp_path / "report.json").read_text())
    (detail,) = (each["detail"] for each in report["outcomes"] if each["check"] == red)
    assert chinese(detail["zh"]) and not chinese(detail["en"]), detail


def test_both_kinds_are_listed_under_their_headings(capsys: pytest.CaptureFixture[str]) -> None:
    for lang, (write, fix) in {
        "en": ("Implement it yourself", "Fix broken code"),
        "zh": ("自己实现", "修复代码"),
    }.items():
        out = run(capsys, "--lang", lang)[1]
        assert (
            out.index(write) < out.index("implement-transformer") < out.index(fix) < out.index("causal-mask")
        )
    kinds = {each["name"]: each["kind"] for each in json.loads(run(capsys, "--json")[1])}
    assert kinds == {name: exercise.kind for name, exercise in clinic.exercises().items()}


@pytest.mark.parametrize("name", clinic.exercises())
def test_it_fails_broken_and_passes_mended(name: str, tmp_path: Path) -> None:
    exercise = clinic.find_exercise(name)
    broken = found(name, exercise.code("broken"), tmp_path)
    assert broken.keys() == exercise.checks.keys() and not all(broken.values())
    mended = found(name, exercise.code("fixed"), tmp_path)
    assert all(mended.values()), mended


@pytest.mark.parametrize("name", clinic.exercises())
def test_it_is_written_in_both_languages(name: str) -> None:
    exercise = clinic.find_exercise(name)
    for words in (exercise.title, exercise.story, exercise.why, *exercise.checks.values()):
        assert words.keys() == {"en", "zh"}
        assert words["en"].isascii() or "θ" in words["en"]
        assert words["zh"]
    assert any(ord(letter) > 0x2E80 for letter in exercise.title["zh"] + exercise.story["zh"])
    assert len(exercise.hints["en"]) == len(exercise.hints["zh"]) >= 2
    assert all(isinstance(hint, str) for hints in exercise.hints.values() for hint in hints)
    assert "clearhead" not in exercise.code("broken")


@pytest.mark.parametrize("name", clinic.exercises())
def test_a_failed_check_explains_itself_in_the_language_of_the_learner(name: str, tmp_path: Path) -> None:
    file, report = tmp_path / "user.py", tmp_path / "report.json"
    file.write_text(clinic.find_exercise(name).code("broken"))
    examine_file(name, str(file), str(report))
    details = [each["detail"] for each in json.loads(report.read_text())["outcomes"] if not each["passed"]]
    assert details
    for detail in details:
        if re.match(r"\w+(Error|Exception): ", detail["zh"]):  # Python's or torch's own words
            continue
        assert chinese(detail["zh"]) and detail["en"] != detail["zh"], detail


def test_a_file_that_cannot_run_is_explained_in_chinese(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "user.py"
    for text, said in (
        ("while True:\n    pass\n", "是不是有死循环"),
        ("def cell(word, width=8):\n    while True:\n        pass\n", "没有执行到"),
        ("import os\nos._exit(0)\n", "结束了进程"),
        ("1 / 0\n", "（第 1 行）"),
    ):
        file.write_text(text)
        limit = "2" if "while" in text else "60"
        code, out, _ = run(capsys, "check", QUICK, str(file), "--limit", limit, "--lang", "zh")
        assert code == 1 and said in out
    report = json.loads(run(capsys, "check", QUICK, str(file), "--lang", "zh", "--json")[1])
    assert "（第 1 行）" in report["error"]


def test_from_start_to_mended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "my_fix.py"
    code, out, _ = run(capsys, "start", QUICK, "--to", str(file), "--lang", "zh")
    assert code == 0 and str(file) in out
    text = file.read_text()
    assert text.startswith("# 歪歪扭扭的表格\n") and text.endswith(clinic.find_exercise(QUICK).code("broken"))
    # Each failure earns one more hint.
    for hints in (1, 2, 2):
        code, out, err = run(capsys, "check", QUICK, str(file))
        assert code == 1 and out.count("hint ") == hints and "✓ English words" in out
        assert "✗ Chinese words are as wide" in out and "is 9 columns wide" in out and err == ""
    file.write_text(clinic.find_exercise(QUICK).code("fixed"))
    code, out, _ = run(capsys, "check", QUICK, str(file), "--lang", "zh")
    assert code == 0 and "通过。" in out and "✗" not in out
    said = json.loads(run(capsys, "--json")[1])
    assert [each["name"] for each in said if each["solved"]] == [QUICK]
    assert "solved 1 / " in run(capsys)[1]


def test_a_file_is_never_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.py"
    file.write_text("precious = 1\n")
    code, _, err = run(capsys, "start", QUICK, "--to", str(file))
    assert code == 2 and "exists already" in err and file.read_text() == "precious = 1\n"
    assert run(capsys, "start", QUICK, "--to", str(tmp_path / "no" / "where.py"))[0] == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("while True:\n    pass\n", "did not load within 2 s"),
        ("def cell(word, width=8):\n    while True:\n        pass\n", "stopped after 2 s"),
        ("def cell(:\n", "SyntaxError"),
        ("import sys\nsys.exit(0)\n", "SystemExit"),
        ("import os\nos._exit(0)\n", "ended the process"),
        ("1 / 0\n", "ZeroDivisionError: division by zero (line 1)"),
        (
            "def cell(word, width=8):\n    return missing\n",
            "NameError: name 'missing' is not defined (line 2)",
        ),
        ("", "has no attribute 'cell'"),
    ],
)
def test_no_file_can_hang_or_break_it(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bad.py"
    file.write_text(text)
    limit = "2" if "while" in text else "60"
    code, out, err = run(capsys, "check", QUICK, str(file), "--limit", limit)
    assert code == 1 and said in out and "Traceback" not in out + err


def test_what_a_file_prints_is_shown_and_bounded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "loud.py"
    file.write_text("while True:\n    print('hello' * 1000)\n")
    code, out, err = run(capsys, "check", QUICK, str(file), "--limit", "60")
    assert code == 1 and "OSError" in out and "hello" in err and len(err) < 5000


def test_unknown_names_are_refused_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (
        ["casual-mask"],
        ["start", "casual-mask"],
        ["check", "casual-mask", "x.py"],
        ["hint", "casual-mask"],
    ):
        code, _, err = run(capsys, *words)
        assert code == 2 and err.count("\n") == 1 and "did you mean 'causal-mask'?" in err
    code, _, err = run(capsys, "check", "causal-mask", "nowhere.py")
    assert code == 2 and "clinic start causal-mask" in err
    assert run(capsys, "causal-mask", "--lang", "fr")[0] == 2


def test_an_exercise_can_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "causal-mask", "--lang", "zh")
    assert code == 0 and "只看得见未来的掩码" in out and "masked_fill" in out
    said = json.loads(run(capsys, "causal-mask", "--json")[1])
    assert said["title"]["en"] and "fixed" not in said and "def attend" in said["code"]
    assert run(capsys, "hint", "causal-mask")[1].count("\n") == 3


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": "en_US.UTF-8"}, "en"),
        ({"LANG": "C", "CLEARHEAD_LANG": "zh"}, "zh"),
        ({"LANG": ""}, "en"),
    ],
)
def test_the_language_is_that_of_the_environment(environment: dict[str, str], expected: str) -> None:
    assert language(environment=environment) == expected
    assert language("zh", environment) == "zh"


def test_a_broken_progress_file_is_no_obstacle(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home.mkdir()
    for text in ("not json", "[1]", '{"causal-mask": 3}'):
        (home / "learn.json").write_text(text)
        assert run(capsys)[0] == 0
