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


TINY = ["--source", "grammar-en-zh", "--tokens", "300", "--steps", "2", "--rounds", "1", "--threads", "1"]


def call(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[str, str]:
    with pytest.raises(SystemExit) as done:
        main(["bench", "train", *words])
    printed = capsys.readouterr()
    assert done.value.code == 0, printed.err
    return printed.out, printed.err


@pytest.mark.parametrize("kind", ["ragged", "dense"])
def test_both_sides_are_measured_in_both_precisions(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = call(capsys, kind, *TINY, "--precision", "float32", "bfloat16", "--json")
    found = json.loads(out)
    libraries = ["clearhead"]
    if not MISSING:
        libraries += [train.UNGROUPED, train.GROUPED] if kind == "ragged" else [train.UNGROUPED]
    sides = [f"{library}{precision}" for library in libraries for precision in ("", " bfloat16")]
    assert list(found["speeds"]) == list(found["losses"]) == sides and min(found["speeds"].values()) > 0
    assert found["missing"] == MISSING
    # The precision was really another, and the loss is within a hundredth of what it is in float32.
    for library in libraries:
        exact, half = (found["losses"][f"{library}{precision}"] for precision in ("", " bfloat16"))
        assert exact != half and abs(exact - half) < 0.01 * exact


@pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")
def test_both_sides_learn_the_same_from_the_same_weights(capsys: pytest.CaptureFixture[str]) -> None:
    """Rows without padding: other batches, the same model, optimizer and number of steps."""
    words = ["--tokens", "600", "--steps", "12", "--rounds", "1", "--threads", "1", "--precision", "float32"]
    losses = json.loads(call(capsys, "dense", *words, "--json")[0])["losses"]
    untrained = train.dense(600)
    before = untrained.held_out_loss(untrained.bundle.model.eval())
    gains = [before - loss for loss in losses.values()]
    assert min(gains) > 0.3 and max(gains) - min(gains) < 0.1 * max(gains)


@pytest.mark.parametrize("fast", [True, False])
def test_without_a_choice_bfloat16_is_measured_where_it_is_fast(
    fast: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clearhead.device.has_fast_bfloat16", lambda: fast)
    monkeypatch.setattr("clearhead.bench.timing.installed", lambda packages: ({}, ["a peer"]))
    out, err = call(capsys, "dense", *TINY)
    assert ("clearhead bfloat16" in out) == fast
    assert ("this CPU has no fast bfloat16" in out and "--precision bfloat16 measures it" in out) == (
        not fast
    )
    assert "a peer" in err and "loss at" in out


def test_bfloat16_is_measured_on_request_and_called_slow_where_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clearhead.device.has_fast_bfloat16", lambda: False)
    monkeypatch.setattr("clearhead.bench.timing.installed", lambda packages: ({}, ["a peer"]))
    out, _ = call(capsys, "dense", *TINY, "--precision", "bfloat16")
    assert "clearhead bfloat16" in out and "slow here" in out


def test_a_precision_that_is_not_measured_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        main(["bench", "train", "dense", "--precision", "float16"])
    assert done.value.code == 2 and "float16" in capsys.readouterr().err


def test_a_bench_of_nothing_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        main(["bench", "train", "--steps", "1"])
    assert done.value.code == 2 and "--steps is 1, expected 2 or more" in capsys.readouterr().err
