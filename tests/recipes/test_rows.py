"""Rows of a run: what is held out, which columns and files are read, and what is refused."""

import json
from pathlib import Path

import pytest
from quick_runs import quick

from clearhead.cli.main import main
from clearhead.data import IGNORE_INDEX
from clearhead.errors import ClearheadError, InputError
from clearhead.recipes import load_run, prepare
from clearhead.tasks import TokenClassification


def test_few_rows_hold_out_a_larger_share_and_a_split_column_decides(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    for count, held in ((30, 6), (150, 30), (400, 40)):
        file.write_text("text,label\n" + "".join(f"a film {i},{'ab'[i % 2]}\n" for i in range(count)))
        rows = prepare(quick("classify", f"data.source={file}")).rows.splits
        assert (len(rows["train"]), len(rows["valid"])) == (count - held, held)
    splits = ["train", "train", "validation", "test"]
    file.write_text(
        "text,label,split\n" + "".join(f"a film {i},{'ab'[i % 2]},{splits[i % 4]}\n" for i in range(40))
    )
    prepared = prepare(quick("classify", f"data.source={file}"))
    assert {name: len(rows) for name, rows in prepared.rows.splits.items()} == {
        "train": 20, "valid": 10, "test": 10,
    }  # fmt: skip
    assert any("the column 'split' says" in note for note in prepared.notes)


def test_a_label_column_of_any_name_and_numbers_of_tables(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("review,stars\n" + "".join(f"a film {i},{['bad', 'good'][i % 2]}\n" for i in range(40)))
    assert set(prepare(quick("classify", f"data.source={file}")).bundle.labels.values()) == {"bad", "good"}
    file.write_text("text,label\n" + "".join(f"a film {i},{i % 2}.0\n" for i in range(40)))
    assert set(prepare(quick("classify", f"data.source={file}")).bundle.labels.values()) == {"0", "1"}


def test_one_labelled_row_is_too_few(tmp_path: Path) -> None:
    file = tmp_path / "one.tsv"
    file.write_text("text\tlabel\na film\tgood\n")
    with pytest.raises(ClearheadError, match="too few to hold some out"):
        prepare(quick("classify", f"data.source={file}"))


def test_a_rare_label_is_never_held_out(tmp_path: Path) -> None:
    file = tmp_path / "rows.tsv"
    for rare in range(12):
        rows = [f"a film {i}\t{'rare' if i == rare else 'ab'[i % 2]}" for i in range(30)]
        file.write_text("text\tlabel\n" + "\n".join(rows) + "\n")
        assert set(prepare(quick("classify", f"data.source={file}")).bundle.labels.values()) == {
            "a",
            "b",
            "rare",
        }


def test_two_text_files_of_any_name_are_the_sides_of_a_translation(tmp_path: Path) -> None:
    for name, word in (("first.txt", "dog"), ("second.txt", "Hund")):
        (tmp_path / name).write_text("".join(f"{word} {i}\n" for i in range(40)))
    files = f"[{tmp_path / 'first.txt'}, {tmp_path / 'second.txt'}]"
    rows = prepare(quick("translate", f"data.source={files}")).rows.splits["train"]
    assert all(row["src"].replace("dog", "Hund") == row["tgt"] for row in rows)
    (tmp_path / "second.txt").write_text("Hund 1\n")
    with pytest.raises(ClearheadError, match="parallel files need as many lines each"):
        prepare(quick("translate", f"data.source={files}"))


def test_another_file_gets_another_default_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, labels in (("a", "xy"), ("b", "xyz")):
        rows = "".join(f"film {i}\t{labels[i % len(labels)]}\n" for i in range(40))
        (tmp_path / f"{name}.tsv").write_text("text\tlabel\n" + rows)
    folders = []
    for name in ("a", "b", "a"):
        with pytest.raises(SystemExit) as done:
            main(["train", "classify", f"{name}.tsv", "--steps", "2", "--json"])
        assert (done.value.code or 0) == 0
        folders.append(Path(json.loads(capsys.readouterr().out)["folder"]).name)
    assert folders == ["classify", "classify-2", "classify"]


def test_words_that_are_cut_are_not_found_and_tags_without_spans_have_an_accuracy(tmp_path: Path) -> None:
    """Otherwise the F1 of a short length would be that of the first words alone."""
    file = tmp_path / "tags.jsonl"
    words = [f"w{i}" for i in range(12)]
    rows = [{"tokens": words, "tags": ["O", "B-X"] * 6} for _ in range(30)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    prepared = prepare(quick("tag", f"data.source={file}", f"data.valid={file}", "data.length=8"))
    task = prepared.task
    assert isinstance(task, TokenClassification)
    kept = [sum(tag != IGNORE_INDEX for tag in example.tags) for example in task.splits["valid"]]
    assert all(
        len(example.lost) + count == 12 for example, count in zip(task.splits["valid"], kept, strict=True)
    )
    outcome = task.evaluate(prepared.bundle.model, "valid").outcomes[0]
    assert len(outcome.classes) == 12 and outcome.classes[-1] == ("B-X", "O")
    assert any("count as not found" in note for note in prepared.notes)
    file.write_text("".join(json.dumps({**row, "tags": ["NOUN", "VERB"] * 6}) + "\n" for row in rows))
    words_of_speech = prepare(quick("tag", f"data.source={file}", f"data.valid={file}"))
    assert set(words_of_speech.task.score(words_of_speech.bundle.model, "valid")) == {
        "loss",
        "accuracy",
        "f1",
    }


def test_a_model_that_cannot_fit_is_refused_before_it_is_built(tmp_path: Path) -> None:
    file = tmp_path / "texts.jsonl"
    file.write_text("".join(json.dumps({"text": f"the cat number {i}"}) + "\n" for i in range(40)))
    run = load_run("lm", [f"data.source={file}", "--model.family", "llama-7b", "tokenizer.vocab=300"])
    with pytest.raises(InputError, match=r"parameters takes .* GB .*; take a smaller model"):
        prepare(run)


def test_rows_that_are_all_empty_say_so(tmp_path: Path) -> None:
    file = tmp_path / "chats.jsonl"
    row = {"messages": [{"role": "user", "content": "hello"}]}
    file.write_text((json.dumps(row) + "\n") * 20)
    with pytest.raises(ClearheadError, match="no row can be used: train: 20 empty rows left out"):
        prepare(quick("sft", f"data.source={file}"))
