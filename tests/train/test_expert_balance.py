"""Experts in training: the auxiliary losses of the references, for every task; biases; resuming."""

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from small_tasks import MODELS
from tolerance import assert_close
from torch import Tensor
from toy import Toy, full_training, hash_of, remains
from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func as mixtral_loss
from transformers.models.switch_transformers.modeling_switch_transformers import (
    load_balancing_loss_func as switch_loss,
)
from transformers.models.switch_transformers.modeling_switch_transformers import router_z_loss_func
from zoo import CHOICES, single

import clearhead as ch
from clearhead import nn as cn
from clearhead.nn.model import Model
from clearhead.tasks import input_tokens
from clearhead.train import Trainer, Training, expert_balance, read_log
from clearhead.train.expert_balance import load_balancing_loss, router_z_loss
from clearhead.train.optimizer_step import OptimizerStep
from clearhead.train.state import TrainingState

ROUTED = {name: change["block"] for name, change in CHOICES.items() if "xperts" in name}


def with_experts(spec: Model, **router: object) -> Model:
    experts = cn.Experts(count=4, expert=cn.MLP(hidden=12), router=cn.Router(**router))
    return spec.edit(cn.Block, feedforward=experts)


def never() -> bool:
    return False


def routed_call(chosen: int, lengths: tuple[int, ...]) -> tuple[cn.RouterCall, Tensor]:
    """A call with padding in front of some texts, and its logits."""
    logits = torch.randn(len(lengths), max(lengths), 5, generator=torch.Generator().manual_seed(1))
    real = torch.arange(max(lengths)) >= max(lengths) - torch.tensor(lengths)[:, None]
    scores = logits.softmax(-1)
    return cn.RouterCall(logits, scores, scores.topk(chosen).indices, real), logits


@pytest.mark.parametrize("chosen", [1, 2, 3])
def test_the_loss_is_that_of_mixtral_over_the_experts_of_a_token(chosen: int) -> None:
    call, logits = routed_call(chosen, (4, 9, 7))
    theirs = mixtral_loss((logits.flatten(0, 1),), 5, chosen, call.real_BT.long())
    assert_close(load_balancing_loss(call), theirs / chosen)
    call, logits = replace(call, real_BT=None), logits
    assert_close(load_balancing_loss(call), mixtral_loss((logits.flatten(0, 1),), 5, chosen) / chosen)


def test_one_text_has_the_losses_of_switch_transformers() -> None:
    """Theirs is a mean over texts, and counts padding; of one text it is the same number."""
    call, logits = routed_call(1, (9,))
    assert_close(load_balancing_loss(call), switch_loss(call.scores_BTE, logits.argmax(-1)))
    assert_close(router_z_loss(call), router_z_loss_func(logits))


def test_padding_has_no_part_in_the_losses() -> None:
    call, logits = routed_call(2, (4, 9, 7))
    real = call.real_BT
    alone = cn.RouterCall(logits[real][None], call.scores_BTE[real][None], call.chosen_BTC[real][None], None)
    assert_close(load_balancing_loss(call), load_balancing_loss(alone))
    assert_close(router_z_loss(call), router_z_loss(alone))


def test_the_loss_is_one_if_all_experts_are_used_alike() -> None:
    scores = torch.full((1, 8, 4), 0.25)
    even = cn.RouterCall(scores.log(), scores, (torch.arange(8) % 4)[None, :, None], None)
    assert float(load_balancing_loss(even)) == pytest.approx(1.0)
    one = torch.tensor([1.0, 0.0, 0.0, 0.0]).expand(1, 8, 4)
    assert float(load_balancing_loss(replace(even, scores_BTE=one, chosen_BTC=even.chosen_BTC * 0))) == 4.0


@pytest.mark.parametrize("name", MODELS)
def test_every_task_is_balanced_over_its_real_tokens(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No task knows of experts: each layer reports as many tokens as the batch has without its padding."""
    build, spec = MODELS[name]
    task, model = build(), with_experts(spec).build()
    step = OptimizerStep(model, task, Training(steps=1), 24)
    seen: list[int] = []
    real = expert_balance.load_balancing_loss

    def counted(call: cn.RouterCall) -> Tensor:
        seen.append(call.scores_BTE[..., 0].numel() if call.real_BT is None else int(call.real_BT.sum()))
        return real(call)

    monkeypatch.setattr(expert_balance, "load_balancing_loss", counted)
    for number in (1, 2, 3):
        seen.clear()
        metrics = step.compute_gradients(number, 1.0, never)
        depth = sum(tower.depth for tower in spec.towers.values())
        assert len(seen) == depth
        towers = seen[:: depth // len(spec.towers)]  # the layers of a tower report the same number
        assert sum(towers) == input_tokens(task.batch(number, 0))
        assert metrics.router_aux_loss > 0 and metrics.router_z_loss is None


@pytest.mark.parametrize("name", MODELS)
def test_the_loss_of_the_task_does_not_contain_it(name: str) -> None:
    build, spec = MODELS[name]
    runs = []
    for coef in (0.0, 1.0):
        model = with_experts(spec).build()
        step = OptimizerStep(model, build(), Training(steps=1, router_aux_loss_coef=coef), 24)
        runs.append((step.compute_gradients(1, 1.0, never), model))
    (without, plain), (with_it, balanced) = runs
    assert without == with_it
    for (name, p), q in zip(plain.named_parameters(), balanced.parameters(), strict=True):
        if name.endswith("router.linear.weight"):
            assert not torch.equal(p.grad, q.grad)


def gradients(spec: Model, parts: int = 1, **settings: Any) -> tuple[Any, dict[str, Tensor]]:
    model = spec.build(dtype=torch.float64)
    training = Training(steps=1, micro=parts, router_aux_loss_coef=0.5, router_z_loss_coef=0.1, **settings)
    step = OptimizerStep(model, Toy(parts=parts), training, 24)
    metrics = step.compute_gradients(1, 1.0, never)
    return metrics, {n: p.grad for n, p in model.named_parameters() if p.grad is not None}


def silent(name: str) -> Model:
    """A model without random numbers in training, so that two runs can be compared."""
    spec = single(causal=True, block=ROUTED[name]).edit(cn.Block, dropout=0.0)
    return spec.edit(cn.Tokens, dropout=0.0).edit(cn.Router, jitter=0.0)


@pytest.mark.parametrize("name", ROUTED)
def test_recomputed_layers_are_balanced_alike(name: str) -> None:
    plain, wanted = gradients(silent(name))
    again, got = gradients(silent(name).edit(cn.Tower, recompute=True))
    assert plain == again
    for parameter, grad in wanted.items():
        assert_close(got[parameter], grad)


@pytest.mark.parametrize("name", ROUTED)
def test_micro_batches_are_weighted_by_their_targets(name: str) -> None:
    """The mean over the step, of what each micro-batch gives alone."""
    spec, task = silent(name), Toy(parts=3)
    targets = [task.batch(1, micro).targets for micro in range(3)]
    assert len(set(targets)) > 1
    whole, grads = gradients(spec, parts=3)

    class Part(Toy):
        def batch(self, step: int, micro: int) -> Any:
            return super().batch(step, self.micro)

    alone, sums = [], {}
    for micro, count in enumerate(targets):
        part = Part(parts=3)
        part.micro = micro
        model = spec.build(dtype=torch.float64)
        training = Training(steps=1, router_aux_loss_coef=0.5, router_z_loss_coef=0.1)
        alone.append(OptimizerStep(model, part, training, 24).compute_gradients(1, 1.0, never))
        for n, p in model.named_parameters():
            if p.grad is not None:
                sums[n] = sums.get(n, 0.0) + p.grad * count / sum(targets)
    for field in ("loss", "router_aux_loss", "router_z_loss"):
        parts = (getattr(x, field) * n / sum(targets) for x, n in zip(alone, targets, strict=True))
        assert getattr(whole, field) == pytest.approx(sum(parts), abs=1e-12)
    for n, grad in grads.items():
        assert_close(grad, sums[n])


def test_a_loss_brings_experts_back_into_balance() -> None:
    """A router that prefers one expert; with the loss alone it learns to use the others."""
    losses = {}
    for coef in (0.0, 0.5):
        model = with_experts(single(causal=True), chosen=1, bias=True).build()
        for router in (m for m in model.modules() if isinstance(m, cn.RouterModule)):
            router.linear.bias.data[0] = 3.0
        step = OptimizerStep(model, Toy(), Training(steps=60, lr=1e-2, router_aux_loss_coef=coef), 24)
        model.train()
        history = [step.run(i, TrainingState(), never).router_aux_loss for i in range(1, 61)]
        losses[coef] = history[0], history[-1]
    assert losses[0.0][0] == losses[0.5][0] > 2
    assert losses[0.5][1] < 1.3 < losses[0.0][1]


def test_a_balancing_bias_follows_the_load_and_nothing_else() -> None:
    spec = with_experts(single(causal=True), scores="sigmoid", balanced=True, chosen=1)
    model = spec.build().train()
    step = OptimizerStep(model, Toy(parts=2), Training(steps=9, micro=2, router_bias_update_speed=0.25), 24)
    routers = [m for m in model.modules() if isinstance(m, cn.RouterModule)]
    for number in (1, 2, 3):
        before = [router.balance.clone() for router in routers]
        step.run(number, TrainingState(), never)
        for router, old in zip(routers, before, strict=True):
            load_E = step.load[router]
            real = sum(int(Toy(parts=2).batch(number, micro).real_BT.sum()) for micro in range(2))
            assert int(load_E.sum()) == real
            assert torch.equal(router.balance - old, 0.25 * (load_E.mean() - load_E).sign())
    assert not any(router.balance.requires_grad for router in routers)


def test_a_frozen_router_keeps_its_bias() -> None:
    model = with_experts(single(causal=True), balanced=True).build().train()
    for name, parameter in model.named_parameters():
        if ".router." in name:
            parameter.requires_grad = False
    OptimizerStep(model, Toy(), Training(steps=1), 24).run(1, TrainingState(), never)
    assert not any(m.balance.any() for m in model.modules() if isinstance(m, cn.RouterModule))


@pytest.mark.parametrize("router", [{"jitter": 0.2, "capacity": 2}, {"scores": "sigmoid", "balanced": True}])
@pytest.mark.parametrize("recompute", [False, True])
def test_a_resumed_run_is_the_run_itself(router: dict[str, Any], recompute: bool, tmp_path: Path) -> None:
    spec = with_experts(single(causal=True), **router).edit(cn.Tower, recompute=recompute)

    def run(folder: Path, stop: int | None = None) -> Any:
        def before(step: int, micro: int) -> None:
            if (step, micro) == (stop, 1):
                os.kill(os.getpid(), signal.SIGTERM)

        return Trainer(ch.build(spec), Toy(parts=2, before=before), full_training(), folder).run()

    assert run(tmp_path / "straight").status == "done"
    wanted = remains(tmp_path / "straight")
    assert all("router_aux_loss" in record for record in wanted["log"] if "split" not in record)
    for stop in (1, 7):
        assert run(tmp_path / str(stop), stop).status == "stopped"
        run(tmp_path / str(stop))
        assert remains(tmp_path / str(stop)) == wanted


def test_a_model_without_experts_is_trained_as_ever(tmp_path: Path) -> None:
    """No clone, no further number in the log, and the same bits whatever the coefficients are."""
    hashes = set()
    for coef in (0.0, 1.0):
        bundle, folder = ch.build(single(causal=True)), tmp_path / str(coef)
        Trainer(bundle, Toy(parts=2), full_training(router_aux_loss_coef=coef), folder).run()
        assert not any("router_aux_loss" in record for record in read_log(folder))
        hashes.add(hash_of(bundle.model))
    assert len(hashes) == 1
    assert OptimizerStep(bundle.model, Toy(), Training(steps=1), 24).balance is None


def test_a_reversible_tower_has_the_gradients_of_a_plain_graph() -> None:
    spec = with_experts(single(cn.TokenHead(vocab=31, tied=False), causal=True, positions=cn.Rope()))
    spec = spec.edit(cn.Tower, residual="reversible").edit(cn.Block, dropout=0.0).edit(cn.Tokens, dropout=0.0)
    model, task = spec.build(dtype=torch.float64).train(), Toy()
    settings = Training(steps=1, router_aux_loss_coef=0.5)
    OptimizerStep(model, task, settings, 24).compute_gradients(1, 1.0, never)
    got = {name: p.grad for name, p in model.named_parameters()}
    model.zero_grad()
    calls, batch = [], task.batch(1, 0)
    tap = cn.Tap("", lambda _, x: x, on_routing=lambda _, call: calls.append(call))
    logits = model(batch.ids_BT, batch.real_BT, tap=tap)[:, :-1][batch.real_BT[:, 1:]]
    targets = batch.ids_BT[:, 1:][batch.real_BT[:, 1:]]
    balance = torch.stack([load_balancing_loss(call) for call in calls]).mean()
    (torch.nn.functional.cross_entropy(logits, targets) + 0.5 * balance).backward()
    for name, parameter in model.named_parameters():
        assert_close(got[name], parameter.grad)
