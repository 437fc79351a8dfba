"""What is printed cannot steer a terminal: texts of files come out as text, in lines and in JSON."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hostile import dangerous

from clearhead.cli.console import OUT, print_json, printable, table, write
from clearhead.cli.main import main

EVIL = "\x1b]0;owned\x07 \x1b[31mred \x9b2J \x00 \x7f \u202eevil \u2066x\u2069 \u200fy \u2028z \r\b \ud800"
KEPT = [
    "你好，世界",
    "👨‍👩‍👧 🏳️‍🌈 👍🏽",
    "naïve café e\u0301",
    "می‌خواهم",
    "a\tb",
    "🏴\U000e0067\U000e0062\U000e007f",
    "\ue0b0",
]


def leave(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as left:
        main(list(words))
    out, err = capsys.readouterr()
    return int(left.value.code or 0), out, err


def test_what_steers_is_written_out_and_what_is_text_stays() -> None:
    shown = printable(EVIL)
    assert not dangerous(shown) and r"\x1b]0;owned\x07" in shown and r"\u202eevil" in shown
    for text in KEPT:
        assert printable(text) == text


def test_the_console_and_its_tables(capsys: pytest.CaptureFixture[str]) -> None:
    listing = table(EVIL[:6], "b")
    listing.add_row(EVIL, "你好")
    OUT.print(f"[bold]x[/] {EVIL}")
    OUT.print(EVIL, markup=False)
    OUT.print(listing)
    out = capsys.readouterr().out
    assert not dangerous(out) and "你好" in out


def test_json_is_escaped_and_can_be_read_back(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"text": EVIL, EVIL: KEPT})
    out = capsys.readouterr().out
    assert not dangerous(out) and "你好" in out
    assert json.loads(out) == {"text": EVIL, EVIL: KEPT}


FILES = {
    "x.jsonl": json.dumps({"text": f"a {EVIL[:-1]}", "label": "\x1b[31m"}) + "\n",
    "x.csv": "text,lab\x1b[31mel\n\x1b]0;x\x07,\u202e1\nb,2\n",
    "x.tsv": "a \x1b[2J\t1\nb\x9b\t2\n",
    "x.txt": "\x1b[31m[red]x[/]\n\u202e\n",
    "x.conll": "\x1b[31m \u202eB\n",
    "names.jsonl": json.dumps({"\x1b[31mtext": "x", "\u202e": "y"}) + "\n",
    "wrong.jsonl": json.dumps({"messages": [{"role": "\x1b[31m\u202e", "content": "x"}]}) + "\n",
}


@pytest.mark.parametrize("words", [[], ["--json"]])
@pytest.mark.parametrize("name", FILES)
def test_data_check_prints_no_control_characters(
    name: str, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text(FILES[name], encoding="utf-8")
    code, out, err = leave(capsys, "data", "check", str(tmp_path / name), *words)
    assert code in (0, 2, 3) and not dangerous(out) and not dangerous(err), (out, err)
    assert max(map(len, err.splitlines()), default=0) <= 300
    if words and out:
        assert json.loads(out)["rows"] >= 1


def test_a_run_over_such_texts_prints_none_either(tmp_path: Path) -> None:
    """Notes, samples, scores and tables of `train` and `eval`, in a process of its own."""
    rows = [f"the \x1b[31mred\u202e cat {i}\tlab\x9b{i % 2}" for i in range(60)]
    (tmp_path / "x.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    tiny = [
        "--model.hidden_size", "16", "--model.intermediate_size", "16", "--model.num_hidden_layers", "1",
        "--train.steps", "2", "--train.valid_every", "2", "--train.schedule.warmup", "1",
        "--tokenizer.vocab", "200", "--data.map.text", "column1", "--data.map.label", "column2",
    ]  # fmt: skip
    run = str(tmp_path / "run")
    for words in (["train", "classify", str(tmp_path / "x.tsv"), *tiny, "--out", run], ["eval", run]):
        done = subprocess.run(
            [sys.executable, "-m", "clearhead", *words],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"},
        )
        assert done.returncode == 0, done.stderr
        assert not dangerous(done.stdout + done.stderr)


def test_a_model_cannot_steer_the_terminal_with_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Into a file or a pipe the text goes as it is."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    text = "fine\n\x1b]0;title\x07 \u202e 你好 👨‍👩‍👧"
    for stream, wanted in (
        (io.StringIO(), text),
        (Terminal(), "fine\n\\x1b]0;title\\x07 \\u202e 你好 👨‍👩‍👧"),
    ):
        monkeypatch.setattr(sys, "stdout", stream)
        write(text)
        assert stream.getvalue() == wanted
