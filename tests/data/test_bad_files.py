"""Bad files: each is one clear line that names the file, and the line where there is one."""

import gzip
import os
from pathlib import Path

import pytest

from clearhead.data import detect_schemas, files, parse_map, read_rows
from clearhead.errors import ClearheadError, DataError

CHINESE = "今天我们在公园里找到旧的苹果，他们说这是一个很好的地方。\n"
BAD = {
    "empty.txt": (b"", "is empty"),
    "bom.txt": (b"\xef\xbb\xbf", "has no rows"),
    "empty.csv": (b"\n\n", "has no rows"),
    "header.csv": (b"text,label\n", "has a header and no rows"),
    "empty.jsonl": (b"\n \n", "has no rows"),
    "empty.json": (b"[]", "has no rows"),
    "empty.conll": (b"\n\n", "has no rows"),
    "gbk.txt": (
        ("x\n" + CHINESE).encode("gb18030"),
        "line 2 is not UTF-8: byte 1 of the line is 0xBD; .*like gb18030: iconv -f gb18030",
    ),
    "big5.csv": (
        ("text\n" + "他們說這是一個很好的地方，我們在這裡。\n" * 3).encode("big5"),
        "line 2 is not UTF-8.*like big5",
    ),
    "latin.tsv": (
        "a\tb\ncafé ici\tc\n".encode("latin-1"),
        "line 2 is not UTF-8: byte 4 .* 0xE9; .*like latin-1",
    ),
    "utf16.txt": ("hello\nyou\n".encode("utf-16"), "line 1 .*utf-16"),
    "utf16.csv": (CHINESE.encode("utf-16"), "line 1 .*utf-16"),
    "nul.txt": (b"a\nb\x00c\n", "line 2 has a NUL byte .byte 2."),
    "word.docx": (b"PK\x03\x04\x14\x00\x06\x00\n\xff", "NUL byte.*binary"),
    "ragged.csv": (b"text,label\na,1\nb,2,3\n", "line 3 has 3 cells, expected 2 .text, label.*quote"),
    "ragged.tsv": (b"text\tlabel\na\t1\nb\n", "line 3 has 1 cells, expected 2"),
    "late.txt": (b"a\tb\n" * 300 + b"alone\n", "line 301 has 1 cells, expected 2"),
    "open.csv": (b'text,label\n"a,1\nb,2\n', "line 2 is not a CSV row.*quotation mark left open"),
    "row.jsonl": (b'{"text": "a"}\n{"text": \n', "line 2 is not JSON: Expecting value"),
    "list.jsonl": (b'{"text": "a"}\n\n[1]\n', "line 3 holds a list; expected an object"),
    "number.jsonl": (b"7\n", "line 1 holds a number"),
    "deep.jsonl": (b"[" * 100_000 + b"\n", "line 1 is not JSON"),
    "broken.json": (b'[{"text": "a"},', "broken.json is not JSON"),
    "object.json": (b'{"train": [{"text": "a"}]}', "holds an object; expected a list of objects"),
    "numbers.json": (b"[1, 2]", "row 1 holds a number"),
    "squad.json": (
        b'{"data": [{"paragraphs": [{"qas": [{"id": 1}]}]}]}',
        "part of the tree is missing: 'question'",
    ),
    "tag.conll": (b"EU B-ORG\nsays\n", "line 2 has no tag"),
    "cut.txt.gz": (gzip.compress(b"hello\n" * 1000)[:-20], "cannot be read"),
    "no.txt.gz": (b"hello\n", "cannot be read: Not a gzipped file"),
    "no.txt.xz": (b"hello\n", "cannot be read"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_one_line_that_names_it(tmp_path: Path, name: str) -> None:
    data, words = BAD[name]
    (tmp_path / name).write_bytes(data)
    with pytest.raises(
        DataError, match=f"{name}.*{words}" if not words.startswith(name) else words
    ) as caught:
        detect_schemas(read_rows(tmp_path / name))
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


def test_a_line_of_10_mb_is_read_and_an_endless_one_refused(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "x.txt").write_bytes(b"short\n" + b"x" * 10_000_000 + b"\nend\n")
    assert [len(row["text"]) for row in read_rows(tmp_path / "x.txt")] == [5, 10_000_000, 3]
    (tmp_path / "x.csv").write_bytes(b"text,label\n" + b"x" * 10_000_000 + b",1\n")
    assert len(read_rows(tmp_path / "x.csv")[0]["text"]) == 10_000_000
    monkeypatch.setattr(files, "MAX_LINE_BYTES", 2**20)
    with pytest.raises(DataError, match=r"x\.txt line 2 is longer than 1 MB; expected one row per line"):
        read_rows(tmp_path / "x.txt")


def test_names_that_are_not_there(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text("{}\n")
    cases = {
        tmp_path / "trian.jsonl": "did you mean 'train.jsonl'",
        "grammar-en-hz": "did you mean 'grammar-en-zh'",
        tmp_path / "zzz": "built in: grammar-en-zh",
        tmp_path / "no" / "folder": "no file or folder",
    }
    for given, words in cases.items():
        with pytest.raises(ClearheadError, match=words) as caught:
            read_rows(given)
        assert "\n" not in str(caught.value)
    (tmp_path / "train.jsonl").unlink()
    with pytest.raises(DataError, match="has no data in it"):
        read_rows(tmp_path)
    with pytest.raises(ClearheadError, match="no file was named"):
        read_rows([])


def test_a_name_cannot_break_the_line(tmp_path: Path) -> None:
    path = tmp_path / "two\nlines\x1b[31m.txt"
    path.write_bytes(b"")
    with pytest.raises(DataError) as caught:
        read_rows(path)
    assert "\n" not in str(caught.value) and "\x1b" not in str(caught.value)


def test_parallel_files_that_do_not_match(tmp_path: Path) -> None:
    for name, text in {"a.en": "1\n2\n", "a.zh": "1\n", "a.de": "1\n2\n"}.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=r"a\.en has 2 lines, .*a\.zh has 1 lines; parallel files"):
        read_rows([tmp_path / "a.en", tmp_path / "a.zh"])
    with pytest.raises(ClearheadError, match=r"several partners: a\.de, a\.zh; name the two"):
        read_rows(tmp_path / "a.en")


def test_files_without_a_column_in_common(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "x"}\n')
    (tmp_path / "b.jsonl").write_text('{"src": "x", "tgt": "y"}\n')
    with pytest.raises(DataError, match="need columns in common"):
        read_rows([tmp_path / "a.jsonl", tmp_path / "b.jsonl"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["prompt=qestion"], "there is no column 'qestion'; did you mean 'question'"),
        (["promt=question"], "there is no role 'promt'; did you mean 'prompt'"),
        (["question"], "expected role=column"),
        (["src=question"], "name tgt as well"),
        (["src=question", "label=answer"], "do not go together"),
    ],
)
def test_a_wrong_map_is_one_line(tmp_path: Path, words, message: str) -> None:
    (tmp_path / "x.jsonl").write_text('{"question": "a", "answer": "b", "more": "c"}\n')
    with pytest.raises(ClearheadError, match=message) as caught:
        detect_schemas(read_rows(tmp_path / "x.jsonl"), parse_map(words))
    assert "\n" not in str(caught.value)
    assert not isinstance(caught.value, DataError)  # the words are wrong, not the data


@pytest.mark.timeout(20)
@pytest.mark.parametrize("suffix", ["txt", "jsonl", "json", "csv", "parquet", "txt.gz", "jsonl.xz"])
def test_what_is_no_regular_file_is_refused_and_never_waited_for(suffix: str, tmp_path: Path) -> None:
    """/proc/kmsg calls itself a regular file and waits for the kernel's next message."""
    path = tmp_path / f"x.{suffix}"
    for target in ("/proc/kmsg", "/proc/self/mem", "/dev/zero", "pipe", "nowhere", str(path)):
        path.unlink(missing_ok=True)
        if target == "pipe":
            os.mkfifo(path)
        else:
            path.symlink_to(target)
        with pytest.raises(ClearheadError) as caught:
            detect_schemas(read_rows(path))
        assert "\n" not in str(caught.value)
