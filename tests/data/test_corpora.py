"""Built-in corpora: here without download, the same every time, and never the same text on both sides."""

import subprocess
import sys

import pytest

from clearhead.data import CORPORA, check_data, detect_schemas, documents, grammar, read_corpus
from clearhead.errors import InputError


@pytest.mark.parametrize("name", CORPORA)
def test_every_corpus_has_its_papers_and_disjoint_splits(name: str) -> None:
    corpus, splits = CORPORA[name], read_corpus(name)
    assert all((corpus.about, corpus.size, corpus.split, corpus.licence))
    assert set(splits) == {"train", "valid"}
    first = "src" if corpus.shape == "pair" else "text"
    train, valid = ({row[first] for row in splits[split]} for split in ("train", "valid"))
    assert train and valid and not train & valid
    assert len(train) == len(splits["train"]) and len(valid) == len(splits["valid"])  # no duplicates
    report = check_data(splits["valid"])
    assert report.schema.kind == corpus.shape and report.why == "" and not report.empty
    assert [dict(row) for row in read_corpus(name)["valid"]] == [dict(row) for row in splits["valid"]]


def test_the_grammar_is_large_seeded_and_its_sides_never_mix() -> None:
    assert grammar.SENTENCES >= 100_000
    one, two = (read_corpus("grammar-en-zh", seed=seed) for seed in (0, 1))
    assert [len(one[split]) for split in ("train", "valid")] == [24_000, 500]
    held_out = {row["src"] for row in (*one["valid"], *two["valid"])}
    assert not held_out & {row["src"] for row in (*one["train"], *two["train"])}
    assert one["train"][0] != two["train"][0]
    for row in one["valid"]:
        assert row["src"] == row["src"].lower() and " " not in row["tgt"] and row["tgt"][0] > "\u4e00"


def test_the_corpora_are_the_same_in_every_process() -> None:
    code = (
        "import hashlib, clearhead.data as d\n"
        "for name in ('grammar-en-zh', 'python-docs'):\n"
        "    print(hashlib.sha256(str(list(d.read_corpus(name)['train'])).encode()).hexdigest())"
    )
    runs = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(runs) == 1


def test_docstrings_become_signatures() -> None:
    rows = list(read_corpus("python-docstrings")["train"])
    assert len(rows) > 1000
    assert all(row["tgt"].startswith(("def ", "async def ")) and row["tgt"].endswith(":") for row in rows)


def test_documents_by_row_paragraph_and_file(tmp_path) -> None:
    from clearhead.data import read_rows

    (tmp_path / "a.txt").write_text("one\ntwo\n\nthree\n")
    (tmp_path / "b.txt").write_text("four\n")
    source = read_rows([tmp_path / "a.txt", tmp_path / "b.txt"])
    shape, *_ = detect_schemas(source)
    assert list(documents(source, shape)) == ["one", "two", "three", "four"]
    assert list(documents(source, shape, by="paragraph")) == ["one\ntwo", "three", "four"]
    assert list(documents(source, shape, by="file")) == ["one\ntwo\n\nthree", "four"]


def test_an_unknown_corpus_is_one_line() -> None:
    with pytest.raises(InputError, match="no built-in corpus 'python-doc'; did you mean 'python-docs'"):
        read_corpus("python-doc")
