"""Parquet files that lie, are damaged or would be huge: one line, whenever it is noticed."""

import random
import time
from pathlib import Path

import pytest

from clearhead.data import check_data, detect_schemas, read_rows
from clearhead.errors import ClearheadError, DataError

why = "reading .parquet needs the extra `data`: pip install clearhead[data]"
pa = pytest.importorskip("pyarrow", reason=why)
pq = pytest.importorskip("pyarrow.parquet", reason=why)


def write(path: Path, table: object, **options: object) -> Path:
    pq.write_table(table, path, **options)
    return path


def texts(count: int = 300) -> object:
    chance = random.Random(1)
    words = [" ".join(chance.choices("abcdefghij", k=20)) for _ in range(count)]
    return pa.table({"text": words, "label": [i % 3 for i in range(count)]})


@pytest.mark.parametrize("compression", ["snappy", "gzip", "zstd", "none"])
def test_damage_anywhere_is_one_line(compression: str, tmp_path: Path) -> None:
    path = write(tmp_path / "x.parquet", texts(), compression=compression, row_group_size=100)
    good = list(read_rows(path))
    data, chance = path.read_bytes(), random.Random(compression)
    refused = 0
    for _ in range(150):
        broken = bytearray(data)
        for _ in range(chance.choice([1, 1, 4])):
            broken[chance.randrange(len(broken))] ^= 1 << chance.randrange(8)
        path.write_bytes(broken)
        try:
            source = read_rows(path)
            detect_schemas(source)
            assert len(list(source)) == len(good)
        except ClearheadError as error:
            refused += 1
            assert "x.parquet" in str(error) and "\n" not in str(error) and len(str(error)) < 400
    assert refused > 20


def test_a_page_that_is_damaged_is_named_when_its_row_is_read(tmp_path: Path) -> None:
    path = write(tmp_path / "x.parquet", texts(3000), use_dictionary=False, row_group_size=1000)
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 400] = b"\xff" * 400
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"x\.parquet.* cannot be read: .*download or create it again"):
        list(read_rows(path))


def test_columns_that_cannot_be_told_apart(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["text", "text"])
    with pytest.raises(DataError, match="has two columns called 'text'"):
        read_rows(write(tmp_path / "x.parquet", table))


def test_values_of_every_type_are_read_or_refused_in_one_line(tmp_path: Path) -> None:
    import datetime
    import decimal

    columns = {
        "binary": pa.array([b"\xff\xfe"]),
        "invalid": pa.array([b"\xff\xfe"]).view(pa.string()),
        "time": pa.array([2**62], pa.timestamp("us")),
        "nanos": pa.array([1], pa.timestamp("ns")),
        "date": pa.array([datetime.date(2020, 1, 1)]),
        "decimal": pa.array([decimal.Decimal("1.5")]),
        "struct": pa.array([{"en": "a", "zh": "b"}]),
        "lists": pa.array([[["a"], None]]),
        "map": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int32())),
        "null": pa.nulls(1),
        "half": pa.array([1.5], pa.float32()),
        "truth": pa.array([True]),
    }
    for name, column in columns.items():
        path = write(tmp_path / f"{name}.parquet", pa.table({"text": column}))
        try:
            check_data(read_rows(path))
        except ClearheadError as error:
            assert "\n" not in str(error) and len(str(error)) < 400


def test_a_bomb_is_refused_by_its_index(tmp_path: Path) -> None:
    """A million times the same ten kilobytes: 10 GB in a file of a few kilobytes."""
    same = pa.DictionaryArray.from_arrays(pa.array([0] * 1_000_000, pa.int32()), pa.array(["x" * 10_000]))
    path = write(tmp_path / "x.parquet", pa.table({"text": same}), row_group_size=1_000_000)
    assert path.stat().st_size < 2**20
    began = time.process_time()
    with pytest.raises(DataError, match=r"x\.parquet has a row group of .* GB in a file of .* MB; write it"):
        read_rows(path)[0]
    assert time.process_time() - began < 2


def test_texts_that_repeat_stay_one_copy(tmp_path: Path) -> None:
    same = pa.DictionaryArray.from_arrays(pa.array([0, 1] * 50_000, pa.int32()), pa.array(["x" * 1000, "y"]))
    path = write(tmp_path / "x.parquet", pa.table({"text": same}))
    source, before = read_rows(path), pa.total_allocated_bytes()
    assert source[99_998]["text"] == "x" * 1000 and len(source) == 100_000
    assert pa.total_allocated_bytes() - before < 5 * 2**20  # as strings it would be 50 MB


def test_a_list_of_millions_in_a_row(tmp_path: Path) -> None:
    chance = random.Random(2)
    numbers = pa.array([[0] * 9_000_000, [1]], pa.list_(pa.int64()))
    filler = pa.array([bytes(chance.randrange(256) for _ in range(10**6)), b""])
    path = write(tmp_path / "x.parquet", pa.table({"text": numbers, "more": filler}))
    with pytest.raises(DataError, match="row 1 is larger than 64 MB"):
        read_rows(path)[0]
    assert read_rows(path)[1]["text"] == [1]


def test_a_list_of_many_millions_is_refused_by_its_index(tmp_path: Path) -> None:
    """Ten million zeros in one row of a file of a few kilobytes; as Python values, 80 MB and more."""
    numbers = pa.array([[0] * 10_000_000], pa.list_(pa.int64()))
    path = write(tmp_path / "x.parquet", pa.table({"text": numbers}))
    assert path.stat().st_size < 2**20
    with pytest.raises(DataError, match=r"has a row group of .* GB in a file of"):
        read_rows(path)


def test_an_index_on_which_the_library_gives_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some damage makes it end the process; what is asked of it then is asked in another process."""
    from clearhead.data import parquet

    path = write(tmp_path / "x.parquet", pa.table({"text": [["a"], ["b"]]}))
    assert read_rows(path)[0] == {"text": ["a"]}
    monkeypatch.setattr(parquet, "COUNT_SCRIPT", "import os; os.abort()")
    with pytest.raises(DataError, match="is not a parquet file: its index is damaged"):
        read_rows(path)


def test_a_row_repeated_by_the_million_in_a_small_file_is_refused(tmp_path: Path) -> None:
    """Repeated values take no room in the file, and a row each in everything that reads it."""
    rows = 2 * 2**20
    table = pa.table({"text": pa.array(["x"] * rows).dictionary_encode(), "label": [1] * rows})
    with pytest.raises(DataError, match=r"2,097,152 rows in .* bytes: nearly all"):
        read_rows(write(tmp_path / "a.parquet", table, compression="zstd"))
