"""Bottleneck adapters: two narrow layers with an activation beside a sub-layer, whose output they add to.

    output    h + scale * up(act(down(h)))      Houlsby 2019: reads the output h of the sub-layer
    sum       h + scale * up(act(down(u)))      Pfeiffer 2020: reads the stream with h, u = norm(x + h)
    input     h + scale * up(act(down(x)))      parallel (He 2021): reads the stream before the sub-layer

In a post-norm block the norm in `u` is that of the block, which is used twice; in others u = x + h. `scale`
is a number, and a further factor may be learned: one, or one for each channel.

Shape suffixes: D width of the stream, R width of the bottleneck.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from ..errors import InputError, nearest, quoted
from ..nn import (
    ACTIVATIONS,
    Activation,
    BlockModule,
    Context,
    Dropout,
    TransformerModel,
    generator,
    training_linear,
)
from ..patterns import NamePattern
from ..spec import Positive, Rate
from .linear import adapter_dtype
from .names import ModelNames
from .tree import replace_modules, take_over
from .tuning import Attachment, Tuning

BottleneckInput = Literal["output", "sum", "input"]
LearnedScale = Literal["none", "one", "channels"]


@dataclass(frozen=True, kw_only=True)
class Bottleneck(Tuning):
    """Two narrow layers beside each sub-layer that `targets` names. They start as nothing added."""

    unit: ClassVar[str] = "sub-layer"
    rate: ClassVar[float] = 10.0

    reduction: Positive = 16.0  # how many times narrower than the model the bottleneck is
    targets: str | tuple[str, ...] = "*.{attn,cross,ff}"  # patterns of sub-layers; *.ff: one for each layer
    reads: BottleneckInput = "output"  # the sub-layer's output, the stream with it, or the stream before it
    act: Activation = "relu"
    scale: Positive = 1.0  # of what is added
    dropout: Rate = 0.0  # on what is added
    reduction_pattern: tuple[tuple[str, Positive], ...] = ()  # other reductions, by pattern of sub-layers
    reads_pattern: tuple[tuple[str, BottleneckInput], ...] = ()  # other inputs, by pattern of sub-layers
    learned_scale: LearnedScale = "none"  # a factor that learns and starts at 1: one, or one for each channel

    def reads_of(self, name: str) -> BottleneckInput:
        """What the bottleneck of a sub-layer reads."""
        for pattern, reads in self.reads_pattern:
            if NamePattern(pattern, anywhere=True).matches(name):
                return reads
        return self.reads

    def width_of(self, name: str, width: int) -> int:
        """The width of the bottleneck of a sub-layer, in a model of this width."""
        for pattern, reduction in self.reduction_pattern:
            if NamePattern(pattern, anywhere=True).matches(name):
                return max(1, int(width // reduction))
        return max(1, int(width // self.reduction))

    def attach(self, model: TransformerModel, names: ModelNames, seed: int) -> Attachment:
        hit = sublayers_named(model, self.targets)
        changes: dict[nn.Module, nn.Module] = {}
        for address, block in blocks_of(model).items():
            width = model.stacks[address.partition(".")[0]].spec.width
            own = {step: f"{address}.{step}" for step in block.steps if f"{address}.{step}" in hit}
            if own:
                made = {step: self._module(block, width, name, seed) for step, name in own.items()}
                changes[block] = BlockWithBottlenecks(block, made)
        replace_modules(model, changes)
        return Attachment(layers=tuple(hit))

    def _module(self, block: BlockModule, width: int, name: str, seed: int) -> BottleneckModule:
        like = next(block.parameters())
        module = BottleneckModule(
            self, self.reads_of(name), width, self.width_of(name, width), generator(seed, "tune", name)
        )
        return module.to(like.device, adapter_dtype(like))


def blocks_of(model: TransformerModel) -> dict[str, BlockModule]:
    """The layers of every tower by their addresses; one that several share by the first of these."""
    return {name: module for name, module in model.named_modules() if isinstance(module, BlockModule)}


def sublayers_named(model: TransformerModel, targets: str | Sequence[str]) -> list[str]:
    """The addresses of the sub-layers that these patterns name; a pattern that names none is an error."""
    known = {f"{address}.{name}": None for address, block in blocks_of(model).items() for name in block.steps}
    patterns = (targets,) if isinstance(targets, str) else targets
    found = set[str]()
    for pattern in patterns:
        hit = NamePattern(pattern, anywhere=True).among(known) if pattern else []
        if not hit:
            ends = {name.rpartition(".")[2] for name in known}
            raise InputError(
                f"target {quoted(pattern)} matches no sub-layer; "
                f"{nearest(pattern.rpartition('.')[2], [*ends, *known])}"
            )
        found.update(hit)
    if not found:
        raise InputError("Bottleneck has no targets; name sub-layers, such as '*.{attn,ff}' or '*.ff'")
    return [name for name in known if name in found]


class BottleneckModule(nn.Module):
    def __init__(
        self, spec: Bottleneck, reads: BottleneckInput, width: int, narrow: int, key: torch.Generator
    ) -> None:
        super().__init__()
        self.reads, self.scale = reads, spec.scale
        self.act, self.dropout = ACTIVATIONS[spec.act], Dropout(spec.dropout)
        edge = width**-0.5
        self.down = nn.Parameter(torch.empty(narrow, width).uniform_(-edge, edge, generator=key))
        self.down_bias = nn.Parameter(torch.zeros(narrow))
        self.up = nn.Parameter(torch.zeros(width, narrow))
        self.up_bias = nn.Parameter(torch.zeros(width))
        sizes = {"none": 0, "one": 1, "channels": width}
        size = sizes[spec.learned_scale]
        self.learned_scale = nn.Parameter(torch.ones(size)) if size else None

    def forward(self, x_BTD: Tensor) -> Tensor:
        """What is added to the output of the sub-layer."""
        product = training_linear if self.training else nn.functional.linear
        narrow_BTR = self.act(product(x_BTD.to(self.down.dtype), self.down, self.down_bias))
        added: Tensor = product(narrow_BTR, self.up, self.up_bias)
        added = added if self.scale == 1.0 else added * self.scale
        added = added if self.learned_scale is None else added * self.learned_scale
        added = self.dropout(added) if self.training else added
        return added.to(x_BTD.dtype)


class BlockWithBottlenecks(BlockModule):
    """A layer whose sub-layers have bottlenecks: `attn_bottleneck`, `cross_bottleneck`, `ff_bottleneck`."""

    def __init__(self, block: BlockModule, bottlenecks: Mapping[str, BottleneckModule]) -> None:
        take_over(self, block)
        self.SITES = (*block.SITES, *(f"{name}.bottleneck" for name in bottlenecks))
        for name, bottleneck in bottlenecks.items():
            self.add_module(f"{name}_bottleneck", bottleneck.train(block.training))

    def sublayer(self, name: str, read: Tensor, ctx: Context) -> Tensor:
        output = super().sublayer(name, read, ctx)
        bottleneck = self._modules.get(f"{name}_bottleneck")
        if not isinstance(bottleneck, BottleneckModule):
            return output
        given = output
        if bottleneck.reads == "input":
            given = read
        elif bottleneck.reads == "sum":
            given = read + output
            given = getattr(self, f"{name}_norm")(given) if self.order == "post" else given
        return output + ctx.tap("bottleneck", bottleneck(given))

    def sublayer_parameters(self, name: str) -> Iterator[nn.Parameter]:
        yield from super().sublayer_parameters(name)
        bottleneck = self._modules.get(f"{name}_bottleneck")
        if bottleneck is not None:
            yield from bottleneck.parameters()
