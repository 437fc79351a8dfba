"""The module of a tower: inputs in, hidden states out; embedding, positions, blocks and the last norm.

Shape suffixes: B batch, T new tokens, K all tokens (cached ones first), D width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ..errors import InputError, SpecError
from . import mask_adapters
from .block import BlockModule
from .cache import Cache
from .context import Context, States
from .embed import check_ids
from .encoder_view import encoder_view
from .layer_positions import build_layer_positions
from .layers import LinearLayer
from .long import reversible
from .long.pooling import PooledLayers
from .masks import Causal, Everyone, Mask, Padding, has_bare_global, segment_positions
from .positions import BoundPositions
from .tap import OFF, Tap
from .view import View
from .virtual_tokens import Beginning, PrefixModule

if TYPE_CHECKING:
    from .tower import Tower


class Stack(nn.Module):
    SITES = ("embed", "out")

    def __init__(self, spec: Tower, encoder_width: int) -> None:
        super().__init__()
        self.spec, own = spec, spec.own_layers
        self.embed = spec.embed.build(spec.width)
        self.positions = spec.positions.build(spec.dims(), spec.embed.table_width(spec.width))
        blocks = [spec.pattern[i % len(spec.pattern)].build(spec.width, encoder_width) for i in range(own)]
        if spec.causal:
            for block in blocks:
                block.attn.require({"causal"})
        build_layer_positions(spec, blocks)
        # A shared layer is in the list once for each position, so every position has an address.
        self.weights_of_layers = spec.weights_of_layers
        self.blocks = nn.ModuleList(blocks[i] for i in self.weights_of_layers)
        if spec.pooling is not None and spec.pooling.pooled == "queries":
            for i in spec.pooling.before:
                self.blocks[i].attn.require({"uneven"})  # type: ignore[union-attr, operator]
        self.norm = spec.last_norm.build(spec.stream_width) if spec.last_norm else None
        self.project = (
            LinearLayer(spec.stream_width, spec.last_width, bias=False) if spec.last_width else None
        )
        self.virtual = spec.virtual.build(self) if spec.virtual else None
        if spec.residual == "reversible" and spec.positions.relative and list(self.positions.parameters()):
            raise SpecError(f"a reversible tower cannot train {type(spec.positions).__name__} in its scores")

    def forward(
        self,
        inputs: Tensor,
        *,
        mask: Mask | Tensor | None = None,
        types: Tensor | None = None,
        encoder_output: States | None = None,
        cache: Cache | None = None,
        tap: Tap = OFF,
    ) -> States:
        """The hidden states of the new tokens; `encoder_output` is for a decoder with cross-attention."""
        compared = types is not None and self.spec.positions.types > 0
        x = self.embed(inputs, None if compared and not getattr(self.spec.embed, "types", 0) else types)
        rule = _rule(mask, x, cache)
        begin: Beginning | None = None
        if self.virtual is not None and not (cache and cache.length):
            begin = self.virtual.begin(x, rule, types, self.embed)
            x, rule, types = begin.x_BTD, begin.mask, begin.types_BT
        view, segment_BK = self._view(x, rule, cache, begin)
        if types is not None and compared:
            view = self._with_types(view, types)
        segment_BT = None if segment_BK is None else segment_BK[:, view.start :]
        x = self.embed.rescale(x, inputs, segment_BT)
        x = tap("embed", self.embed.finish(self.positions.add(x, view.q_pos)))
        pooling = self.spec.pooling
        pooled = None if pooling is None else pooling.bind(view, segment_BK, self.spec.depth)
        # The view and the bound positions are computed once per call and shared by all layers.
        views = [view] * self.spec.depth if pooled is None else pooled.views
        context: Callable[..., Context] = Context
        prefix = self.virtual if isinstance(self.virtual, PrefixModule) else None
        if encoder_output is not None:
            cross = encoder_view(view, segment_BK, encoder_output, prefix.cross_length if prefix else 0)
            context = partial(context, encoder_output=encoder_output.x_BTD, encoder_view=cross)
        layers = [None] * len(self.blocks) if cache is None else cache.layers
        positions, blocks_tap = self.bound_positions(views), tap.at("blocks")
        contexts = [
            context(views[i], positions[i], layer=self.weights_of_layers[i], cache=kv, tap=blocks_tap.at(i))
            for i, kv in enumerate(layers)
        ]
        if prefix is not None:
            contexts = [prefix.before(i, here, begin) for i, here in enumerate(contexts)]
        x = self._run_blocks(x, contexts, pooled)
        x = tap("out", self.finish(x))
        states = States(x, segment_BT if pooled is None else pooled.segment_BT)
        return states if begin is None else begin.end(states)

    def finish(self, x_BTD: Tensor) -> Tensor:
        """The output for what the last layer returns."""
        x = x_BTD if self.norm is None else self.norm(x_BTD)
        return x if self.project is None else self.project(x)

    def bound_positions(self, views: Sequence[View]) -> list[BoundPositions]:
        """The positions of each layer; a scheme that several layers have is bound once for a view."""
        blocks: Sequence[BlockModule] = list(self.blocks)  # type: ignore[arg-type]
        schemes = [self.positions if block.positions is None else block.positions for block in blocks]
        pairs = list(zip(schemes, views, strict=True))
        bound = {(scheme, view): scheme.bind(view) for scheme, view in dict.fromkeys(pairs)}
        return [bound[pair] for pair in pairs]

    def _run_blocks(self, x: Tensor, contexts: Sequence[Context], pooled: PooledLayers | None) -> Tensor:
        if self.spec.residual == "reversible":
            return reversible.run_reversible(list(self.blocks), x, contexts)  # type: ignore[arg-type]
        for i, (block, here) in enumerate(zip(self.blocks, contexts, strict=True)):
            if pooled is not None:
                x, here = pooled.enter(i, x, here)
            if self.spec.recompute and torch.is_grad_enabled():
                x = checkpoint(block, x, here, use_reentrant=False)
            else:
                x = block(x, here)
        return x

    def _with_types(self, view: View, types_BT: Tensor) -> View:
        check_ids("types", types_BT, self.spec.positions.types)
        if types_BT.shape != (view.batch, view.keys):
            raise InputError(
                f"types are {tuple(types_BT.shape)}, the tokens {(view.batch, view.keys)}; this model takes "
                f"them for a whole text at once, without a cache"
            )
        return replace(view, q_types=types_BT, k_types=types_BT)

    def _view(
        self, x_BTD: Tensor, rule: Mask, cache: Cache | None, begin: Beginning | None
    ) -> tuple[View, Tensor | None]:
        """The mask and the positions of this call; and the segment (text) of each token, if known."""
        lead = begin.lead if begin else 0
        batch, length = len(x_BTD), lead + x_BTD.shape[1]
        if cache is not None and len(cache.layers) != self.spec.depth:
            have = len(cache.layers)
            raise InputError(f"the cache has {have} layers, the tower {self.spec.depth}")
        if cache is not None and self.spec.pooling is not None:
            raise InputError("a tower that pools reads a whole text at once; call it without a cache")
        start = 0 if cache is None else cache.length
        segment_BK, pos = rule.segments(), rule.positions()
        if pos is None:
            slots = torch.arange(start + length, device=x_BTD.device)[None]
            pos = slots if segment_BK is None else segment_positions(segment_BK)
        if cache is not None:
            new = None if segment_BK is None else segment_BK[:, start:] >= 0
            ones = torch.ones(batch, length, dtype=torch.bool, device=x_BTD.device)
            # Before any layer runs: a call that does not fit must not write into the cache.
            cache.add_tokens(ones if new is None else new)
        if self.spec.causal:
            rule = Causal() & rule
        room = 0 if cache is None or cache.capacity is None else cache.capacity - pos.shape[1]
        first, by_position = start + lead, begin is not None and begin.by_position
        if cache is not None:
            by_position = cache.by_position = cache.by_position or by_position
        view = View(rule, batch, pos[:, first:], pos, first, room, by_position=by_position)
        return view, segment_BK


def _rule(mask: Mask | Tensor | None, x_BTD: Tensor, cache: Cache | None) -> Mask:
    """The mask of a call over cached and new tokens."""
    batch, length = x_BTD.shape[:2]
    past_BK = cache.real_BK if cache is not None and cache.length else None
    if isinstance(mask, Tensor):
        return mask_adapters.from_model_mask(mask, batch, length, past_BK)
    rule = Everyone() if mask is None else mask
    if has_bare_global(rule):
        raise InputError(
            "Global alone allows no local attention; write Everyone() | Global(...) or "
            "mask_adapters.from_global_attention_mask(mask)"
        )
    keys = length if past_BK is None else past_BK.shape[1] + length
    rule.check_shape(batch, keys, keys)
    if past_BK is None or bool(past_BK.all()):
        return rule
    new_BT = past_BK.new_ones(batch, length)
    return rule & Padding(torch.cat([past_BK, new_BT], dim=1))
