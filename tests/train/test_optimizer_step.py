"""One update: parts equal the whole, clipping, groups, precision, and a bad number that changes nothing."""

import math
from pathlib import Path

import pytest
import torch
from tolerance import assert_close
from torch import Tensor, nn
from toy import Rows, Toy, hash_of, toy_bundle

from clearhead.errors import TrainError, TrainingStopped
from clearhead.train import (
    SGD,
    Adam,
    AdamW,
    Constant,
    Cosine,
    LinearDecay,
    Noam,
    Trainer,
    Training,
    checkpoints,
    parameter_groups,
    read_log,
)
from clearhead.train.checkpoint import read_weights
from clearhead.train.optim import Optimizer
from clearhead.train.optimizer_step import NonFiniteError, OptimizerStep
from clearhead.train.state import TrainingState


def never() -> bool:
    return False


def exact_update(parts: int, **settings: object) -> OptimizerStep:
    """In float64, without dropout: what is left is the arithmetic of parts."""
    model = toy_bundle(dropout=0.0, dtype=torch.float64).model
    return OptimizerStep(model, Toy(rows=8, parts=parts), Training(steps=9, micro=parts, **settings), 16)


@pytest.mark.parametrize("parts", [2, 4, 8])
def test_parts_of_ragged_lengths_have_the_gradients_of_the_whole(parts: int) -> None:
    whole, split = exact_update(1), exact_update(parts)
    counts = [split.task.batch(1, micro).targets for micro in range(parts)]
    assert len(set(counts)) > 1, "all parts have as many targets; the test would prove nothing"
    one, two = (update.compute_gradients(1, 1.0, never) for update in (whole, split))
    assert one.targets == two.targets == sum(counts)
    assert abs(one.loss - two.loss) < 1e-12
    for name, parameter in whole.parameters.items():
        assert_close(parameter.grad, split.parameters[name].grad)


@pytest.mark.parametrize(
    "optimizer", [AdamW(decay=0.1), Adam(), SGD(momentum=0.9)], ids=lambda o: type(o).__name__
)
def test_three_steps_in_parts_are_three_steps_of_the_whole(optimizer: Optimizer) -> None:
    runs = [exact_update(parts, lr=1e-2, optimizer=optimizer, clip=0.5) for parts in (1, 4)]
    for step in (1, 2, 3):
        one, two = (run.run(step, TrainingState(), never) for run in runs)
        assert abs(one.loss - two.loss) < 1e-12 and abs(one.grad_norm - two.grad_norm) < 1e-12
    for name, parameter in runs[0].parameters.items():
        assert_close(parameter, runs[1].parameters[name])


def test_clipping_is_torchs_and_the_norm_before_it_is_told() -> None:
    ours, theirs = (exact_update(1, clip=0.05, lr=0.1, optimizer=SGD()) for _ in range(2))
    before = {name: p.detach().clone() for name, p in ours.parameters.items()}
    measured = ours.run(1, TrainingState(), never)
    theirs.compute_gradients(1, 1.0, never)
    norm = nn.utils.clip_grad_norm_(theirs.parameters.values(), 0.05)
    assert measured.grad_norm == float(norm) > 0.05
    moved = [(before[name] - p.detach()) / 0.1 for name, p in ours.parameters.items()]
    assert_close(
        torch.cat([x.flatten() for x in moved]).norm(), torch.tensor(0.05, dtype=torch.float64), 1e-6
    )
    for x, parameter in zip(moved, theirs.parameters.values(), strict=True):
        assert_close(x, parameter.grad, 1e-12)


SCHEDULED: dict[str, dict[str, object]] = {
    "noam": {"schedule": Noam(warmup=3)},
    "cosine": {"lr": 0.1, "schedule": Cosine(warmup=2, minimum=0.01)},
    "linear": {"lr": 0.1, "schedule": LinearDecay()},
    "constant": {"lr": 0.1, "schedule": Constant(warmup=4)},
}


@pytest.mark.parametrize("name", SCHEDULED)
def test_a_step_moves_the_weights_by_the_rate_of_its_number_and_logs_it(name: str, tmp_path: Path) -> None:
    """Plain SGD: what a step takes off a weight is rate times gradient, so the rate shows in the weights."""
    steps, bundle = 6, toy_bundle(dropout=0.0, dtype=torch.float64)
    training = Training(steps=steps, optimizer=SGD(), clip=None, save_every=1, keep=99, **SCHEDULED[name])
    width = bundle.spec.tower.width
    wanted = [training.schedule.rate(n, peak=0.1, steps=steps, width=width) for n in range(1, steps + 1)]
    assert len(set(wanted[:4])) == 4, "one rate for all steps would prove nothing"
    twin = OptimizerStep(toy_bundle(dropout=0.0, dtype=torch.float64).model, Toy(), training, width)
    Trainer(bundle, Toy(), training, tmp_path).run()
    assert [record["lr"] for record in read_log(tmp_path)] == wanted
    for step, (path, rate) in enumerate(zip(checkpoints(tmp_path).values(), wanted, strict=True), 1):
        twin.compute_gradients(step, 1.0, never)
        after = read_weights(bundle, path)
        with torch.no_grad():
            for parameter_name, parameter in twin.parameters.items():
                assert_close(after[parameter_name], parameter - rate * parameter.grad)
                parameter.copy_(after[parameter_name])


def test_only_matrices_and_tables_decay() -> None:
    model = toy_bundle().model
    decayed, spared = parameter_groups(model, 0.1)
    assert decayed["weight_decay"] == 0.1 and spared["weight_decay"] == 0.0
    names = {id(p): name for name, p in model.named_parameters()}
    assert len(decayed["params"]) + len(spared["params"]) == len(names)
    for name in (names[id(p)] for p in spared["params"]):
        assert "norm" in name or name.endswith("bias")
    for name in (names[id(p)] for p in decayed["params"]):
        assert name.endswith("weight") and "norm" not in name


def test_frozen_parameters_stay_and_a_model_of_them_alone_is_refused(tmp_path: Path) -> None:
    bundle = toy_bundle()
    table = bundle.model.tower.embed.table.weight.requires_grad_(False)
    before = table.clone()
    Trainer(bundle, Toy(), Training(steps=2, lr=0.1, ema=0.5), tmp_path / "a").run()
    assert torch.equal(before, table)
    bundle.model.requires_grad_(False)
    with pytest.raises(TrainError, match="all are frozen"):
        Trainer(bundle, Toy(), Training(steps=2), tmp_path / "b").run()


def test_a_part_without_targets_adds_nothing_and_a_step_without_any_is_refused() -> None:
    class Hollow(Toy):
        def batch(self, step: int, micro: int) -> Rows:
            rows = super().batch(step, 0)
            return Rows(rows.ids_BT, rows.real_BT & (micro in full))

    model = toy_bundle(dropout=0.0).model
    update = OptimizerStep(model, Hollow(), Training(steps=1, micro=2), 16)
    full = {1}
    assert math.isfinite(update.run(1, TrainingState(), never).loss)
    full = set()
    with pytest.raises(TrainError, match="step 1 has no real target in any of its 2 batches"):
        update.run(1, TrainingState(), never)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_half_precision_learns_and_the_weights_stay_whole(precision: str, tmp_path: Path) -> None:
    bundle = toy_bundle(dropout=0.0)

    class Once(Toy):
        def batch(self, step: int, micro: int) -> Rows:
            return super().batch(1, micro)

    training = Training(steps=12, lr=1e-2, precision=precision)
    Trainer(bundle, Once(), training, tmp_path).run()
    losses = [record["loss"] for record in read_log(tmp_path)]
    assert losses[-1] < losses[0] - 0.3
    assert next(bundle.model.parameters()).dtype == torch.float32
    exact = toy_bundle(dropout=0.0)
    Trainer(exact, Once(), Training(steps=12, lr=1e-2), tmp_path / "exact").run()
    wanted = [record["loss"] for record in read_log(tmp_path / "exact")]
    assert wanted[0] != losses[0]
    assert max(abs(one - two) for one, two in zip(losses, wanted, strict=True)) < 0.03


def test_float16_takes_the_step_again_at_a_smaller_scale() -> None:
    update = OptimizerStep(toy_bundle().model, Toy(), Training(steps=1, precision="float16"), 16)
    state = TrainingState(scale=2.0**30)
    measured = update.run(1, state, never)
    assert state.retried > 0 and state.scale == 2.0 ** (30 - state.retried)
    plain = OptimizerStep(toy_bundle().model, Toy(), Training(steps=1), 16).run(1, TrainingState(), never)
    assert abs(measured.grad_norm - plain.grad_norm) < 0.05 * plain.grad_norm


class Poisoned(Toy):
    """Not a number: in the loss of a part, or in the gradient of one parameter, at step 3."""

    where = "loss"

    def loss(self, model: nn.Module, batch: Rows) -> Tensor:
        loss = super().loss(model, batch)
        if not self.bad:
            return loss
        if self.where == "loss":
            return loss * math.nan
        weight = model.get_parameter(self.where)
        return loss + _Poison.apply(weight).sum()

    def batch(self, step: int, micro: int) -> Rows:
        self.bad = step == 3 and micro == self.parts - 1
        return super().batch(step, micro)


class _Poison(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return x * 0

    @staticmethod
    def backward(ctx: object, grad: Tensor) -> Tensor:
        return torch.full_like(grad, math.inf)


@pytest.mark.parametrize("where", ["loss", "tower.blocks.1.ff.up.weight"])
def test_a_number_that_is_not_finite_stops_before_the_weights_change(where: str, tmp_path: Path) -> None:
    good = toy_bundle()
    Trainer(good, Toy(parts=2), Training(steps=2, micro=2), tmp_path / "good").run()
    bundle, task = toy_bundle(), Poisoned(parts=2)
    task.where = where
    with pytest.raises(TrainingStopped) as caught:
        Trainer(bundle, task, Training(steps=9, micro=2), tmp_path / "bad").run()
    assert hash_of(bundle.model) == hash_of(good.model)
    assert (caught.value.step, caught.value.tensor) == (3, where)
    message = str(caught.value)
    assert "\n" not in message and message.startswith(
        f"step 3: {where} is {'nan' if where == 'loss' else 'inf'};"
    )
    for word in (
        "learning rate: 0.0003",
        "warm-up: 0 steps, of 9",
        "Layer in pre order",
        "gradient norm",
        "in tower.",
    ):
        assert word in message, word
    assert set(caught.value.checks) == {"learning rate", "warm-up", "norm", "init"}
    # The last good state was saved.
    healthy = toy_bundle()
    Trainer(healthy, Toy(parts=2), Training(steps=9, micro=2), tmp_path / "bad").run()
    straight = toy_bundle()
    Trainer(straight, Toy(parts=2), Training(steps=9, micro=2), tmp_path / "straight").run()
    assert hash_of(healthy.model) == hash_of(straight.model)


def test_a_norm_that_overflows_is_named_when_every_gradient_is_finite() -> None:
    update = OptimizerStep(toy_bundle().model, Toy(), Training(steps=1), 16)
    before = hash_of(update.model)

    class Huge(Toy):
        def loss(self, model: nn.Module, batch: Rows) -> Tensor:
            return super().loss(model, batch) * 1e30

    update.task = Huge()
    with pytest.raises(NonFiniteError, match="the norm of all gradients is inf"):
        update.run(1, TrainingState(), never)
    assert hash_of(update.model) == before


def test_dropout_is_a_function_of_seed_step_and_part() -> None:
    class Same(Toy):
        def batch(self, step: int, micro: int) -> Rows:
            return super().batch(1, 0)

    def loss(seed: int, step: int, micro: int = 1) -> float:
        update = OptimizerStep(
            toy_bundle(0.5).model.train(), Same(), Training(steps=9, seed=seed, micro=micro), 16
        )
        return update.compute_gradients(step, 1.0, never).loss

    assert loss(0, 1) == loss(0, 1)
    assert len({loss(0, 1), loss(0, 2), loss(1, 1), loss(0, 1, micro=2)}) == 4
