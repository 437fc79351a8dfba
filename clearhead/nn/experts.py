"""Mixture of experts (Shazeer 2017): many feed-forward layers, of which each token passes through a few.

    scores_BTE = router(x_BTD)              one score per expert
    routing_BTE = the weights of the chosen experts, zero for all others
    output = sum of routing[e] * expert[e](x), and of the shared expert, if there is one

Shape suffixes: B batch, T tokens, D width, E experts, N all tokens of the batch in one row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from ..errors import SpecError
from ..spec import Count, Spec
from .context import Context
from .cost import INDEX_BYTES, HiddenShape, PartCost, linear_cost
from .feedforward import MLP, FeedForward, Gated
from .layers import LinearLayer
from .norm import widen
from .tap import OFF


@dataclass(frozen=True, kw_only=True)
class ExpertGroups(Spec):
    """Experts are chosen from the best groups only, so that a token reaches few devices (DeepSeek-V2)."""

    count: Count  # groups; each has the same number of experts
    chosen: Count  # how many of them a token may use
    best: Count = 1  # the score of a group is the sum of its best scores (DeepSeek-V3: 2)

    def check(self) -> None:
        if self.chosen > self.count:
            raise SpecError(f"ExpertGroups: {self.chosen} of {self.count} groups cannot be chosen")


@dataclass(frozen=True, kw_only=True)
class Router(Spec):
    """How the experts of a token are chosen and weighted: by the highest scores of a linear layer."""

    chosen: Count = 2  # experts per token
    scores: Literal["softmax", "sigmoid"] = "softmax"
    normalised: bool = True  # the weights of the chosen experts sum to one
    scale: float = 1.0  # on the weights (DeepSeek)
    bias: bool = False  # of the linear layer (gpt-oss)
    # A number per expert that is added to the scores for the choice only, not learned by gradients: training
    # raises it for experts that get too few tokens (Wang 2024, DeepSeek-V3).
    balanced: bool = False
    groups: ExpertGroups | None = None


@dataclass(frozen=True, kw_only=True)
class Experts(FeedForward):
    """Each token passes through the few experts that the router chooses, and through `shared`."""

    count: Count
    expert: MLP | Gated
    router: Router = field(default_factory=Router)
    shared: MLP | Gated | None = None  # an expert of every token (DeepSeekMoE)
    shared_gate: bool = False  # the shared expert is weighted by a sigmoid of its own (Qwen 2)

    def check(self) -> None:
        groups = self.router.groups
        if self.router.chosen > self.count:
            raise SpecError(f"the router chooses {self.router.chosen} of {self.count} experts")
        if groups and self.count % groups.count:
            raise SpecError(f"{self.count} experts cannot be divided into {groups.count} groups")
        if groups and groups.chosen * (self.count // groups.count) < self.router.chosen:
            raise SpecError(f"{groups.chosen} groups have fewer than {self.router.chosen} experts")
        if self.shared_gate and self.shared is None:
            raise SpecError("shared_gate weights the shared expert: set `shared`")

    def build(self, width: int) -> nn.Module:
        return MixtureOfExperts(self, width)

    @property
    def last_product_inputs(self) -> int:
        """That of the shared expert comes last; what is weighted is saved."""
        return 0 if self.shared is None or self.shared_gate else self.shared.last_product_inputs

    def cost(self, shape: HiddenShape) -> PartCost:
        """Every token is computed by `chosen` experts; the parameters are those of all."""
        router, chosen = self.router, self.router.chosen
        routed = replace(shape, length=shape.length * chosen)
        expert = self.expert.cost(routed)
        own = replace(expert, parameters=self.count * expert.parameters)
        cost = linear_cost(shape.vectors, shape.width, self.count, bias=router.bias) + own
        cost += PartCost(parameters=self.count * router.balanced)
        # For the backward pass: the scores; of each token and expert, where it went (twice), its weight, the
        # input of the expert, and its output before and after it is weighted.
        wide = max(shape.number, 4)
        kept = wide * shape.vectors * self.count + routed.vectors * (3 * INDEX_BYTES + wide)
        cost += PartCost(saved=kept + 3 * routed.bytes)
        if self.shared is not None:
            cost += self.shared.cost(shape)
        if self.shared_gate:
            cost += linear_cost(shape.vectors, shape.width, 1, bias=False)
            cost += PartCost(saved=shape.bytes + 2 * shape.number * shape.vectors)
        return cost


class MixtureOfExperts(nn.Module):
    SITES = ("routing", "out")
    is_replayable: ClassVar[bool] = False  # which experts are called differs from step to step

    def __init__(self, spec: Experts, width: int) -> None:
        super().__init__()
        self.router = RouterModule(spec, width)
        self.experts = nn.ModuleList(spec.expert.build(width) for _ in range(spec.count))
        self.shared = spec.shared.build(width) if spec.shared else None
        self.shared_gate = LinearLayer(width, 1, bias=False) if spec.shared_gate else None
        for part in (*self.experts, self.shared):
            if part is not None:
                part.SITES = ()  # experts get some of the tokens only: their states have no place in a text

    def forward(self, x_BTD: Tensor, ctx: Context) -> Tensor:
        routing_BTE = ctx.tap("routing", self.router(x_BTD))
        inside = replace(ctx, tap=OFF)
        x_ND, routing_NE = x_BTD.flatten(0, 1), routing_BTE.flatten(0, 1).type_as(x_BTD)
        output_ND = torch.zeros_like(x_ND)
        for e, tokens in self._tokens_by_expert(routing_NE):
            computed = self.experts[e](x_ND[tokens][None], inside)[0]
            output_ND = output_ND.index_add(0, tokens, computed * routing_NE[tokens, e, None])
        output = output_ND.view_as(x_BTD)
        if self.shared is not None:
            shared = self.shared(x_BTD, inside)
            output = output + (
                shared if self.shared_gate is None else self.shared_gate(x_BTD).sigmoid() * shared
            )
        return ctx.tap("out", output)

    def _tokens_by_expert(self, routing_NE: Tensor) -> Iterator[tuple[int, Tensor]]:
        """Each expert that some token was routed to, with the indices of these tokens."""
        if routing_NE.is_meta:  # no values: to count, some experts take all tokens
            yield from enumerate([torch.arange(len(routing_NE), device="meta")] * self.router.spec.chosen)
            return
        for e in routing_NE.any(0).nonzero()[:, 0].tolist():
            yield e, routing_NE[:, e].nonzero()[:, 0]


class RouterModule(nn.Module):
    """Hidden states in, the weight of each expert for each token out; most are zero."""

    def __init__(self, spec: Experts, width: int) -> None:
        super().__init__()
        self.spec = spec.router
        self.linear = LinearLayer(width, spec.count, bias=spec.router.bias)
        self.balance = (
            nn.Parameter(torch.empty(spec.count), requires_grad=False) if spec.router.balanced else None
        )

    def forward(self, x_BTD: Tensor) -> Tensor:
        spec, logits_BTE = self.spec, widen(self.linear(x_BTD))
        scores = logits_BTE.softmax(-1) if spec.scores == "softmax" else logits_BTE.sigmoid()
        choice = scores.detach() if self.balance is None else scores.detach() + self.balance
        if spec.groups is not None:
            choice = _best_groups(choice, spec.groups)
        chosen = choice.topk(spec.chosen, dim=-1).indices
        weights = scores.gather(-1, chosen)
        if spec.normalised:
            weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
        if spec.scale != 1.0:
            weights = weights * spec.scale
        return torch.zeros_like(scores).scatter(-1, chosen, weights)


def _best_groups(scores_BTE: Tensor, groups: ExpertGroups) -> Tensor:
    """The scores of the experts in the best groups; those of all others are minus infinity."""
    grouped = scores_BTE.reshape(*scores_BTE.shape[:-1], groups.count, -1)
    best = grouped.topk(min(groups.best, grouped.shape[-1]), dim=-1).values.sum(-1)
    allowed = torch.zeros_like(best, dtype=torch.bool)
    allowed = allowed.scatter(-1, best.topk(groups.chosen, dim=-1).indices, value=True)
    return grouped.masked_fill(~allowed[..., None], float("-inf")).flatten(-2)
