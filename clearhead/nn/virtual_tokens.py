"""Virtual tokens: learned vectors before every text, which every token of it may attend to.

    PromptTokens    vectors in the place of embeddings, for all layers to compute (prompt tuning, Lester 2021)
    PrefixTokens    keys and values in every layer of attention (prefix tuning, Li 2021)

They have positions like other tokens, 0 to `length` - 1, and the text goes on from there. They stand directly
before the first real token, so that padding on the left changes nothing, and every packed text has its own.
Keys of a prefix are not rotated. A cache holds them like those of any token: they come with its first call.

Shape suffixes: B batch, T tokens, N tokens and virtual tokens, P virtual tokens, D width, H key/value heads,
K keys, E head width.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import torch
from torch import Tensor, nn

from ..errors import SpecError, UnsupportedError
from ..spec import Amount, Bounds, Spec
from .block import BlockModule
from .cache import KV
from .context import Context, States
from .cost import PartCost
from .embed import Embedding
from .experts import Router
from .masks import Documents, Everyone, Mask, Padding, segment_positions
from .multi_head import MultiHead
from .virtual_masks import Behind, BehindPacked

if TYPE_CHECKING:
    from .stack import Stack
    from .tower import Tower


VirtualLength = Annotated[int, Bounds(1, 4096, "a whole number from 1 to 4,096")]


class VirtualTokens(Spec):
    """The spec of virtual tokens. `length` is their number."""

    length: int

    def check_tower(self, tower: Tower) -> None:
        """Raise a one-line error for a tower that cannot have them."""
        if tower.pooling is not None:
            raise SpecError(f"a tower that pools its tokens takes no {type(self).__name__}")

    def build(self, stack: Stack) -> VirtualTokensModule:
        raise NotImplementedError

    def cost(self, tower: Tower) -> PartCost:
        """Their parameters; what they add to the length of texts is counted by the tower."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class PromptTokens(VirtualTokens):
    length: VirtualLength

    def check_tower(self, tower: Tower) -> None:
        super().check_tower(tower)
        if tower.embed.needs_whole_text:
            raise SpecError("PromptTokens are for embeddings that do not depend on the whole text")

    def build(self, stack: Stack) -> VirtualTokensModule:
        return PromptModule(self, stack.spec)

    def cost(self, tower: Tower) -> PartCost:
        return PartCost(parameters=self.length * tower.embed.vector_width(tower.width))


@dataclass(frozen=True, kw_only=True)
class PrefixTokens(VirtualTokens):
    """`cross` more come before the encoder output in cross-attention."""

    length: VirtualLength
    cross: Amount = 0

    def check_tower(self, tower: Tower) -> None:
        super().check_tower(tower)
        if tower.residual == "reversible":
            raise SpecError("a reversible tower cannot train PrefixTokens; take PromptTokens")
        if any(isinstance(node, Router) and node.capacity for node in tower.nodes()):
            raise SpecError("experts with a capacity count tokens; they take PromptTokens, no PrefixTokens")
        if self.cross and not all(block.cross for block in tower.pattern):
            raise SpecError("PrefixTokens.cross is for towers with cross-attention")

    def build(self, stack: Stack) -> VirtualTokensModule:
        return PrefixModule(self, stack)

    def cost(self, tower: Tower) -> PartCost:
        numbers = 0
        for i in range(tower.depth):
            block = tower.pattern[tower.weights_of_layers[i] % len(tower.pattern)]
            numbers += self.length * block.attention.cached_per_token(tower.width)
            if block.cross is not None:
                numbers += self.cross * block.cross.cached_per_token(tower.width)
        return PartCost(parameters=numbers)


@dataclass(frozen=True)
class Placement:
    """Where virtual tokens stand: for each place a token of the text, or, below zero, a virtual one.

    The virtual tokens are -1, -2, ... in their order.
    """

    count: int  # virtual tokens of a text
    slot_BN: Tensor  # (1 or B, N)
    segment_BN: Tensor | None  # of each place; None if all are of one text
    place_BT: Tensor | None = None  # the place of each token; None: behind the virtual ones, in its order
    has_empty: bool = (
        False  # whether some row has only padding yet, so that more may stand behind its virtual ones
    )

    @staticmethod
    def of(segment_BT: Tensor | None, length: int, count: int, device: torch.device) -> Placement:
        """`segment_BT` is the text that each token belongs to, below zero for padding."""
        virtual = -1 - torch.arange(count, device=device)
        if segment_BT is None:
            return Placement(count, torch.cat([virtual, torch.arange(length, device=device)])[None], None)
        real_BT = segment_BT >= 0
        first_BT = real_BT & (segment_positions(segment_BT) == 0)
        place_BT = torch.arange(length, device=device) + count * first_BT.cumsum(1)
        places = length + count * max(1, int(first_BT.sum(1).max()))
        slot_BN = torch.zeros(len(segment_BT), places, dtype=torch.long, device=device)
        new_BN = torch.full_like(slot_BN, -1)  # behind the last token is padding
        slot_BN.scatter_(1, place_BT, torch.arange(length, device=device).expand_as(place_BT))
        new_BN.scatter_(1, place_BT, segment_BT)
        row, token = first_BT.nonzero(as_tuple=True)
        begins, texts = place_BT[row, token] - count, segment_BT[row, token]
        # A row that has only padding yet: its text begins in a later call.
        empty = (~real_BT.any(1)).nonzero()[:, 0]
        row = torch.cat([row, empty])
        begins = torch.cat([begins, torch.full_like(empty, length)])
        texts = torch.cat([texts, torch.zeros_like(empty)])
        there = row[:, None], begins[:, None] + torch.arange(count, device=device)
        slot_BN[there], new_BN[there] = virtual.expand(len(row), -1), texts[:, None].expand(-1, count)
        return Placement(count, slot_BN, new_BN, place_BT, has_empty=len(empty) > 0)

    def join(self, virtual: Tensor, x: Tensor) -> Tensor:
        """Virtual tokens (1 or B, ..., P, E) and tokens (B, ..., T, E) in their places, (B, ..., N, E)."""
        both = torch.cat([virtual.to(x.dtype).expand(len(x), *virtual.shape[1:]), x], dim=-2)
        if self.place_BT is None:
            return both
        index_BN = torch.where(self.slot_BN < 0, -1 - self.slot_BN, self.slot_BN + self.count)
        index = index_BN.reshape(len(x), *(1,) * (x.ndim - 3), -1, 1)
        return both.gather(-2, index.expand(*both.shape[:-2], -1, both.shape[-1]))

    def take(self, x_BND: Tensor) -> Tensor:
        """The tokens of the text, (B, T, ...)."""
        if self.place_BT is None:
            return x_BND[:, self.count :]
        index_BT = self.place_BT.reshape(*self.place_BT.shape, *(1,) * (x_BND.ndim - 2))
        return x_BND.gather(1, index_BT.expand(-1, -1, *x_BND.shape[2:]))


@dataclass(frozen=True)
class Beginning:
    """The first call of a text with virtual tokens: what the layers compute, and with which mask."""

    x_BTD: Tensor
    mask: Mask
    placement: Placement
    segment_BT: Tensor | None  # of the tokens of the text
    types_BT: Tensor | None = None
    lead: int = 0  # virtual tokens that are keys and values alone

    @property
    def by_position(self) -> bool:
        """Whether virtual tokens stand apart from the texts that they belong to."""
        return self.placement.has_empty or isinstance(self.mask, BehindPacked)

    def end(self, states: States) -> States:
        """The states of the text; beside them, where virtual tokens have states, those of all."""
        own = replace(states, segment_BT=self.segment_BT)
        if self.lead:
            return own
        return replace(own, x_BTD=self.placement.take(states.x_BTD), whole=states)


class VirtualTokensModule(nn.Module):
    def begin(self, x_BTD: Tensor, rule: Mask, types_BT: Tensor | None, embed: Embedding) -> Beginning:
        """`rule` is the mask of the text."""
        raise NotImplementedError


class PromptModule(VirtualTokensModule):
    def __init__(self, spec: PromptTokens, tower: Tower) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(spec.length, tower.embed.vector_width(tower.width)))

    def begin(self, x_BTD: Tensor, rule: Mask, types_BT: Tensor | None, embed: Embedding) -> Beginning:
        segment_BT, packed = rule.segments(), _is_packed(rule)
        place = Placement.of(segment_BT, x_BTD.shape[1], len(self.table), x_BTD.device)
        x_BND = place.join(embed.complete(self.table[None].to(x_BTD.dtype), None), x_BTD)
        mask: Mask = Everyone()
        if place.segment_BN is not None:
            mask = Documents(place.segment_BN) if packed else Padding(place.segment_BN >= 0)
        for part in rule.parts():
            if not isinstance(part, Padding | Documents):
                mask = mask & Behind(part, place.slot_BN)
        if types_BT is not None:
            types_BT = place.join(types_BT.new_zeros(1, len(self.table), 1), types_BT[..., None])[..., 0]
        return Beginning(x_BND, mask, place, segment_BT, types_BT)


@dataclass(frozen=True)
class LayerPrefix:
    """The keys and values that a prefix puts before those of a layer."""

    k_1HPE: Tensor
    v_1HPE: Tensor
    placement: Placement

    def join(self, k_BHKE: Tensor, v_BHKE: Tensor) -> KV:
        return self.placement.join(self.k_1HPE, k_BHKE), self.placement.join(self.v_1HPE, v_BHKE)


class PrefixModule(VirtualTokensModule):
    """Keys and values for every layer, also for layers that share their other weights."""

    def __init__(self, spec: PrefixTokens, stack: Stack) -> None:
        super().__init__()
        self.length, self.cross_length = spec.length, spec.cross
        self.keys, self.values = nn.ParameterList(), nn.ParameterList()
        self.cross_keys, self.cross_values = nn.ParameterList(), nn.ParameterList()
        self.alone: str | None = None  # a kernel whose texts cannot share a prefix
        for block in stack.blocks:
            assert isinstance(block, BlockModule)
            own, cross = block.attn, block.cross if block.has_cross else None
            _require_attention(block)
            assert isinstance(own, MultiHead)
            self.alone = own.kernel.name if own.kernel.counts_slots else self.alone
            _add_parameters(self.keys, self.values, own, self.length)
            if cross is not None and self.cross_length:
                _add_parameters(self.cross_keys, self.cross_values, cross, self.cross_length)

    def begin(self, x_BTD: Tensor, rule: Mask, types_BT: Tensor | None, embed: Embedding) -> Beginning:
        segment_BT, length = rule.segments(), x_BTD.shape[1]
        if segment_BT is not None and _is_packed(rule):
            # Queries of all texts are in one row of keys, so they share one prefix at its beginning.
            if self.alone is not None:
                raise UnsupportedError(
                    f"packed texts share a prefix, far from most of them, and {self.alone} attention counts "
                    f"the tokens between; give each text a row of its own, or take PromptTokens"
                )
            place = Placement.of(None, length, self.length, x_BTD.device)
            packed = BehindPacked(rule, place.slot_BN)
            return Beginning(x_BTD, packed, place, segment_BT, types_BT, self.length)
        place = Placement.of(segment_BT, length, self.length, x_BTD.device)
        mask: Mask = Everyone() if place.segment_BN is None else Padding(place.segment_BN >= 0)
        for part in rule.parts():
            if not isinstance(part, Padding):
                mask = mask & Behind(part, place.slot_BN)
        return Beginning(x_BTD, mask, place, segment_BT, types_BT, self.length)

    def before(self, layer: int, ctx: Context, begin: Beginning | None) -> Context:
        """The context of a layer with its keys and values: in the first call, later ones find them cached."""
        if begin is not None:
            own = LayerPrefix(self.keys[layer][None], self.values[layer][None], begin.placement)
            ctx = replace(ctx, prefix=own)
        if not self.cross_length or ctx.encoder_output is None:
            return ctx
        k, v = self.cross_keys[layer][None], self.cross_values[layer][None]
        place = Placement.of(None, ctx.encoder_output.shape[1], self.cross_length, k.device)
        return replace(ctx, cross_prefix=LayerPrefix(k, v, place))


def _require_attention(block: BlockModule) -> None:
    """Raise a one-line error for a layer with a token mixer that takes no keys before the text."""
    own, beside = block.attn, block._modules.get("aside")
    mixers = [own, *([] if beside is None else [beside])]
    other = next((x for x in mixers if not isinstance(x, MultiHead) or not x.takes_prefix), None)
    if other is not None:
        kind = type(getattr(other, "kernel", other)).__name__.lstrip("_").removesuffix("Kernel")
        raise UnsupportedError(
            f"PrefixTokens need attention that takes further keys before a text, and {kind} does not; take "
            f"PromptTokens, or a layer with Softmax"
        )
    assert isinstance(own, MultiHead)
    own.require({"uneven"})


def _add_parameters(
    keys: nn.ParameterList, values: nn.ParameterList, attention: MultiHead, length: int
) -> None:
    heads, key_width, value_width = attention.cached_sizes
    keys.append(nn.Parameter(torch.empty(heads, length, key_width)))
    values.append(nn.Parameter(torch.empty(heads, length, value_width)))


def _is_packed(rule: Mask) -> bool:
    return any(isinstance(part, Documents) for part in rule.parts())
