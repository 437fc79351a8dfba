"""Balance of experts: what the routers of a model decide in; auxiliary losses and new biases out.

Without it a router soon sends most tokens to a few experts, which learn the more and are chosen the more.
A task knows nothing of this: its loss is computed with a clone of the model, over the same weights, whose
routers report what they decided. (Reversible towers run as plain ones then, and keep their activations: what
a router reports must be part of the graph.)

Shape suffixes: B batch, T tokens, E experts, C chosen experts, N real tokens of the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ..lens import shallow_clone, with_tap
from ..nn import RouterCall, RouterModule, Tap, TransformerModel
from .settings import Training

ComputeLoss = Callable[[TransformerModel], Tensor]


@dataclass(frozen=True)
class RoutedLoss:
    """The loss of a micro-batch by a model with experts, and what its routers add to the mean loss."""

    task: Tensor  # the sum over the targets, as the task gives it
    router: Tensor  # the auxiliary losses, each times its coefficient
    metrics: Mapping[str, float]  # the auxiliary losses themselves, for the log
    load: Mapping[RouterModule, Tensor]  # how many real tokens chose each expert


class ExpertBalance:
    """Listens to the routers of a model while a task computes its loss."""

    def __init__(self, model: TransformerModel, training: Training) -> None:
        self.training = training
        self._routers = _routers(model)
        self._calls: list[tuple[RouterModule, RouterCall]] | None = None
        tap = Tap("", lambda _, x: x, on_routing=self._record)
        self._listening = with_tap(shallow_clone(model), tap)

    @classmethod
    def of(cls, model: TransformerModel, training: Training) -> ExpertBalance | None:
        """None for a model without experts."""
        return cls(model, training) if _routers(model) else None

    def loss(self, compute: ComputeLoss) -> RoutedLoss:
        """`compute` is given the model that reports; it is in training mode."""
        calls = self._calls = []
        try:
            task_loss = compute(self._listening.train())
        finally:
            # A layer that is recomputed in the backward pass decides nothing new; its report is not kept.
            self._calls = None
        aux = [load_balancing_loss(call) for _, call in calls]
        learned = [x for x, (router, _) in zip(aux, calls, strict=True) if router.balance is None]
        router_loss = _mean(learned) * self.training.router_aux_loss_coef
        metrics = {"router_aux_loss": float(_mean(aux).detach())}
        if self.training.router_z_loss_coef:
            z_loss = _mean([router_z_loss(call) for _, call in calls])
            metrics["router_z_loss"] = float(z_loss.detach())
            router_loss = router_loss + z_loss * self.training.router_z_loss_coef
        return RoutedLoss(task_loss, router_loss, metrics, _load(calls))

    @torch.no_grad()
    def update_biases(self, load: Mapping[RouterModule, Tensor]) -> None:
        """Raise the biases of experts with less than the mean load, lower the others (Wang 2024).

        `load` is that of the whole step. A frozen router keeps its biases.
        """
        for router, load_E in load.items():
            if router.balance is not None and router.linear.weight.requires_grad:
                error_E = (load_E.mean() - load_E).sign()
                router.balance.add_(error_E, alpha=self.training.router_bias_update_speed)

    def _record(self, address: str, call: RouterCall) -> None:
        if self._calls is not None:
            self._calls.append((self._routers[address], call))


def load_balancing_loss(call: RouterCall) -> Tensor:
    """experts * sum over the experts of (share of the choices) * (mean share of the scores), of real tokens.

    1 if all experts are used alike, up to the number of experts if one is used alone (Fedus 2021). With
    several experts per token it is that of Mixtral divided by their number, as in DeepSeek-V2.
    """
    scores_NE, chosen_NC = _real(call.scores_BTE, call), _real(call.chosen_BTC, call)
    shares_NE = scores_NE / scores_NE.sum(-1, keepdim=True)  # scores of a sigmoid do not sum to one
    count = scores_NE.shape[-1]
    load_E = _tokens_per_expert(chosen_NC, count) / chosen_NC.numel()
    return count * (load_E * shares_NE.mean(0)).sum()


def router_z_loss(call: RouterCall) -> Tensor:
    """The mean square of the log of the summed exponentials: small scores round less (Zoph 2022)."""
    return _real(call.logits_BTE, call).logsumexp(-1).square().mean()


def _real(x_BTX: Tensor, call: RouterCall) -> Tensor:
    """The values of the tokens that are not padding, in one row."""
    return x_BTX.flatten(0, 1) if call.real_BT is None else x_BTX[call.real_BT]


def _tokens_per_expert(chosen_NC: Tensor, count: int) -> Tensor:
    experts_E = torch.arange(count, device=chosen_NC.device)
    return (chosen_NC[..., None] == experts_E).sum((0, 1)).float()  # bincount is not deterministic on a GPU


def _load(calls: list[tuple[RouterModule, RouterCall]]) -> dict[RouterModule, Tensor]:
    """Of each router that has a bias, how many tokens chose each of its experts."""
    load: dict[RouterModule, Tensor] = {}
    for router, call in calls:
        if router.balance is not None:
            tokens_E = _tokens_per_expert(_real(call.chosen_BTC, call), call.scores_BTE.shape[-1])
            load[router] = load[router] + tokens_E if router in load else tokens_E
    return load


def _routers(model: TransformerModel) -> dict[str, RouterModule]:
    """The routers by the address of their feed-forward layer, shared ones at each of their places."""
    modules = model.named_modules(remove_duplicate=False)
    return {name.removesuffix(".router"): m for name, m in modules if isinstance(m, RouterModule)}


def _mean(losses: list[Tensor]) -> Tensor:
    """Over the layers; 0 without any."""
    return torch.stack(losses).mean() if losses else torch.zeros(())
