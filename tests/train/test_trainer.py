"""A whole run: running means, means of checkpoints, patience, the timetable, and what is shown."""

import io
import json
import math
import os
import re
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console
from tolerance import assert_close
from toy import Toy, full_training, hash_of, toy_bundle

import clearhead
from clearhead.errors import LoadError, TrainError
from clearhead.tasks import Better
from clearhead.train import (
    FINISHED,
    BarProgress,
    Ema,
    LineProgress,
    Trainer,
    Training,
    average_weights,
    checkpoints,
    default_progress,
    read_log,
)
from clearhead.train.average import trainable_parameters
from clearhead.train.checkpoint import read_weights


def test_the_running_mean_follows_its_formula(tmp_path: Path) -> None:
    """Replayed from the weights of every step."""
    bundle = toy_bundle(dtype=torch.float64)
    training = Training(steps=6, lr=1e-2, ema=0.8, save_every=1, keep=99)
    wanted = {name: p.detach().clone() for name, p in bundle.model.named_parameters()}
    Trainer(bundle, Toy(), training, tmp_path).run()
    for path in checkpoints(tmp_path).values():
        for name, x in read_weights(bundle, path).items():
            wanted[name] = 0.8 * wanted[name] + 0.2 * x
    for name, parameter in bundle.model.named_parameters():  # the mean is the model at the end
        assert_close(parameter.detach(), wanted[name])
    assert hash_of(clearhead.load(tmp_path).model) == hash_of(bundle.model)


def test_a_trained_bundle_answers_as_its_folder_does(tmp_path: Path) -> None:
    """Bit for bit: training has a memory layout of its own, and it does not stay."""
    bundle = toy_bundle()
    Trainer(bundle, Toy(), Training(steps=3, lr=1e-2), tmp_path).run()
    loaded = clearhead.load(tmp_path).model
    for rows, length in ((1, 1), (1, 3), (3, 5)):
        ids = torch.arange(rows * length).view(rows, length) % 7
        with torch.no_grad():
            assert torch.equal(bundle.model(ids), loaded(ids))


def test_the_running_mean_is_what_is_scored_and_the_weights_come_back() -> None:
    model = toy_bundle().model
    ema = Ema(model, 0.5)
    before = hash_of(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    after = hash_of(model)
    with ema.applied(model):
        assert hash_of(model) == before
    assert hash_of(model) == after
    ema.update(model)
    for name, parameter in trainable_parameters(model).items():
        assert_close(ema.means[name], parameter.detach() - 0.5)


def test_the_mean_of_the_last_checkpoints(tmp_path: Path) -> None:
    bundle = toy_bundle()
    training = Training(steps=11, lr=1e-2, average=3, save_every=2, valid_every=3)
    Trainer(bundle, Toy(), training, tmp_path).run()
    parts = [read_weights(bundle, tmp_path / f"checkpoint-{step:06d}") for step in (8, 10, 11)]
    for name, parameter in bundle.model.named_parameters():
        wanted = sum(part[name].double() for part in parts) / 3
        assert torch.equal(parameter.detach(), wanted.float())
    assert hash_of(clearhead.load(tmp_path).model) == hash_of(bundle.model)


def test_a_checkpoint_that_a_signal_made_is_not_part_of_the_mean(tmp_path: Path) -> None:
    """Steps 4, 6 and 7 are of the timetable; the stop after step 5 leaves a checkpoint that is not."""

    def stop(step: int, micro: int) -> None:
        if step == 6:
            os.kill(os.getpid(), signal.SIGTERM)

    training = Training(steps=7, lr=1e-2, average=3, save_every=2, keep=99)
    stopped = Trainer(toy_bundle(), Toy(before=stop), training, tmp_path).run()
    assert stopped.status == "stopped" and 5 in checkpoints(tmp_path)
    bundle = toy_bundle()
    Trainer(bundle, Toy(), training, tmp_path).run()
    assert {4, 5, 6, 7} <= set(checkpoints(tmp_path))
    parts = [read_weights(bundle, tmp_path / f"checkpoint-{step:06d}") for step in (4, 6, 7)]
    for name, parameter in bundle.model.named_parameters():
        wanted = sum(part[name].double() for part in parts) / 3
        assert torch.equal(parameter.detach(), wanted.float())


def test_means_of_different_models_are_refused() -> None:
    x = torch.ones(2)
    assert average_weights([{"a": x}, {"a": 3 * x}])["a"].tolist() == [2.0, 2.0]
    with pytest.raises(LoadError, match="do not hold the same tensors"):
        average_weights([{"a": x}, {"b": x}])


@pytest.mark.parametrize(
    "larger, scores, ends, best",
    [
        (False, [5.0, 4.0, 4.0, 4.5, 1.0], 8, 4),  # an equal score is not a better one
        (True, [5.0, 6.0, 5.0, 5.5, 9.0], 8, 4),
        (False, [5.0, math.nan, math.nan, 1.0], 6, 2),  # nor is one that is no number
        (False, [math.nan, 3.0, 2.0, 1.0, 0.5], 10, 10),
    ],
)
def test_patience(larger: bool, scores: list[float], ends: int, best: int, tmp_path: Path) -> None:
    task = Toy(scores=[*scores], better=Better("loss", larger))
    training = Training(steps=10, valid_every=2, patience=2, save_every=100)
    result = Trainer(toy_bundle(), task, training, tmp_path).run()
    assert (result.status, result.step, result.best_step) == ("done", ends, best)
    assert result.reason == ("steps" if ends == 10 else "patience")
    assert result.best == scores[best // 2 - 1]
    kept = {best, ends}
    assert kept <= set(checkpoints(tmp_path))
    # The folder is the best model, and a finished run does not begin again.
    best_weights = (tmp_path / f"checkpoint-{best:06d}" / "model.safetensors").read_bytes()
    assert (tmp_path / "model.safetensors").read_bytes() == best_weights
    again = Trainer(toy_bundle(), Toy(better=task.better), training, tmp_path).run()
    assert again == replace(result, reason=FINISHED)


def test_the_best_running_mean_is_the_model_at_the_end(tmp_path: Path) -> None:
    bundle = toy_bundle()
    seen: dict[float, str] = {}

    class Watched(Toy):
        def score(self, model: torch.nn.Module, split: str) -> dict[str, float]:
            scores = super().score(model, split)
            seen[scores["loss"]] = hash_of(model)
            return scores

    task = Watched(parts=2, scores=[4.0, 2.0, 3.0])
    result = Trainer(bundle, task, full_training(), tmp_path).run()
    assert result.best_step == 8
    assert hash_of(clearhead.load(tmp_path).model) == seen[2.0] == hash_of(bundle.model)


def test_validation_and_samples_have_a_timetable(tmp_path: Path) -> None:
    heard: list[dict[str, object]] = []
    training = Training(steps=7, valid_every=3, save_every=100)
    Trainer(toy_bundle(), Toy(), training, tmp_path, log=heard.append).run()
    records = read_log(tmp_path)
    assert records == json.loads(json.dumps(heard))
    valid = [record for record in records if record.get("split") == "valid"]
    assert [record["step"] for record in valid] == [3, 6, 7]
    assert all(set(record["scores"]) == {"loss"} and len(record["samples"]) == 1 for record in valid)
    model = clearhead.load(tmp_path).model
    assert min(record["scores"]["loss"] for record in valid) == pytest.approx(
        Toy().score(model, "valid")["loss"]
    )


def test_a_score_that_the_task_does_not_have(tmp_path: Path) -> None:
    task = Toy(better=Better("los", larger=False))
    with pytest.raises(TrainError, match="judged by 'los', and has no such score; did you mean 'loss'"):
        Trainer(toy_bundle(), task, Training(steps=1, valid_every=1), tmp_path).run()


def test_a_score_that_is_no_number_is_null_in_the_log(tmp_path: Path) -> None:
    training = Training(steps=1, valid_every=1)
    Trainer(toy_bundle(), Toy(scores=[math.nan]), training, tmp_path).run()
    assert read_log(tmp_path)[-1]["scores"] == {"loss": None}
    assert "NaN" not in (tmp_path / "metrics.jsonl").read_text()


def test_it_learns(tmp_path: Path) -> None:
    class Once(Toy):
        def batch(self, step: int, micro: int) -> object:
            return super().batch(1, micro)

    Trainer(toy_bundle(dropout=0.0), Once(), Training(steps=60, lr=2e-2), tmp_path).run()
    losses = [record["loss"] for record in read_log(tmp_path)]
    assert losses[0] == pytest.approx(math.log(19), abs=0.1) and losses[-1] < 0.3


def test_plain_lines(tmp_path: Path) -> None:
    out = io.StringIO()
    training = Training(steps=40, valid_every=20, save_every=100, lr=3e-4)
    Trainer(toy_bundle(), Toy(scores=[1.0, 0.5]), training, tmp_path, progress=LineProgress(out)).run()
    lines = out.getvalue().splitlines()
    form = r"step \d+/40 loss [\d.]+ lr 3\.0e-4 \|g\| [\d.e+]+ tok/s [\d,]+ eta \d+:\d\d"
    steps = [line for line in lines if re.fullmatch(form, line)]
    assert len(steps) == 21 and steps[0].startswith("step 1/40") and steps[-1].endswith("eta 0:00")
    assert "step 20 valid loss 1 (best)" in lines and "step 40 valid loss 0.5 (best)" in lines


def test_a_bar_on_a_terminal(tmp_path: Path) -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=120)
    training = Training(steps=4, valid_every=2)
    Trainer(toy_bundle(), Toy(), training, tmp_path, progress=BarProgress(console)).run()
    assert (
        "100%" in out.getvalue()
        and "step 4/4 loss" in out.getvalue()
        and "step 2 valid loss" in out.getvalue()
    )
    assert isinstance(default_progress(), LineProgress)  # a test is no terminal
