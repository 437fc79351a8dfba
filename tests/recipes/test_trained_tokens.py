"""How many tokens are trained: of a task, and of a file before training (`data check --tokenizer MODEL`)."""

import json
from pathlib import Path
from typing import Any

import pytest
from tiny_chats import CHATS, CLEAN, ENDLESS, prepared, saved, tokenizer, write

from clearhead.cli.main import main
from clearhead.data import InMemorySource, detect_schemas
from clearhead.recipes import count_file, prepare, trained_tokens
from clearhead.recipes.settings import load_run


def check(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["data", "check", *words])
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


def test_the_counts_are_those_of_the_batches(tmp_path: Path) -> None:
    task: Any = prepared(tmp_path, tokenizer(CLEAN), CHATS, "data.rows=99", "data.batch_size=null").task
    counts = trained_tokens(task)
    batch = task.batch(1, 0)
    assert counts.examples == len(CHATS) and counts.without == 0
    assert counts.trained.total == batch.targets and counts.tokens.total == batch.tokens
    assert counts.trained.mean == batch.targets / len(CHATS)
    each = [sum(flags) for flags in task.trained["train"]]
    assert (counts.trained.min, counts.trained.max) == (min(each), max(each))
    assert trained_tokens(task, "valid").tokens == counts.tokens


def test_of_plain_text_all_tokens_but_the_first_are_trained(tmp_path: Path) -> None:
    base = saved(tmp_path / "base", tokenizer())
    file = write(tmp_path / "x.jsonl", [{"text": "say red"}, {"text": "say blue again"}])
    found = prepare(load_run("lm", [f"data.source={file}", f"data.valid={file}", f"model.family={base}"]))
    counts = trained_tokens(found.task)  # type: ignore[arg-type]
    assert counts.trained.total == counts.tokens.total - 2 == found.task.batch(1, 0).targets


def test_a_file_is_counted_as_training_reads_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = tokenizer(CLEAN)
    task: Any = prepared(tmp_path, words).task
    counts = trained_tokens(task)
    code, out, _ = check(capsys, str(tmp_path / "chats.jsonl"), "--tokenizer", str(tmp_path / "base"))
    trained, tokens = counts.trained.total, counts.tokens.total
    line = f"trained      {trained} of {tokens} tokens ({trained / tokens:.1%}) in 4 rows; each has some"
    assert code == 0 and line in out, out
    first = words.chat(CHATS[0]["messages"], reply=False)
    shown = first.replace("<assistant>", "«<assistant>").replace("red it is<eos>", "red it is<eos>»")
    assert shown.removesuffix("<eos>") + "<eos>»" in out


def test_length_says_what_is_shortened_and_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = tokenizer(CLEAN)
    base = saved(tmp_path / "base", words)
    long = {"messages": [{"role": "user", "content": "say " * 90}, CHATS[0]["messages"][1]]}
    file = str(write(tmp_path / "x.jsonl", [CHATS[0], long]))
    size = len(words.encode(words.chat(CHATS[0]["messages"], reply=False), specials=False))
    code, out, _ = check(capsys, file, "--tokenizer", str(base), "--length", str(size - 1))
    assert code == 0 and "in 2 rows; 1 has none" in out
    counts = f"1 of 2 chats shortened to whole answers, 1 left out: longer than {size - 1} tokens"
    assert counts in " ".join(out.split())
    code, out, err = check(capsys, file, "--tokenizer", str(base), "--length", "9")
    assert code == 3 and "no answer fits into --max-length 9" in err and len(err.splitlines()) == 1
    report = json.loads(check(capsys, file, "--tokenizer", str(base), "--length", "60", "--json")[1])
    assert report["trained_tokens"]["rows"] == 2 and report["trained_tokens"]["without"] == 1


def test_of_a_large_file_the_first_thousand_rows_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = saved(tmp_path / "base", tokenizer(CLEAN))
    rows = [{"prompt": f"say {i}", "completion": "red"} for i in range(1005)]
    code, out, _ = check(capsys, str(write(tmp_path / "x.jsonl", rows)), "--tokenizer", str(base))
    assert code == 0 and "in the first 1,000 of 1,005 rows; each has some" in out


def test_every_example_of_a_row_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = saved(tmp_path / "base", tokenizer())
    file = write(tmp_path / "x.jsonl", CHATS[:1])
    code, out, _ = check(capsys, str(file), "--tokenizer", str(base))
    lines = [line.strip(" ⏎") for line in out.splitlines()]
    first = ["user: say red", "assistant: «red it is<eos>»", "---"]
    second = ["user: say red", "assistant: red it is<eos>", "user: again", "assistant: «red<eos>»"]
    start = lines.index("user: say red")
    assert code == 0 and lines[start : start + 7] == first + second


def test_counting_leaves_the_tokenizer_as_it_is() -> None:
    words = tokenizer()
    source = InMemorySource(CHATS)
    assert count_file(detect_schemas(source)[0], source, words) is not None
    assert words.chat_template is None and "chat_template.jinja" not in words.files


def test_rows_for_other_tasks_are_not_counted() -> None:
    for row in ({"text": "a film"}, {"text": "a film", "label": "good"}, {"src": "a b", "tgt": "c d"}):
        source = InMemorySource([row] * 9)
        assert count_file(detect_schemas(source)[0], source, tokenizer()) is None


def test_a_template_without_an_end_makes_a_file_unusable(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = saved(tmp_path / "base", tokenizer(ENDLESS))
    code, out, err = check(capsys, str(write(tmp_path / "x.jsonl", CHATS)), "--tokenizer", str(base))
    assert code == 3 and "no end token" in err and "trained " not in out


def test_special_tokens_in_texts_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = tokenizer(CLEAN)
    base = saved(tmp_path / "base", words)
    assert words.eos is not None
    turn = {"role": "user", "content": f"say{words.eos.text} red"}
    rows = [*CHATS, {"messages": [turn, {"role": "assistant", "content": "red"}]}]
    for number, count in ((len(CHATS), 0), (len(rows), 1)):
        file = write(tmp_path / "x.jsonl", rows[:number])
        code, out, _ = check(capsys, str(file), "--tokenizer", str(base))
        shown = " ".join(out.split())
        assert code == 0 and ("1 of 5 rows have special tokens of the model" in shown) == bool(count)
