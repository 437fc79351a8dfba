"""A finished run is given more steps: what was there stays, the rest follows the longer schedule."""

from pathlib import Path
from typing import Any

import pytest
from toy import Toy, full_training, remains, toy_bundle

from clearhead.errors import TrainError
from clearhead.train import (
    FINISHED,
    LinearDecay,
    Trainer,
    Training,
    TrainingResult,
    checkpoints,
    read_log,
    without_timing,
)
from clearhead.train.progress import QuietProgress


class Warnings(QuietProgress):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def warn(self, line: str) -> None:
        self.lines.append(line)


def run(folder: Path, task: Toy | None = None, **settings: Any) -> tuple[TrainingResult, list[str]]:
    shown = Warnings()
    training = Training(**{"lr": 1e-2, "save_every": 2} | settings)
    return Trainer(toy_bundle(), task or Toy(), training, folder, progress=shown).run(), shown.lines


def test_a_run_of_four_steps_becomes_one_of_eight(tmp_path: Path) -> None:
    schedule = LinearDecay()
    run(tmp_path, steps=4, schedule=schedule)
    before, final = read_log(tmp_path), (tmp_path / "model.safetensors").read_bytes()
    result, warnings = run(tmp_path, steps=8, schedule=schedule)
    assert (result.status, result.reason, result.step) == ("done", "steps", 8)
    after = read_log(tmp_path)
    assert after[:4] == before and [r["step"] for r in after] == list(range(1, 9))
    assert [r["lr"] for r in after[4:]] == pytest.approx([1e-2 * (8 - s) / 8 for s in range(5, 9)])
    assert (tmp_path / "model.safetensors").read_bytes() != final
    assert (tmp_path / "model.safetensors").read_bytes() == (
        checkpoints(tmp_path)[8] / "model.safetensors"
    ).read_bytes()
    assert len(warnings) == 1
    assert warnings[0].startswith("the run was made for 4 steps and now has 8: from step 5 on the learning")


def test_with_a_constant_rate_more_steps_are_the_run_that_had_them_from_the_start(tmp_path: Path) -> None:
    for steps in (6, 12):
        Trainer(toy_bundle(), Toy(parts=2), full_training(steps=steps, valid_every=3), tmp_path / "a").run()
    Trainer(toy_bundle(), Toy(parts=2), full_training(steps=12, valid_every=3), tmp_path / "b").run()
    assert remains(tmp_path / "a")["log"] == remains(tmp_path / "b")["log"]
    assert remains(tmp_path / "a")["weights"] == remains(tmp_path / "b")["weights"]


def test_the_validation_at_what_was_the_last_step_still_counts(tmp_path: Path) -> None:
    """Step 4 was validated because it was the last; it is the best, and no multiple of 3."""
    run(tmp_path, Toy(scores=[3.0, 1.0]), steps=4, valid_every=3)
    result, _ = run(tmp_path, Toy(scores=[2.0, 2.5]), steps=8, valid_every=3)
    assert (result.best, result.best_step) == (1.0, 4)
    best = checkpoints(tmp_path)[4] / "model.safetensors"
    assert (tmp_path / "model.safetensors").read_bytes() == best.read_bytes()


@pytest.mark.parametrize("more", [{"patience": 4}, {"steps": 20}])
def test_a_run_that_lost_its_patience_continues_with_more(more: dict[str, int], tmp_path: Path) -> None:
    settings = {"steps": 10, "valid_every": 1, "patience": 2}
    first, _ = run(tmp_path, Toy(scores=[1.0, 2.0, 2.0]), **settings)
    assert (first.reason, first.step) == ("patience", 3)
    again, _ = run(tmp_path, Toy(), **settings)
    assert (again.status, again.reason, again.step) == ("done", FINISHED, 3)
    second, _ = run(tmp_path, Toy(scores=[2.0, 2.0, 2.0]), **settings | more)
    assert (second.reason, second.step, second.best_step) == ("patience", 5, 1)


def test_a_finished_run_with_nothing_to_do_says_so_and_changes_nothing(tmp_path: Path) -> None:
    first, _ = run(tmp_path, steps=4, valid_every=2)
    before = remains(tmp_path)
    again, warnings = run(tmp_path, steps=4, valid_every=2)
    assert (first.reason, again.status, again.reason, again.step) == ("steps", "done", FINISHED, 4)
    assert remains(tmp_path) == before and warnings == []


def test_a_run_killed_before_it_wrote_its_model_is_not_finished(tmp_path: Path) -> None:
    run(tmp_path, steps=4)
    (tmp_path / "config.json").unlink()
    assert run(tmp_path, steps=4)[0].reason == "steps"
    assert (tmp_path / "config.json").is_file()


def test_fewer_steps_than_were_taken_are_refused_in_one_line(tmp_path: Path) -> None:
    run(tmp_path, steps=4)
    before = remains(tmp_path)
    with pytest.raises(TrainError, match="the run has taken 4 steps and steps is 3; give 4 or more"):
        run(tmp_path, steps=3)
    assert remains(tmp_path) == before


def test_less_patience_is_another_config(tmp_path: Path) -> None:
    run(tmp_path, steps=4, valid_every=2, patience=3)
    with pytest.raises(TrainError, match=r"training\.patience is 2 here and 3 there"):
        run(tmp_path, steps=4, valid_every=2, patience=2)


def test_patience_alone_validates_ten_times_in_a_run(tmp_path: Path) -> None:
    run(tmp_path, steps=20, patience=99)
    steps = [r["step"] for r in map(without_timing, read_log(tmp_path)) if r.get("split") == "valid"]
    assert steps == list(range(2, 21, 2))
    assert Training(steps=3, patience=1).validation_interval == 1
    assert Training(steps=30, patience=1, valid_every=7).validation_interval == 7
    assert Training(steps=30).validation_interval is None
