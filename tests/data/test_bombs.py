"""Small files that would become huge: refused in one line, quickly, without filling disk or memory."""

import gzip
import json
import lzma
import os
import random
import resource
import shutil
import subprocess
import sys
import time
import zlib
from pathlib import Path

import pytest

from clearhead.data import check_data, read_rows
from clearhead.errors import DataError

HERE = Path(__file__).parents[2]
# CPU seconds and peak memory of reading a file; getrusage would count what the parent had.
MEASURE = """
import re, sys, time
from pathlib import Path
from clearhead.data import check_data, read_rows

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) // 1024

before, began = peak(), time.process_time()
try:
    check_data(read_rows(sys.argv[1]))
    word = "read"
except Exception as error:
    word = f"{type(error).__name__}: {error}"
print(word)
print(time.process_time() - began, peak() - before)
"""


def measured(path: Path, tmp_path: Path) -> tuple[str, float, int]:
    """What reading the file in a process of its own says, in CPU seconds and MB; no file may pass 300 MB."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (300 * 2**20, 300 * 2**20))

    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(path)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(HERE), "TMPDIR": str(tmp_path)},
        preexec_fn=limit,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr[-500:]
    word, numbers = done.stdout.splitlines()
    seconds, megabytes = numbers.split()
    return word, float(seconds), int(megabytes)


def packed(path: Path, text: bytes, times: int) -> Path:
    if path.suffix == ".gz":
        maker, out = zlib.compressobj(9, wbits=31), path.open("wb")
    else:
        maker, out = lzma.LZMACompressor(preset=1), path.open("wb")
    with out:
        for _ in range(times):
            out.write(maker.compress(text))
        out.write(maker.flush())
    return path


@pytest.mark.parametrize(
    "name", ["bomb.txt.gz", "bomb.txt.xz", "bomb.jsonl.gz", "bomb.json.xz", "bomb.csv.gz"]
)
def test_a_packed_bomb_is_refused_quickly(name: str, tmp_path: Path) -> None:
    path = packed(tmp_path / name, b'{"text": "a line"}\n' * 55_000, 400)  # 400 MB
    assert path.stat().st_size < 2**21
    word, seconds, megabytes = measured(path, tmp_path)
    assert word.startswith("DataError") and "unpacks to more than 200 times its size" in word
    assert "unpack it yourself" in word and len(word) < 400
    assert seconds < 10 and megabytes < 200
    assert [left.name for left in tmp_path.iterdir()] == [name]


def test_what_packs_well_is_read(tmp_path: Path) -> None:
    """60 MB of one line are no bomb, nor is a text of 70 MB that packs a hundred times."""
    small = packed(tmp_path / "same.txt.xz", b"the same line again\n" * 50_000, 50)
    assert len(read_rows(small)) == 2_500_000
    chance = random.Random(3)
    words = [bytes(chance.choices(b"abcdefghijklmnop", k=9)) for _ in range(4000)]
    lines = [b" ".join(chance.choices(words, k=12)) + b"\n" for _ in range(5000)]
    log = packed(tmp_path / "log.txt.gz", b"".join(line * 40 for line in lines), 3)
    ratio = 3 * sum(map(len, lines)) * 40 / log.stat().st_size
    assert 20 < ratio < 200 and len(read_rows(log)) == 600_000


def test_members_padding_and_headers(tmp_path: Path) -> None:
    gz = b"".join(gzip.compress(text) for text in (b"a\n", b"", b"b\n")) + b"\0" * 70_000
    xz = b"".join(lzma.compress(text) for text in (b"a\n", b"", b"b\n")) + b"\0" * 70_000
    for name, data in {"x.txt.gz": gz, "x.txt.xz": xz}.items():
        (tmp_path / name).write_bytes(data)
        assert [row["text"] for row in read_rows(tmp_path / name)] == ["a", "b"]
        (tmp_path / name).write_bytes(data + b"x")
        with pytest.raises(DataError, match=r"cannot be read"):
            read_rows(tmp_path / name)
        for end in (1, 5, 20, len(data) - 70_000 - 3):
            (tmp_path / name).write_bytes(data[:end])
            with pytest.raises(DataError, match=r"cannot be read"):
                read_rows(tmp_path / name)


def test_a_header_that_goes_on_for_ever(tmp_path: Path) -> None:
    """A name of 50 MB in the header of a .gz; byte by byte, as Python reads it, five seconds."""
    (tmp_path / "x.txt.gz").write_bytes(b"\x1f\x8b\x08\x08" + b"\0" * 6 + b"n" * 50_000_000)
    began = time.process_time()
    with pytest.raises(DataError, match="ends in the middle"):
        read_rows(tmp_path / "x.txt.gz")
    assert time.process_time() - began < 2


def test_an_xz_that_asks_for_much_memory(tmp_path: Path) -> None:
    tiny = lzma.LZMACompressor(filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 2**20}])
    data = bytearray(tiny.compress(b"hello\n") + tiny.flush())
    at = (
        data.index(bytes([0x21, 0x01])) + 2
    )  # the filter's id, the size of its properties, and the dictionary
    data[at] = 40  # 4 GB
    header = 12 + (data[12] + 1) * 4
    data[header - 4 : header] = zlib.crc32(bytes(data[12 : header - 4])).to_bytes(4, "little")
    (tmp_path / "x.txt.xz").write_bytes(data)
    with pytest.raises(DataError, match=r"cannot be read: .*[Mm]emory"):
        read_rows(tmp_path / "x.txt.xz")


def test_half_of_the_disk_stays_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from clearhead.data import unpack

    text = "".join(f"{random.Random(i).random()} is a number\n" for i in range(100_000)).encode()
    path = packed(tmp_path / "x.txt.gz", text, 1)
    usage = shutil._ntuple_diskusage(10**9, 0, 2 * len(text) + 2)
    monkeypatch.setattr(unpack.shutil, "disk_usage", lambda folder: usage)
    assert len(read_rows(path)) == 100_000
    usage = shutil._ntuple_diskusage(10**9, 0, len(text))
    with pytest.raises(DataError, match=r"GB are free.*free some space, or unpack it yourself"):
        read_rows(path)


def test_a_full_temporary_folder_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from clearhead.data import unpack

    def full(*words: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    path = packed(tmp_path / "x.txt.gz", b"hello\n", 1)
    monkeypatch.setattr(unpack.tempfile, "TemporaryFile", full)
    with pytest.raises(DataError, match=r"cannot be read: .*No space left"):
        read_rows(path)


# Not packed, and still much larger in memory than on disk.
WIDE = {
    "lists.json": lambda: b"[" + b"[]," * 20_000_000 + b"[]]",
    "blank.json": lambda: b"\n" * 60_000_000,
    "object.json": lambda: b'{"a": [' + b"[]," * 20_000_000 + b"[]]}",
    "empty.json": lambda: b"[" + b"{}," * 20_000_000 + b"{}]",
    "open.json": lambda: b'[{"text": "' + b"x" * 60_000_000,
    "lists.jsonl": lambda: b'{"text": [' + b"[]," * 20_000_000 + b"[]]}\n",
    "deep.jsonl": lambda: b'{"text": ' * 6_000_000 + b"\n",
    "cell.csv": lambda: b'text,label\n"' + b"x\n" * 35_000_000,
    "commas.csv": lambda: b"," * 60_000_000 + b"\n",
    "tabs.tsv": lambda: b"\t" * 60_000_000 + b"\n",
    "blank.txt": lambda: b"\n" * 60_000_000,
    "words.conll": lambda: b"a " * 30_000_000 + b"\n",
}


QUICK = ("lists.json", "lists.jsonl", "commas.csv")


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.proof) for n in WIDE]
)
def test_sixty_megabytes_stay_small_in_memory(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(WIDE[name]())
    word, seconds, megabytes = measured(tmp_path / name, tmp_path)
    assert word.split(":")[0] == ("read" if name == "words.conll" else "DataError"), word
    assert seconds < 10 and megabytes < 300 and len(word) < 400, (word, seconds, megabytes)


def test_a_line_of_64_mb_is_the_limit_of_a_cell_and_of_a_json_value(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b'[{"text": "' + b"x" * (65 * 2**20) + b'"}]')
    with pytest.raises(DataError, match="larger than 64 MB"):
        read_rows(tmp_path / "a.json")


def test_a_list_of_any_length_is_read_piece_by_piece(tmp_path: Path) -> None:
    rows = [{"text": f"行 {i} " + "é" * (i % 50), "label": i % 3} for i in range(60_000)]
    for indent in (None, 1):
        (tmp_path / "x.json").write_text(json.dumps(rows, indent=indent, ensure_ascii=indent is None))
        source = read_rows(tmp_path / "x.json")
        assert len(source) == 60_000 and [source[i] for i in (0, 31_337, 59_999)] == [
            rows[i] for i in (0, 31_337, 59_999)
        ]
        assert list(source) == rows and source.where(4) == f"{tmp_path / 'x.json'} row 5"
        assert check_data(source).rows == 60_000
