"""Odd, damaged and malicious data files through `clearhead data check`: an answer or one line."""

import random
import shutil
from pathlib import Path

import pytest
from hostile import TEXTS, Found, damage, dumped, judge, make_fifo_or_link, packed, row

from clearhead.cli.main import main

KINDS = ["csv", "tsv", "json", "jsonl", "conll", "parquet", "txt", "parallel", "folder", "labelled", "link"]


def table(chance: random.Random, separator: str) -> bytes:
    cells = [
        [chance.choice(TEXTS) for _ in range(chance.choice([1, 2, 2, 3]))]
        for _ in range(chance.randrange(1, 9))
    ]
    if chance.random() < 0.7:
        cells = [(cell * 3)[: len(cells[0])] for cell in cells]
    if chance.random() < 0.5:
        cells[0] = chance.sample(
            ["text", "label", "src", "tgt", "question", "answer", "\x1b[31m", ""], len(cells[0])
        )
    if separator != "\t" and chance.random() < 0.7:
        cells = [['"' + cell.replace('"', '""') + '"' for cell in each] for each in cells]
    text = "\n".join(separator.join(each) for each in cells) + "\n"
    return text.encode("utf-8", "surrogatepass") if chance.random() < 0.9 else text.encode("utf-16", "ignore")


def parquet(chance: random.Random) -> bytes:
    import io

    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {}
    for name in chance.sample(
        ["text", "label", "src", "tgt", "tokens", "tags", "\x1b[31m", ""], chance.choice([1, 2, 3])
    ):
        values = chance.choice(
            [
                [chance.choice(TEXTS).replace("\ud800", "?") for _ in range(5)],
                [1, 2, None, 4, 5],
                [["a", "b"], None, [], ["c"], ["\x1b"]],
                [b"\xff", b"", b"a", None, b"\x00"],
                [{"en": "a", "zh": "b"}] * 5,
                [1.5, float("nan"), float("inf"), None, 0.0],
            ]
        )
        columns[name] = pa.array(values)
        if chance.random() < 0.2 and columns[name].type == pa.binary():
            columns[name] = columns[name].view(pa.string())
    file = io.BytesIO()
    codec = chance.choice(["snappy", "gzip", "zstd", "none", "brotli"])
    pq.write_table(pa.table(columns), file, compression=codec, row_group_size=chance.choice([2, 10]))
    return file.getvalue()


def text_of(chance: random.Random, kind: str) -> bytes:
    if kind in ("csv", "tsv"):
        return table(chance, "\t" if kind == "tsv" else chance.choice(",,;\t"))
    if kind == "jsonl":
        lines = [dumped(chance, row(chance)).replace("\n", " ") for _ in range(chance.randrange(1, 8))]
        return "\n".join(lines).encode("utf-8", "surrogatepass")
    if kind == "json":
        rows = [row(chance) for _ in range(chance.randrange(6))]
        squad = {"data": [{"paragraphs": [{"context": "abc", "qas": [{"question": "q", "answers": rows}]}]}]}
        return dumped(chance, chance.choice([rows, rows, {"data": rows}, squad, row(chance)])).encode(
            "utf-8", "surrogatepass"
        )
    if kind == "conll":
        lines = [f"{chance.choice(TEXTS)} {chance.choice(TEXTS)}" for _ in range(6)]
        return "\n".join(lines).encode("utf-8", "surrogatepass")
    if kind == "parquet":
        return parquet(chance)
    return "\n".join(chance.choices(TEXTS, k=chance.randrange(1, 9))).encode("utf-8", "surrogatepass")


def write(chance: random.Random, folder: Path, name: str, kind: str) -> str:
    data = text_of(chance, kind)
    name, data = packed(chance, name, damage(chance, data) if chance.random() < 0.5 else data)
    (folder / name).write_bytes(data)
    return str(folder / name)


def files(chance: random.Random, folder: Path, kind: str) -> list[str]:
    """The files of a case, and how they are named to the program."""
    odd = chance.choice(["x", "x", "x", "\x1b[31m", "a b", "名", "x.train"])
    if kind == "link":
        suffix = chance.choice(["txt", "jsonl", "json", "csv", "parquet", "txt.gz", "jsonl.xz", "conll"])
        make_fifo_or_link(chance, folder / f"{odd}.{suffix}")
        return [str(folder / f"{odd}.{suffix}")]
    if kind == "parallel":
        return [write(chance, folder, f"{odd}.{language}", "txt") for language in ("en", "zh")]
    if kind == "folder":
        for split in chance.sample(["train", "valid", "test", "rest"], chance.randrange(3)):
            suffix = chance.choice(["csv", "jsonl", "json", "txt", "tsv"])
            write(chance, folder, f"{split}.{suffix}", suffix)
        if chance.random() < 0.2:
            make_fifo_or_link(chance, folder / "train.txt.gz")
        return [str(folder)]
    if kind == "labelled":
        for label in chance.sample(["pos", "neg", "\x1b[31m", "名"], 2):
            (folder / label).mkdir()
            write(chance, folder / label, "1.txt", "txt")
        return [str(folder)]
    return [write(chance, folder, f"{odd}.{kind}", kind)]


def case(chance: random.Random, folder: Path) -> list[str]:
    """Words for `data check`, and the files they name."""
    words = files(chance, folder, chance.choice(KINDS))
    if chance.random() < 0.3:
        words.append("--json")
    if chance.random() < 0.2:
        words += ["--length", chance.choice(["1", "8", "0", "-1", "99999999999999999999"])]
    if chance.random() < 0.2:
        maps = ["text=text", "text=column1", "src=en", "x=y", "text=\x1b", "label=label"]
        words += ["--map", chance.choice(maps)]
    return words


def fuzz(seed: object, count: int, home: Path) -> Found:
    found = Found()
    for number in range(count):
        folder = home / "case"
        folder.mkdir()
        try:
            words = case(random.Random(f"{seed}-{number}"), folder)
            judge(found, f"{seed}-{number}", lambda words=words: main(["data", "check", *words]), (0, 2, 3))
        finally:
            shutil.rmtree(folder)
    return found


def test_hostile_files(tmp_path: Path) -> None:
    found = fuzz("house", 150, tmp_path)
    assert found.faults == [], found


@pytest.mark.proof
@pytest.mark.timeout(1800)
def test_three_thousand_hostile_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seed = random.SystemRandom().randrange(10**9)
    found = fuzz(seed, 3000, tmp_path)
    with capsys.disabled():
        print(f"\nseed {seed}: {found}")  # noqa: T201
    assert found.faults == [], f"seed {seed}: {found}"
