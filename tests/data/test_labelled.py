"""Folders of texts by label, the layout IMDB comes in."""

from pathlib import Path

import pytest

from clearhead.data import check_data, read_rows, read_splits
from clearhead.errors import DataError
from clearhead.recipes import load_run, prepare


@pytest.fixture
def imdb(tmp_path: Path) -> Path:
    folder = tmp_path / "aclImdb"
    for split in ("train", "test"):
        for label, word in (("pos", "wonderful"), ("neg", "dreadful")):
            (folder / split / label).mkdir(parents=True)
            for number in range(40):
                text = f"{split} {number}: a {word} film.<br /><br />Seen twice."
                (folder / split / label / f"{number}_{9 if label == 'pos' else 2}.txt").write_text(text)
    (folder / "train" / "unsup").mkdir()
    (folder / "train" / "unsup" / "0_0.txt").write_text("nobody said")
    (folder / "README").write_text("Large Movie Review Dataset")
    (folder / "train" / "labeledBow.feat").write_text("9 0:9")
    return folder


def test_rows_are_texts_with_the_label_of_their_folder(imdb: Path) -> None:
    splits = read_splits(imdb)
    assert {name: len(source) for name, source in splits.items()} == {"train": 80, "test": 80}
    rows = list(splits["train"])
    assert {row["label"] for row in rows} == {"pos", "neg"}
    assert all(("wonderful" in row["text"]) == (row["label"] == "pos") for row in rows)
    assert not any("nobody" in row["text"] for row in rows)
    assert splits["train"].where(0).endswith("neg/0_2.txt")
    assert len(splits["train"].hashes()) == 1 and splits["train"].hashes() != splits["test"].hashes()
    assert read_rows(imdb / "test")[0]["label"] == "neg"  # one split by itself


def test_a_change_of_any_file_changes_the_hash(imdb: Path) -> None:
    before = read_rows(imdb).hashes()
    (imdb / "train" / "pos" / "3_9.txt").write_text("another review")
    assert read_rows(imdb).hashes() != before


def test_it_is_looked_at_and_trained_on_as_any_file(imdb: Path) -> None:
    report = check_data(read_rows(imdb))
    assert report.schema.form == "label" and report.labels == {"neg": 40, "pos": 40}
    words = [
        f"data.source={imdb}",
        "tokenizer.vocab=120",
        "model.hidden_size=16",
        "model.intermediate_size=32",
    ]
    prepared = prepare(load_run("classify", words))
    assert prepared.bundle.config["id2label"] == {"0": "neg", "1": "pos"}


def test_bad_folders_are_refused(tmp_path: Path) -> None:
    (tmp_path / "one" / "train" / "pos").mkdir(parents=True)
    (tmp_path / "one" / "train" / "pos" / "a.txt").write_text("x")
    with pytest.raises(DataError, match="texts of one label, pos"):
        read_splits(tmp_path / "one")
    (tmp_path / "none" / "train" / "pos").mkdir(parents=True)
    with pytest.raises(DataError, match="has no data in it"):
        read_splits(tmp_path / "none")
    (tmp_path / "two" / "neg").mkdir(parents=True)
    (tmp_path / "two" / "pos").mkdir()
    (tmp_path / "two" / "pos" / "a.txt").write_text("x")
    (tmp_path / "two" / "neg" / "b.txt").write_bytes(b"caf\xe9")
    with pytest.raises(DataError, match=r"b\.txt line 1 is not UTF-8"):
        list(read_rows(tmp_path / "two"))
