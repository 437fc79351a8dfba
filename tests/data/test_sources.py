"""Sources: every format, packed and unpacked, alone, side by side and in folders; access and hashes."""

import csv
import gzip
import hashlib
import json
import lzma
import sys
from pathlib import Path

import pytest

from clearhead.data import detect_schemas, read_rows, read_splits
from clearhead.errors import DataError, InputError

ROWS = [{"text": f"line {i} 你好", "label": "ab"[i % 2]} for i in range(7)]


def write(path: Path, rows: list[dict], *, packed: str = "", bom: bool = False) -> Path:
    kind = path.suffix
    if kind == ".jsonl":
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    elif kind == ".json":
        text = json.dumps(rows, indent=1)
    elif kind == ".tsv":
        text = "text\tlabel\n" + "".join(f"{row['text']}\t{row['label']}\n" for row in rows)
    else:
        text = "text,label\r\n" + "".join(f'"{row["text"]}",{row["label"]}\r\n' for row in rows)
    data = (b"\xef\xbb\xbf" if bom else b"") + text.encode()
    path = path.with_name(path.name + packed)
    path.write_bytes({"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}[packed](data))
    return path


@pytest.mark.parametrize("packed", ["", ".gz", ".xz"])
@pytest.mark.parametrize("bom", [False, True])
@pytest.mark.parametrize("kind", [".jsonl", ".json", ".tsv", ".csv"])
def test_every_format_gives_the_same_rows(tmp_path: Path, kind: str, packed: str, bom: bool) -> None:
    path = write(tmp_path / f"x{kind}", ROWS, packed=packed, bom=bom)
    source = read_rows(path)
    assert source.columns == ("text", "label") and len(source) == 7
    assert list(source) == ROWS
    assert [source[i] for i in (6, 0, 3)] == [ROWS[i] for i in (6, 0, 3)]
    assert source.encoding == ("utf-8 with BOM" if bom else "utf-8")
    assert source.hashes() == {str(path): hashlib.sha256(path.read_bytes()).hexdigest()}
    with pytest.raises(IndexError):
        source[7]


def test_parquet(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'clearhead[data]'")
    from pyarrow import parquet

    path = tmp_path / "x.parquet"
    parquet.write_table(arrow.Table.from_pylist(ROWS), path, row_group_size=3)
    source = read_rows(path)
    assert source.columns == ("text", "label") and list(source) == ROWS and source[5] == ROWS[5]
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(DataError, match="is not a parquet file"):
        read_rows(path)
    parquet.write_table(arrow.Table.from_pylist([], schema=arrow.schema([("text", "string")])), path)
    with pytest.raises(DataError, match="has no rows"):
        read_rows(path)


def test_parquet_without_its_library_is_one_line(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "x.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DataError, match=r"needs pyarrow: pip install 'clearhead\[data\]'"):
        read_rows(tmp_path / "x.parquet")


def test_plain_text_keeps_blank_lines_and_odd_separators(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_bytes("a\u2028b\r\n\r\n c \nlast".encode())
    assert [row["text"] for row in read_rows(path)] == ["a\u2028b", "", " c ", "last"]
    assert read_rows(path).where(3) == f"{path} line 4"


def test_a_quoted_cell_runs_over_lines_and_rows_keep_their_line(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    cells = [["text", "label"], ['two\nlines, "quoted"', "a"], ["one\u2028line", "b"], ["x" * 300_000, "a"]]
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(cells)
    source = read_rows(path)
    assert [list(row.values()) for row in source] == cells[1:]
    assert source.where(1) == f"{path} line 4"


@pytest.mark.parametrize(
    ("text", "columns", "first"),
    [
        ("a,b\nx y,1\n", ("a", "b"), {"a": "x y", "b": "1"}),
        ("fine film,1\nbad film,0\n", ("column1", "column2"), {"column1": "fine film", "column2": "1"}),
        ("fine film,good\nsad,good\n", ("column1", "column2"), {"column1": "fine film", "column2": "good"}),
        ("text;label\nx, y;1\n", ("text", "label"), {"text": "x, y", "label": "1"}),
    ],
)
def test_header_and_separator_are_told_from_the_rows(tmp_path: Path, text: str, columns, first) -> None:
    (tmp_path / "x.csv").write_text(text)
    source = read_rows(tmp_path / "x.csv")
    assert source.columns == columns and source[0] == first


def test_text_with_tabs_is_a_table_and_quotes_are_text(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text('He said "no.\t他说“不\nHi.\t嗨\n', encoding="utf-8")
    source = read_rows(tmp_path / "x.txt")
    assert source[0] == {"column1": 'He said "no.', "column2": "他说“不"}
    assert source.note == "tab-separated, no header"


def test_json_lines_under_another_name_and_squad(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"text": "a"}\n{"text": "b"}\n')
    assert [row["text"] for row in read_rows(tmp_path / "x.json")] == ["a", "b"]
    asked = {"question": "who?", "answers": [{"text": "b", "answer_start": 1}], "id": "7"}
    tree = {"data": [{"title": "t", "paragraphs": [{"context": "abc", "qas": [asked]}]}]}
    (tmp_path / "x.json").write_text(json.dumps(tree))
    row = {"question": "who?", "context": "abc", "answers": asked["answers"]}
    assert list(read_rows(tmp_path / "x.json")) == [row]


def test_conll(tmp_path: Path) -> None:
    (tmp_path / "x.conll").write_text("-DOCSTART- O\n\nEU B-ORG\nsays O\n\t\nBonn\tNNP\tB-LOC\n")
    source = read_rows(tmp_path / "x.conll")
    assert list(source) == [
        {"tokens": ["EU", "says"], "tags": ["B-ORG", "O"]},
        {"tokens": ["Bonn"], "tags": ["B-LOC"]},
    ]
    assert source.where(1).endswith("line 6")


@pytest.mark.parametrize(
    "names", [("train.en", "train.zh"), ("train.en.gz", "train.zh.gz"), ("a.en.txt", "a.zh.txt")]
)
def test_parallel_files_by_either_both_or_their_folder(tmp_path: Path, names) -> None:
    for name, text in zip(names, (b"hi\n\nyes\n", "嗨\n\n是\n".encode()), strict=True):
        (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    one, two = (tmp_path / name for name in names)
    for given in (one, [one, two], tmp_path, str(tmp_path)):
        source = read_rows(given)
        assert source.columns == ("en", "zh") and len(source) == 3
        assert source[2] == {"en": "yes", "zh": "是"}
    assert read_rows(two).columns == ("zh", "en")  # what was named comes first
    assert len(read_rows(one).hashes()) == 2


def test_parallel_files_of_one_name_and_any_suffix(tmp_path: Path) -> None:
    (tmp_path / "all.anno").write_text("a\nb\n")
    (tmp_path / "all.code").write_text("x\ny\n")
    assert read_rows([tmp_path / "all.code", tmp_path / "all.anno"])[1] == {"code": "y", "anno": "b"}


def test_a_folder_has_splits(tmp_path: Path) -> None:
    for name in ("train-1.jsonl", "train-2.jsonl", "dev.jsonl", "test_2016.jsonl"):
        write(tmp_path / name, ROWS)
    (tmp_path / "README.md").write_text("not data")
    (tmp_path / "README.txt").write_text("nor is this")
    splits = read_splits(tmp_path)
    assert {name: len(source) for name, source in splits.items()} == {"train": 14, "valid": 7, "test": 7}
    joined = splits["train"]
    assert joined[9] == ROWS[2] and joined.where(9).endswith("train-2.jsonl line 3")
    assert len(read_rows(tmp_path)) == 14 and len(read_rows(tmp_path, split="valid")) == 7
    with pytest.raises(InputError, match=r"no split 'vaild'.*did you mean 'valid'"):
        read_rows(tmp_path, split="vaild")


def test_a_folder_without_splits_is_one_source(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", ROWS)
    write(tmp_path / "b.csv", ROWS)
    assert len(read_rows(tmp_path)) == 14


def test_a_built_in_corpus_by_name_and_a_file_wins(tmp_path: Path, monkeypatch) -> None:
    assert len(read_rows("grammar-en-zh", split="valid")) == 500
    monkeypatch.chdir(tmp_path)
    Path("grammar-en-zh").write_text("mine\n")
    assert list(read_rows("grammar-en-zh")) == [{"text": "mine"}]


def test_large_files_are_not_read_into_memory(tmp_path: Path) -> None:
    import tracemalloc

    path = tmp_path / "x.jsonl"
    with path.open("w") as file:
        for i in range(20_000):
            file.write(json.dumps({"text": f"{i} " + "x" * 500}) + "\n")
    tracemalloc.start()
    source = read_rows(path)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < path.stat().st_size / 5
    assert source[19_999]["text"].startswith("19999 ")


def test_rows_without_columns_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text("{}\n{}\n")
    with pytest.raises(DataError, match=r"no columns|empty"):
        detect_schemas(read_rows(tmp_path / "x.jsonl"))
