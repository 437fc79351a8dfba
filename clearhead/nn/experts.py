"""Mixture of experts (Shazeer 2017): many feed-forward layers, of which each token passes through a few.

    scores_BTE = router(x_BTD)              one score per expert
    routing_BTE = the weights of the chosen experts, zero for all others, and for experts above their capacity
    output = sum of routing[e] * expert[e](x), and of the shared expert, if there is one

Shape suffixes: B batch, T tokens, K all tokens (cached ones first), D width, E experts, C chosen experts,
N all tokens of the batch in one row.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import SpecError
from ..spec import Count, Rate, Spec
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
    """How the experts of a token are chosen and weighted: by the highest scores of a linear layer.

    With a `capacity` an expert takes that many tokens of a text, the first ones that chose it; later ones
    skip it, and the residual stream alone carries them on. A token then depends on the tokens of its text
    before it, never on padding or on other texts of its row. Decoding with a cache counts the cached tokens,
    so that a text has the same numbers token by token and in one pass. (transformers counts the tokens of
    each call: a text decoded with its cache never reaches the capacity, and the same text in one pass does.)
    """

    chosen: Count = 2  # experts per token
    scores: Literal["softmax", "sigmoid"] = "softmax"
    normalised: bool = True  # the weights of the chosen experts sum to one
    scale: float = 1.0  # on the weights (DeepSeek)
    bias: bool = False  # of the linear layer (gpt-oss)
    # A number per expert that is added to the scores for the choice only, not learned by gradients: training
    # raises it for experts that get too few tokens (Wang 2024, DeepSeek-V3).
    balanced: bool = False
    groups: ExpertGroups | None = None
    capacity: Count | None = None  # tokens of a text that one expert takes at most (Switch Transformers)
    jitter: Rate = 0.0  # in training, its input is multiplied with random numbers from 1 - this to 1 + this
    wide: bool = False  # computed in float32 even in a model of half precision (Switch Transformers)


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
        """Every token is computed by `chosen` experts; the parameters are those of all.

        How many tokens a capacity leaves out depends on the text: counted is the most that can be computed.
        """
        router = self.router
        routed = replace(shape, length=self._most_routed(shape.length))
        expert = self.expert.cost(routed)
        own = replace(expert, parameters=self.count * expert.parameters)
        cost = linear_cost(shape.vectors, shape.width, self.count, bias=router.bias) + own
        cost += PartCost(parameters=self.count * router.balanced)
        # For the backward pass: the scores; of each token and expert, where it went (twice), its weight, the
        # input of the expert, and its output before and after it is weighted.
        wide = max(shape.number, 4)
        kept = wide * shape.vectors * self.count + routed.vectors * (3 * INDEX_BYTES + wide)
        cost += PartCost(saved=kept + 3 * routed.bytes)
        if router.capacity is not None:  # a flag of each score: whether it is within the capacity
            cost += PartCost(saved=shape.vectors * self.count)
        if router.wide and shape.number < wide:  # its input in float32
            cost += PartCost(saved=wide * shape.vectors * shape.width)
        if router.jitter and shape.training:  # the noise, and the input multiplied with it
            cost += PartCost(saved=2 * shape.bytes)
        if self.shared is not None:
            cost += self.shared.cost(shape)
        if self.shared_gate:
            cost += linear_cost(shape.vectors, shape.width, 1, bias=False)
            cost += PartCost(saved=shape.bytes + 2 * shape.number * shape.vectors)
        return cost

    def _most_routed(self, length: int) -> int:
        """How many times a token of one text is computed by an expert, at most."""
        chosen, capacity = length * self.router.chosen, self.router.capacity
        return chosen if capacity is None else min(chosen, self.count * min(capacity, length))


@dataclass(frozen=True)
class RouterCall:
    """What a router decided in one call: its scores, and the experts that they chose before any capacity."""

    logits_BTE: Tensor
    scores_BTE: Tensor  # softmax or sigmoid of the logits
    chosen_BTC: Tensor  # numbers of experts
    real_BT: Tensor | None  # which tokens are not padding; None: all


class MixtureOfExperts(nn.Module):
    SITES = ("routing", "out")
    is_replayable: ClassVar[bool] = False  # which experts are called differs from step to step

    def __init__(self, spec: Experts, width: int) -> None:
        super().__init__()
        self.spec, self.router = spec, RouterModule(spec, width)
        self.experts = nn.ModuleList(spec.expert.build(width) for _ in range(spec.count))
        self.shared = spec.shared.build(width) if spec.shared else None
        self.shared_gate = LinearLayer(width, 1, bias=False) if spec.shared_gate else None
        for part in (*self.experts, self.shared):
            if part is not None:
                part.SITES = ()  # experts get some of the tokens only: their states have no place in a text

    def forward(self, x_BTD: Tensor, ctx: Context) -> Tensor:
        routing_BTE = ctx.tap("routing", self.router(x_BTD, ctx))
        inside = replace(ctx, tap=OFF)
        x_ND, routing_NE = x_BTD.flatten(0, 1), routing_BTE.flatten(0, 1).type_as(x_BTD)
        output_ND = torch.zeros_like(x_ND)
        for e, tokens in self._tokens_by_expert(routing_NE, x_BTD.shape[1]):
            computed = self.experts[e](x_ND[tokens][None], inside)[0]
            output_ND = output_ND.index_add(0, tokens, computed * routing_NE[tokens, e, None])
        output = output_ND.view_as(x_BTD)
        if self.shared is not None:
            shared = self.shared(x_BTD, inside)
            output = output + (
                shared if self.shared_gate is None else self.shared_gate(x_BTD).sigmoid() * shared
            )
        return ctx.tap("out", output)

    def _tokens_by_expert(self, routing_NE: Tensor, length: int) -> Iterator[tuple[int, Tensor]]:
        """Each expert that some token was routed to, with the indices of these tokens."""
        if routing_NE.is_meta:  # no values: to count, the first experts take all tokens that can be routed
            tokens = len(routing_NE)
            most = tokens // length * self.spec._most_routed(length)
            for e, taken in enumerate(range(0, most, tokens)):
                yield e, torch.arange(min(tokens, most - taken), device="meta")
            return
        for e in routing_NE.any(0).nonzero()[:, 0].tolist():
            yield e, routing_NE[:, e].nonzero()[:, 0]


class RouterModule(nn.Module):
    """Hidden states in, the weight of each expert for each token out; most are zero."""

    def __init__(self, spec: Experts, width: int) -> None:
        super().__init__()
        self.spec = spec.router
        self.linear = LinearLayer(width, spec.count, bias=spec.router.bias)
        self.linear.packs = not spec.router.wide
        self.balance = (
            nn.Parameter(torch.empty(spec.count), requires_grad=False) if spec.router.balanced else None
        )

    def forward(self, x_BTD: Tensor, ctx: Context) -> Tensor:
        spec, logits_BTE = self.spec, self._logits(x_BTD)
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
        real_BK = ctx.view.real_BK
        real_BT = None if real_BK is None else real_BK[:, ctx.view.start :]
        ctx.tap.record_routing(RouterCall(logits_BTE, scores, chosen, real_BT))
        routing_BTE = torch.zeros_like(scores).scatter(-1, chosen, weights)
        if spec.capacity is None:
            return routing_BTE
        chosen_BTE = torch.zeros_like(scores, dtype=torch.bool).scatter(-1, chosen, value=True)
        return routing_BTE.masked_fill(~_within_capacity(chosen_BTE, real_BT, spec.capacity, ctx), 0.0)

    def _logits(self, x_BTD: Tensor) -> Tensor:
        """One score per expert; in float32, if the model computes in less."""
        spec = self.spec
        if self.training and spec.jitter:
            x_BTD = x_BTD * torch.empty_like(x_BTD).uniform_(1 - spec.jitter, 1 + spec.jitter)
        if not spec.wide:
            return widen(self.linear(x_BTD))
        weight, bias = self.linear.matrix, self.linear.bias
        # Autocast would round the input of the product again.
        kind = x_BTD.device.type
        rounds = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
        with torch.autocast(kind, enabled=False) if rounds else nullcontext():
            return F.linear(widen(x_BTD), widen(weight), None if bias is None else widen(bias))


def _within_capacity(chosen_BTE: Tensor, real_BT: Tensor | None, capacity: int, ctx: Context) -> Tensor:
    """Which of the chosen experts still have room, if each takes the first `capacity` tokens of a text."""
    if real_BT is not None:
        chosen_BTE = chosen_BTE & real_BT[:, :, None]  # padding takes no room
    chosen_BKE = chosen_BTE if ctx.cache is None else ctx.cache.append_routed(chosen_BTE)
    count_BKE = chosen_BKE.long().cumsum(1)
    # The count goes on through all texts of a row: what it was before each text began is subtracted.
    starts_BK = (ctx.view.k_pos == 0).expand(len(chosen_BKE), -1)
    if ctx.view.real_BK is not None:
        starts_BK = starts_BK & ctx.view.real_BK  # padding has position 0 as well
    before_BKE = torch.where(starts_BK[:, :, None], count_BKE - chosen_BKE.long(), 0).cummax(1).values
    within_BKE = chosen_BKE & (count_BKE - before_BKE <= capacity)
    return within_BKE[:, ctx.view.start :]


def _best_groups(scores_BTE: Tensor, groups: ExpertGroups) -> Tensor:
    """The scores of the experts in the best groups; those of all others are minus infinity."""
    grouped = scores_BTE.reshape(*scores_BTE.shape[:-1], groups.count, -1)
    best = grouped.topk(min(groups.best, grouped.shape[-1]), dim=-1).values.sum(-1)
    allowed = torch.zeros_like(best, dtype=torch.bool)
    allowed = allowed.scatter(-1, best.topk(groups.chosen, dim=-1).indices, value=True)
    return grouped.masked_fill(~allowed[..., None], float("-inf")).flatten(-2)
