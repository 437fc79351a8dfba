"""Estimates: arithmetic with a clock that ticks, and a validation that is stopped when it takes too long."""

import time
from dataclasses import dataclass
from itertools import count

import pytest
import torch
from toy import Toy, toy_bundle

from clearhead.recipes import load_run, prepare
from clearhead.train import Trainer, Training
from clearhead.train.estimate import estimate


def ticking() -> float:
    return next(TICKS)


TICKS = map(float, count())


def test_an_estimate_is_steps_and_validations() -> None:
    seen: list[int] = []
    task = Toy(before=lambda step, micro: seen.append(step))
    training = Training(steps=1000, valid_every=300, lr=1e-2)
    said = estimate(toy_bundle(), task, training, clock=ticking)
    assert (said.steps, said.validation, said.validations) == (1000, 1.0, 4)
    assert said.seconds == said.step * 1000 + 4
    assert said.step == pytest.approx(1.0, rel=0.3)  # a tick a step, by the size of its batch
    steps = [step for step in seen if step][1:]
    quarters = {(step - 1) * 4 // 1000 for step in steps[:8]}  # from the whole run, and soon
    assert quarters == {0, 1, 2, 3} and max(steps) <= 1000
    assert said.memory > 50e6


def test_without_validation_there_is_none_to_count() -> None:
    said = estimate(toy_bundle(), Toy(), Training(steps=10, lr=1e-2), clock=ticking)
    assert (said.validation, said.validations) == (0.0, 0)


@dataclass
class Slow(Toy):
    def score(self, model: torch.nn.Module, split: str) -> dict[str, float]:
        while True:
            super().score(model, split)
            time.sleep(0.01)


def test_a_validation_that_takes_too_long_is_left() -> None:
    bundle = toy_bundle()
    said = estimate(bundle, Slow(), Training(steps=10, valid_every=5, lr=1e-2), budget=0.05)
    assert said.validation is None and said.seconds == said.step * 10
    assert not any(module._forward_pre_hooks for module in bundle.model.modules())


SHORT = {
    "gpt-chars": ["--train.steps=200", "--train.valid_every=100"],
    "bert-mini": ["--train.steps=80", "--train.valid_every=40", "--train.schedule.warmup=10"],
    "translate-en-zh": ["--train.steps=80", "--train.valid_every=40", "--train.schedule.warmup=10"],
    "denoise": ["--train.steps=60", "--train.valid_every=30", "--train.schedule.warmup=10"],
}


@pytest.mark.proof
@pytest.mark.parametrize("name", SHORT)
def test_built_in_recipes_take_as_long_as_was_said(name: str, tmp_path: object) -> None:
    """By the processor's clock: this one does not run while others do."""
    run = load_run(name, [*SHORT[name], "--train.threads=1"])
    first, second = prepare(run), prepare(run)
    said = estimate(first.bundle, first.task, run.train, clock=time.process_time)
    began = time.process_time()
    Trainer(second.bundle, second.task, run.train, str(tmp_path)).run()
    assert abs(said.seconds / (time.process_time() - began) - 1) < 0.25
