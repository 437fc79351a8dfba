"""The plan of a run in float32 suggests bfloat16 where that is faster, and nowhere else."""

from pathlib import Path

import pytest

from clearhead.cli.main import main

WORDS = [
    "gpt-chars", "--train.steps", "2", "--model.depth", "1", "--data.length", "16", "--data.rows", "2",
    "--train.valid_every", "2", "--train.schedule.warmup", "0", "--device", "cpu",
]  # fmt: skip
WIDE, NARROW = ["--model.width", "128"], ["--model.width", "64"]
HINT = "precision  float32 (this CPU computes bfloat16 faster: add --precision bfloat16)"


def plan(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    with pytest.raises(SystemExit) as done:
        main(["train", *words])
    err = capsys.readouterr().err
    assert done.value.code == 0, err
    return err.splitlines()


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clearhead.device.has_fast_bfloat16", lambda: True)


@pytest.mark.usefixtures("fast")
def test_it_is_suggested_before_the_first_step_and_not_when_resuming(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = plan(capsys, *WORDS, *WIDE, "--out", str(tmp_path / "run"))
    assert lines.count(HINT) == 1
    assert lines.index(HINT) < next(i for i, line in enumerate(lines) if line.startswith("step 1/"))
    # A run keeps its precision: a hint to change it would be refused.
    assert HINT not in plan(capsys, "--resume", str(tmp_path / "run"), "--steps", "3")


@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize("words", [[*WIDE, "--precision", "bfloat16"], NARROW])
def test_it_is_not_suggested_where_it_is_set_or_does_not_pay(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not any(
        "bfloat16" in line for line in plan(capsys, *WORDS, *words, "--out", str(tmp_path / "run"))
    )


def test_it_is_not_suggested_on_a_slow_cpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clearhead.device.has_fast_bfloat16", lambda: False)
    assert HINT not in plan(capsys, *WORDS, *WIDE, "--out", str(tmp_path / "run"))


@pytest.mark.usefixtures("fast")
def test_it_is_not_suggested_for_another_device(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    device = type("Device", (), {"type": "cuda"})
    monkeypatch.setattr("clearhead.train.training_device", lambda bundle, training: device)
    assert HINT not in plan(capsys, *WORDS, *WIDE, "--out", str(tmp_path / "run"))
