"""Settings: refused in one line where they mean nothing, the same after JSON; and the five schedules."""

import json
import math

import pytest

from clearhead.errors import SpecError
from clearhead.spec import Spec
from clearhead.train import (
    SCHEDULES,
    SGD,
    Adam,
    AdamW,
    Constant,
    Cosine,
    InverseSqrt,
    LinearDecay,
    Noam,
    Schedule,
    Training,
)


def rates(schedule: Schedule, steps: int, lr: float | None, width: int = 512) -> list[float]:
    training = Training(steps=steps, lr=lr, schedule=schedule)
    return [training.rate(width, step) for step in range(1, steps + 1)]


def test_noam_is_the_papers_rate_and_its_first_step_is_not_repeated() -> None:
    found = rates(Noam(warmup=4000), 100_000, None)
    assert max(found) == found[3999] == pytest.approx(6.9877e-4, rel=1e-5)
    assert found[0] == pytest.approx(1.7469e-7, rel=1e-4)
    assert found[1] == pytest.approx(2 * found[0], rel=1e-12)
    assert found[99_999] == pytest.approx(512**-0.5 * 100_000**-0.5, rel=1e-12)
    assert rates(Noam(warmup=4000, factor=2.0), 5, None)[4] == pytest.approx(2 * found[4], rel=1e-12)
    assert rates(Noam(warmup=100), 200, None, width=128)[99] == pytest.approx(128**-0.5 / 10, rel=1e-12)


def test_inverse_sqrt_peaks_at_lr() -> None:
    found = rates(InverseSqrt(warmup=4), 16, 0.8)
    assert found[:4] == pytest.approx([0.2, 0.4, 0.6, 0.8], rel=1e-12)
    assert found[15] == pytest.approx(0.4, rel=1e-12)


def test_cosine_is_a_cosine_and_ends_at_its_minimum() -> None:
    found = rates(Cosine(warmup=2, minimum=0.1), 10, 1.0)
    assert found[:2] == pytest.approx([0.5, 1.0], rel=1e-12)
    assert found[5] == pytest.approx(0.55, rel=1e-12)  # half the way down
    assert found[3] == pytest.approx(0.1 + 0.9 * (1 + math.cos(math.pi / 4)) / 2, rel=1e-12)
    assert found[9] == 0.1 == min(found[1:])


def test_linear_goes_down_in_a_line() -> None:
    assert rates(LinearDecay(warmup=2), 6, 1.0) == pytest.approx([0.5, 1.0, 0.75, 0.5, 0.25, 0.0], abs=1e-15)
    assert rates(LinearDecay(minimum=0.2), 4, 1.0) == pytest.approx([0.8, 0.6, 0.4, 0.2], rel=1e-12)


def test_constant_stays() -> None:
    assert rates(Constant(), 3, 0.5) == [0.5, 0.5, 0.5]
    assert rates(Constant(warmup=2), 4, 0.5) == [0.25, 0.5, 0.5, 0.5]


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize(
    "optimizer", [AdamW(betas=(0.9, 0.98), decay=0.1), Adam(eps=1e-9), SGD(momentum=0.9)]
)
def test_settings_are_the_same_after_json(name: str, optimizer: Spec) -> None:
    lr = None if name == "noam" else 1e-3
    schedule = SCHEDULES[name](warmup=7)
    training = Training(steps=20, lr=lr, schedule=schedule, optimizer=optimizer, ema=0.99, time_budget=2.5)
    assert Spec.from_dict(json.loads(json.dumps(training.to_dict()))) == training


def test_an_unknown_field_is_refused_with_the_nearest() -> None:
    with pytest.raises(SpecError, match="Training has no field 'save_evry'; did you mean 'save_every'"):
        Spec.from_dict({"kind": "Training", "steps": 2, "save_evry": 3})


@pytest.mark.parametrize(
    "given, said",
    [
        ({"steps": 0}, "Training.steps is 0; expected 1 or more"),
        ({"steps": 1.5}, "Training.steps is 1.5, expected a whole number"),
        ({"micro": 0}, "Training.micro is 0; expected 1 or more"),
        ({"keep": 1}, "Training.keep is 1; expected 2 or more"),
        ({"threads": 0}, "Training.threads is 0; expected 1 or more"),
        ({"lr": -1.0}, "Training.lr is -1.0, expected a number above 0"),
        ({"lr": math.nan}, "Training.lr is nan, expected a number above 0"),
        ({"clip": 0.0}, "Training.clip is 0.0, expected a number above 0"),
        ({"time_budget": math.inf}, "Training.time_budget is inf, expected a number above 0"),
        ({"precision": "fp8"}, "expected one of 'float32', 'bfloat16', 'float16'"),
        ({"ema": 1.0}, "Training.ema is 1.0; expected a number between 0 and 1"),
        ({"ema": 0.9, "average": 2}, "both ema and average"),
        ({"schedule": Noam(), "lr": 0.1}, "Noam computes its rate from the width; leave out lr 0.1"),
        ({"schedule": Cosine(warmup=9)}, "expected less than steps 9: --train.schedule.warmup 0.1"),
        ({"schedule": LinearDecay(minimum=1.0)}, "LinearDecay.minimum is 1.0; expected 0 to lr 0.0003"),
    ],
)
def test_what_means_nothing_is_refused_in_one_line(given: dict[str, object], said: str) -> None:
    with pytest.raises(SpecError) as caught:
        Training(**{"steps": 9, **given})
    assert said in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Noam(warmup=0), lambda: InverseSqrt(warmup=0), lambda: Constant(warmup=-1),
        lambda: AdamW(betas=(0.9, 1.0)), lambda: Adam(eps=0.0), lambda: AdamW(decay=-0.1),
        lambda: SGD(momentum=1.0), lambda: Noam(factor=0.0),
    ],
)  # fmt: skip
def test_parts_refuse_what_means_nothing(make: object) -> None:
    with pytest.raises(SpecError, match="expected"):
        make()
