"""The training bench: counts real tokens, gives both sides the same work, and says what is missing."""

import json

import pytest
import torch

from clearhead.bench import train
from clearhead.bench.timing import installed
from clearhead.cli.main import main

MISSING = installed(train.TRAIN_PEERS)[1]


def test_a_batch_of_theirs_has_as_many_padded_tokens_as_ours() -> None:
    sizes = [(1 + i % 30, 1 + (7 * i) % 30) for i in range(1000)]
    rows = train._rows_per_batch(sizes, 2000)
    key = torch.Generator().manual_seed(5)
    drawn = torch.randint(0, 1000, (200, rows), generator=key).tolist()
    padded = [rows * (max(sizes[i][0] for i in d) + max(sizes[i][1] for i in d)) for d in drawn]
    assert 1800 < sum(padded) / len(padded) < 2050


@pytest.mark.parametrize("kind", ["ragged", "dense"])
def test_both_sides_are_measured(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "--source",
        "grammar-en-zh",
        "--tokens",
        "300",
        "--steps",
        "2",
        "--rounds",
        "1",
        "--threads",
        "1",
    ]
    with pytest.raises(SystemExit) as done:
        main(["bench", "train", kind, *words, "--json"])
    said = capsys.readouterr()
    assert done.value.code == 0, said.err
    found = json.loads(said.out)
    sides = ["clearhead"]
    if not MISSING:
        sides += [train.UNGROUPED, train.GROUPED] if kind == "ragged" else [train.UNGROUPED]
    assert list(found["speeds"]) == sides and min(found["speeds"].values()) > 0
    assert found["missing"] == MISSING


def test_a_bench_of_nothing_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        main(["bench", "train", "--steps", "1"])
    assert done.value.code == 2 and "--steps is 1, expected 2 or more" in capsys.readouterr().err
