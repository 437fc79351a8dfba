"""The parts in which two models differ, such as a tuned model and its base: two models in; named parts out.

    tower.blocks.3                 a layer
    tower.blocks.3.attn            a sub-layer (attn, cross, ff) with its norms, bottleneck and prefix
    tower.blocks.3.attn.heads.7    a head: its rows of q, k and v, its columns of out, its prefix
    tower.embed, tower.norm, ...   what is in no layer
    head                           the output head

`switching.py` switches parts off, `energy.py` says how large their change is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..engine import preparation
from ..errors import InputError, nearest, quoted
from ..nn import (
    Block,
    BlockModule,
    LinearLayer,
    MultiHead,
    PrefixModule,
    Stack,
    TokenLogits,
    TransformerModel,
)
from ..patterns import NamePattern
from .head_slices import head_count, head_slices

# Of a tower, outside of its layers: the name of the module, and of the field of its spec.
STACK_PARTS = {"embed": "embed", "positions": "positions", "virtual": "virtual", "norm": "last_norm",
               "project": "last_width"}  # fmt: skip
HEAD_PARTS = ("head", "second")
BESIDE_SUBLAYER = ("norm", "after", "bottleneck")  # what a sub-layer has beside its module: attn_norm, ...

Modules = tuple[nn.Module | None, nn.Module | None]  # the same part of both models


@dataclass(frozen=True)
class ModelPart:
    """A part by its address; a layer has a tower and a number, a sub-layer also a step, a head a number."""

    address: str
    tower: str = ""
    layer: int | None = None
    step: str = ""
    head: int | None = None

    def is_in(self, other: ModelPart) -> bool:
        """Whether it is the other part, or inside it."""
        return self.address == other.address or self.address.startswith(f"{other.address}.")

    @property
    def is_layer(self) -> bool:
        return self.layer is not None and not self.step

    @property
    def is_sublayer(self) -> bool:
        return bool(self.step) and self.head is None


@dataclass(frozen=True)
class SubLayerPair:
    """A sub-layer of two models, and where they differ."""

    before: BlockModule
    after: BlockModule
    step: str
    prefix: bool  # whether only the model after has virtual tokens here
    differs: bool
    heads: int  # that can be told apart; 0 where nothing differs that is cut into heads
    rest_differs: bool  # whether something differs that is in no head: a norm, the bias of out

    @property
    def modules(self) -> list[Modules]:
        """The module of the sub-layer, and what stands beside it."""
        return _modules(self.before, self.after, self.step)


@dataclass(frozen=True)
class PairedModels:
    """Two models of the same layers, and the parts in which they differ, those in no layer first."""

    before: TransformerModel
    after: TransformerModel
    parts: tuple[ModelPart, ...]
    pairs: Mapping[tuple[str, int, str], SubLayerPair]  # by tower, layer and step

    def find(self, patterns: Sequence[str]) -> list[ModelPart]:
        """The parts that these patterns name, with all in them; a pattern that names none is an error."""
        found = set[ModelPart]()
        for pattern in patterns:
            wanted = NamePattern(pattern)
            hit = [part for part in self.parts if wanted.matches(part.address)]
            if not hit:
                if not self.parts:
                    raise InputError("the two models do not differ in any part")
                hint = nearest(pattern, [part.address for part in self.parts])
                raise InputError(f"the models do not differ in {quoted(pattern)}; {hint}")
            found.update(hit)
        return [part for part in self.parts if part in found]


def why_not_paired(before: TransformerModel, after: TransformerModel) -> str | None:
    """Why two models cannot be compared part by part; None if they can."""
    if before.stacks.keys() != after.stacks.keys():
        return f"one has {' and '.join(before.stacks)}, the other {' and '.join(after.stacks)}"
    for name, one in before.stacks.items():
        two = after.stacks[name]
        if not all(isinstance(getattr(model, name), Stack) for model in (before, after)):
            return "activations of one of them are replaced"
        shapes = [f"{stack.spec.depth} layers of width {stack.spec.width}" for stack in (one, two)]
        if shapes[0] != shapes[1]:
            return " and ".join(shapes)
        kinds = [(s.spec.residual, s.spec.pooling, s.spec.causal) for s in (one, two)]
        frames = [[(block.order, block.steps) for block in stack.blocks] for stack in (one, two)]
        if kinds[0] != kinds[1] or frames[0] != frames[1]:
            return "their layers are put together in other ways"
    return None


def pair_models(before: TransformerModel, after: TransformerModel) -> PairedModels:
    """Find the parts in which two models differ."""
    reason = why_not_paired(before, after)
    if reason is not None:
        raise InputError(f"the two models cannot be compared part by part: {reason}")
    outside = tuple(_outside_of_layers(before, after))
    pairs = {
        (tower, i, step): pair
        for tower, stack in after.stacks.items()
        for i, step, pair in _sublayers(before.stacks[tower], stack, _numbers(before) != _numbers(after))
    }
    return PairedModels(before, after, (*outside, *_parts_of_layers(pairs)), pairs)


def _numbers(model: TransformerModel) -> str:
    """The numbers that the products of a model are computed with."""
    done = preparation(model)
    stored = str(next(model.parameters()).dtype).removeprefix("torch.")
    return stored if done is None else done.precision


def _outside_of_layers(before: TransformerModel, after: TransformerModel) -> Iterator[ModelPart]:
    for tower, stack in after.stacks.items():
        other = before.stacks[tower]
        for name, field in STACK_PARTS.items():
            if name == "virtual" and _added_prefix(other, stack) is not None:
                continue  # a prefix is part of the layers
            same_choice = getattr(other.spec, field) == getattr(stack.spec, field)
            if not same_choice or differ(getattr(other, name), getattr(stack, name)):
                yield ModelPart(f"{tower}.{name}", tower)
    for name in HEAD_PARTS:
        if differ(getattr(before, name), getattr(after, name)):
            yield ModelPart(name)


def _parts_of_layers(pairs: Mapping[tuple[str, int, str], SubLayerPair]) -> Iterator[ModelPart]:
    layers: dict[tuple[str, int], list[ModelPart]] = {}
    for (tower, i, step), pair in pairs.items():
        if differ(pair.before.positions, pair.after.positions):
            layers.setdefault((tower, i), [])
        if pair.differs:
            address = f"{tower}.blocks.{i}.{step}"
            own = layers.setdefault((tower, i), [])
            own.append(ModelPart(address, tower, i, step))
            own += [ModelPart(f"{address}.heads.{h}", tower, i, step, h) for h in range(pair.heads)]
    for (tower, i), inside in layers.items():
        yield ModelPart(f"{tower}.blocks.{i}", tower, i)
        yield from inside


def _added_prefix(before: Stack, after: Stack) -> PrefixModule | None:
    return after.virtual if isinstance(after.virtual, PrefixModule) and before.virtual is None else None


def _sublayers(
    before: Stack,
    after: Stack,
    other_numbers: bool,  # noqa: FBT001 (one of two callers' facts)
) -> Iterator[tuple[int, str, SubLayerPair]]:
    prefix = _added_prefix(before, after)
    for i, (one, two) in enumerate(zip(before.blocks, after.blocks, strict=True)):
        assert isinstance(one, BlockModule) and isinstance(two, BlockModule)
        specs = [stack.spec.pattern[stack.weights_of_layers[i] % len(stack.spec.pattern)]
                 for stack in (before, after)]  # fmt: skip
        for step in two.steps:
            seen = prefix is not None and (step == "attn" or (step == "cross" and prefix.cross_length > 0))
            replaced = _choices(specs[0], step) != _choices(specs[1], step)
            yield (
                i,
                step,
                _pair(one, two, step, {"prefix": seen, "replaced": replaced, "numbers": other_numbers}),
            )


def _choices(block: Block, step: str) -> tuple[object, ...]:
    """What the spec of a layer says about a sub-layer."""
    own = {"attn": block.attention, "cross": block.cross, "ff": block.feedforward, "aside": block.aside}
    norm = block.attention_norm or block.norm if step == "attn" else block.norm
    return own[step], norm, block.scale


def _modules(before: BlockModule, after: BlockModule, step: str) -> list[Modules]:
    names = (step, *(f"{step}_{each}" for each in BESIDE_SUBLAYER))
    return [(getattr(before, name, None), getattr(after, name, None)) for name in names]


def _pair(one: BlockModule, two: BlockModule, step: str, facts: Mapping[str, bool]) -> SubLayerPair:
    """`facts`: whether a prefix is added, whether the spec says another choice, whether numbers differ."""
    own, *beside = _modules(one, two, step)
    numbers = facts["numbers"]
    rest = any(differ(*pair, numbers=numbers) for pair in beside)
    heads, cut = 0, False
    if isinstance(own[0], MultiHead) and isinstance(own[1], MultiHead) and not facts["replaced"]:
        heads = _common_heads(own[0], own[1])
    if heads and isinstance(own[0], MultiHead) and isinstance(own[1], MultiHead):
        slices = head_slices(own[1])
        children = [(name, child, own[1].get_submodule(name)) for name, child in own[0].named_children()]
        cut = any(differ(a, b, numbers=numbers) for name, a, b in children if name in slices)
        rest = rest or any(differ(a, b, numbers=numbers) for name, a, b in children if name not in slices)
        rest = rest or (cut and not torch.equal(_bias(own[0].out), _bias(own[1].out)))
    else:
        rest = rest or differ(*own, numbers=numbers)
    rest = rest or facts["replaced"]
    cut = cut or (facts["prefix"] and heads > 0)
    differs = rest or cut or facts["prefix"]
    return SubLayerPair(one, two, step, facts["prefix"], differs, heads if cut else 0, rest)


def _common_heads(one: MultiHead, two: MultiHead) -> int:
    """The number of heads, if both have the same, cut in the same way."""
    if type(one) is not type(two) or head_count(one) != head_count(two) or not head_count(two):
        return 0
    return head_count(two) if head_slices(one) == head_slices(two) else 0


@torch.no_grad()
def _bias(layer: LinearLayer) -> Tensor:
    """The bias that the layer adds, with its adapter: what it makes of zeros."""
    weight = next(layer.parameters())
    result: Tensor = layer(torch.zeros(1, layer.in_features, dtype=weight.dtype, device=weight.device))
    return result


def differ(before: nn.Module | None, after: nn.Module | None, *, numbers: bool = False) -> bool:
    """Whether two modules compute something else: other classes or parameters, products in other numbers."""
    if before is after:
        return False
    if before is None or after is None or type(before) is not type(after):
        return True
    if numbers and any(isinstance(module, LinearLayer | TokenLogits) for module in after.modules()):
        return True
    one, two = dict(before.named_parameters()), dict(after.named_parameters())
    return one.keys() != two.keys() or any(not _is_same(one[name], two[name]) for name in one)


def _is_same(one: Tensor, two: Tensor) -> bool:
    if one.shape != two.shape or one.dtype != two.dtype:
        return False
    return (one.data_ptr() == two.data_ptr() and one.stride() == two.stride()) or torch.equal(one, two)
