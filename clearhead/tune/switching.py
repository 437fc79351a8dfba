"""Switching parts of a change off: two models and parts in; the model after, with these parts as before, out.

    switch_off(pair_models(base, tuned), [part, ...])

The result is a tree of its own over the weights of both models, which do not change: it decodes, is traced
and scored like any other. With all parts off it is the model before, bit for bit, with none the model after.

Shape suffixes: B batch, H heads, Q query slots, K key slots.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from ..nn import BlockModule, Context, Mask, Model, MultiHead, PrefixModule, Stack, TransformerModel, View
from .bottleneck import Bottleneck
from .head_slices import MixedColumns, MixedRows, mixed_attention, repeated_heads, repeats_keys
from .linear import WithAdapter
from .lora import Lora
from .parts import BESIDE_SUBLAYER, STACK_PARTS, ModelPart, PairedModels, differ
from .tree import second_tree
from .tuning import AttachedTuning, Tuning

ModuleT = TypeVar("ModuleT", bound=nn.Module)


class SwitchedModel(NamedTuple):
    model: TransformerModel
    spec: Model


def switch_off(paired: PairedModels, off: Collection[ModelPart]) -> SwitchedModel:
    """The model after, in which these parts, with all in them, compute as in the model before."""
    return PartSwitches(paired).off(off)


class PartSwitches:
    """Makes models with parts switched off, one after the other; what does not change they have in common."""

    def __init__(self, paired: PairedModels) -> None:
        self.paired = paired
        self.before, self.after = second_tree(paired.before), second_tree(paired.after)

    def off(self, parts: Collection[ModelPart]) -> SwitchedModel:
        paired = self.paired
        done = {part.address for part in paired.parts if any(part.is_in(other) for other in parts)}
        done |= _sublayers_without_rest(paired, done)
        outer = [part for part in paired.parts if part.layer is None or part.is_layer]
        done |= {part.address for part in outer if part.is_layer and _is_all_off(paired, part, done)}
        if all(part.address in done for part in outer):
            model = self.before if done else self.after
            return SwitchedModel(model, model.spec)
        model = _with_own_stacks(self.after)
        for part in outer:
            if part.layer is None and part.address in done:
                _take(model, self.before, part)
        for tower, stack in model.stacks.items():
            _switch_layers(paired, self.before.stacks[tower], stack, tower, done)
            if stack.spec is not model.spec.tower_fields[tower]:
                model.spec = replace(model.spec, **{tower: stack.spec})
        return SwitchedModel(model, model.spec)


def _with_own_stacks(model: TransformerModel) -> TransformerModel:
    """A copy of the outermost modules: the model and its stacks."""
    clone = _shallow(model)
    for tower in clone.stacks:
        setattr(clone, tower, _shallow(clone.stacks[tower]))
    return clone


def _shallow(module: ModuleT) -> ModuleT:
    clone = copy.copy(module)
    clone._modules = dict(module._modules)
    return clone


def _sublayers_without_rest(paired: PairedModels, done: Collection[str]) -> set[str]:
    """Sub-layers of which all heads are off, and in which nothing else differs."""
    found = set()
    for (tower, i, step), pair in paired.pairs.items():
        address = f"{tower}.blocks.{i}.{step}"
        heads = [f"{address}.heads.{h}" for h in range(pair.heads)]
        if heads and not pair.rest_differs and all(head in done for head in heads):
            found.add(address)
    return found


def _is_all_off(paired: PairedModels, layer: ModelPart, done: Collection[str]) -> bool:
    """Whether a layer is named, or all in it that differs."""
    if layer.address in done:
        return True
    inside = [part for part in paired.parts if part.is_sublayer and part.is_in(layer)]
    pairs = [pair for (tower, i, _), pair in paired.pairs.items() if (tower, i) == (layer.tower, layer.layer)]
    positions = any(differ(pair.before.positions, pair.after.positions) for pair in pairs)
    return not positions and all(part.address in done for part in inside)


def _take(model: TransformerModel, before: TransformerModel, part: ModelPart) -> None:
    """Take a part that is in no layer from the model before, and its choice in the spec."""
    name = part.address.rpartition(".")[2]
    if not part.tower:
        setattr(model, name, getattr(before, name))
        model.spec = replace(model.spec, **{name: getattr(before.spec, name)})
        return
    stack, other = model.stacks[part.tower], before.stacks[part.tower]
    setattr(stack, name, getattr(other, name))
    field: dict[str, Any] = {STACK_PARTS[name]: getattr(other.spec, STACK_PARTS[name])}
    stack.spec = replace(stack.spec, **field)


def _switch_layers(
    paired: PairedModels, before: Stack, stack: Stack, tower: str, done: Collection[str]
) -> None:
    blocks: list[nn.Module] = list(stack.blocks)
    hidden = dict[tuple[int, str], Tensor]()  # heads that see no virtual tokens, by layer and step
    for i, (one, two) in enumerate(zip(before.blocks, stack.blocks, strict=True)):
        assert isinstance(one, BlockModule) and isinstance(two, BlockModule)
        address = f"{tower}.blocks.{i}"
        for step in two.steps:
            pair = paired.pairs[tower, i, step]
            off = [address in done or f"{address}.{step}" in done or f"{address}.{step}.heads.{h}" in done
                   for h in range(pair.heads or 1)]  # fmt: skip
            if pair.prefix and any(off):
                hidden[i, step] = torch.tensor(off)
        if address in done:
            blocks[i] = one
        else:
            blocks[i] = _mixed_block(paired, one, two, address, done)
    stack.blocks = nn.ModuleList(blocks)
    if hidden:
        _hide_prefix(paired, stack, tower, hidden)
    if isinstance(stack.virtual, PrefixModule):
        _repeat_prefix(stack)


def _mixed_block(
    paired: PairedModels, before: BlockModule, after: BlockModule, address: str, done: Collection[str]
) -> BlockModule:
    """A copy of the layer after, with sub-layers and heads of the layer before."""
    changes: dict[str, nn.Module | None] = {}
    tower, _, number = address.split(".")
    for step in after.steps:
        pair = paired.pairs[tower, int(number), step]
        if f"{address}.{step}" in done and pair.differs:
            for name in (step, *(f"{step}_{each}" for each in BESIDE_SUBLAYER)):
                changes[name] = before._modules.get(name)
            continue
        heads = frozenset(h for h in range(pair.heads) if f"{address}.{step}.heads.{h}" in done)
        one, two = getattr(before, step), getattr(after, step)
        if heads and isinstance(one, MultiHead) and isinstance(two, MultiHead):
            changes[step] = mixed_attention(one, two, heads)
    if not changes:
        return after
    mixed = _shallow(after)
    mixed._modules |= changes
    return mixed


def _hide_prefix(
    paired: PairedModels, stack: Stack, tower: str, hidden: dict[tuple[int, str], Tensor]
) -> None:
    """Hide the virtual tokens from these heads; from all heads: take them away."""
    with_prefix = [key for key, pair in paired.pairs.items() if key[0] == tower and pair.prefix]
    if all((i, step) in hidden and bool(hidden[i, step].all()) for _, i, step in with_prefix):
        stack.virtual, stack.spec = None, replace(stack.spec, virtual=None)
        return
    assert isinstance(stack.virtual, PrefixModule)
    stack.virtual = PartlyHiddenPrefix(stack.virtual, hidden)


def _repeat_prefix(stack: Stack) -> None:
    """Where heads were given keys of their own, each has its virtual tokens, too."""
    assert isinstance(stack.virtual, PrefixModule)
    stack.virtual = prefix = _shallow(stack.virtual)
    for step, lists in (("attn", ("keys", "values")), ("cross", ("cross_keys", "cross_values"))):
        repeats = [repeats_keys(getattr(block, step, None)) for block in stack.blocks]
        if not any(each > 1 for each in repeats):
            continue
        for name in lists:
            own: Sequence[nn.Parameter] = list(getattr(prefix, name))
            new = [repeated_heads(p, len(p), each) for p, each in zip(own, repeats, strict=False)]
            prefix._modules[name] = nn.ParameterList(nn.Parameter(p, requires_grad=False) for p in new)


def fewer_targets(tuning: AttachedTuning, off: Sequence[ModelPart]) -> Tuning | None:
    """The tuning without the layers in these parts; None where that would not be the same.

    So with heads, with parameters of the model itself that learn, and with tunings without such targets.
    """
    outer = [part for part in off if part.head is None]
    in_layers = all(part.layer is not None for part in outer)
    whole = all(any(part.is_in(other) for other in outer) for part in off)
    if not isinstance(tuning.value, Lora | Bottleneck) or not in_layers or not whole:
        return None
    inside = tuple(f"{part.address}{end}" for part in outer for end in ("", "."))
    dropped = [name for name in tuning.layers if name in inside or name.startswith(inside[1::2])]
    adapters = tuple(f"{name}{end}" for name in dropped for end in (".lora.", "_bottleneck."))
    beside = tuple(f"{part.address}{end}" for part in outer for end in (".", "_"))
    learned = [name for name in tuning.trained if name.startswith(beside)]
    left = tuple(name for name in tuning.layers if name not in dropped)
    if not left or not all(name.startswith(adapters) for name in learned):
        return None
    exclude = {"exclude": ()} if isinstance(tuning.value, Lora) else {}
    return replace(tuning.value, targets=left, **exclude)  # type: ignore[arg-type]


def has_tuned_parts(model: TransformerModel) -> bool:
    """Whether something of a tuning is in the model: adapters, or layers put together from two models."""
    kinds = (WithAdapter, MixedRows, MixedColumns)
    return any(isinstance(m, kinds) or getattr(m, "beside", False) for m in model.modules())


def skip_layers(model: TransformerModel, known: Mapping[str, Tensor], part: ModelPart) -> TransformerModel:
    """The model, whose layers before this part are not computed again: `known` are their outputs by address.

    For one input, and a model that differs from the one that gave these outputs in this part alone.
    """
    plain = all(s.spec.residual == "plain" and s.spec.pooling is None for s in model.stacks.values())
    if part.layer is None or not plain:
        return model
    clone = _with_own_stacks(model)
    for tower, stack in clone.stacks.items():
        count = part.layer if tower == part.tower else len(stack.blocks)
        blocks = list(stack.blocks)
        for i in range(count):
            blocks[i] = KnownLayer(blocks[i], known.get(f"{tower}.blocks.{i}") if i == count - 1 else None)
        stack.blocks = nn.ModuleList(blocks)
        if tower == part.tower:
            break
    return clone


class KnownLayer(nn.Module):
    """A layer whose output is known; without one, it is not needed."""

    def __init__(self, block: nn.Module, output: Tensor | None) -> None:
        super().__init__()
        self.positions, self.output = block.positions, output

    def forward(self, x: Tensor, ctx: Context) -> Tensor:
        return x if self.output is None else self.output


class PartlyHiddenPrefix(PrefixModule):
    """A prefix that some heads of some layers do not see."""

    def __init__(self, prefix: PrefixModule, hidden: dict[tuple[int, str], Tensor]) -> None:
        nn.Module.__init__(self)
        self._modules = dict(prefix._modules)
        self.length, self.cross_length, self.hidden = prefix.length, prefix.cross_length, hidden

    def before(self, layer: int, ctx: Context, begin: Any) -> Context:
        ctx = super().before(layer, ctx, begin)
        if (layer, "attn") in self.hidden:
            # Virtual tokens have the first positions, wherever they stand; a cache keeps these.
            virtual_BK = ctx.view.k_pos < self.length
            mask = HiddenKeys(virtual_BK, self.hidden[layer, "attn"].to(virtual_BK.device))
            ctx = replace(ctx, view=_with_rule(ctx.view, mask))
        if (layer, "cross") in self.hidden and ctx.encoder_view is not None:
            slots_1K = torch.arange(ctx.encoder_view.keys, device=ctx.encoder_view.k_pos.device)[None]
            off_H = self.hidden[layer, "cross"].to(slots_1K.device)
            mask = HiddenKeys(slots_1K < self.cross_length, off_H)
            ctx = replace(ctx, encoder_view=_with_rule(ctx.encoder_view, mask))
        return ctx


def _with_rule(view: View, rule: Mask) -> View:
    """The view with one more rule, which holds for global tokens, too."""
    return replace(view, mask=view.mask & rule, _restricted={}, _attn_masks={})


@dataclass(frozen=True, eq=False)
class HiddenKeys(Mask):
    """Some heads do not attend to some keys; with one entry, none does."""

    key_BK: Tensor  # (1 or B, K)
    off_H: Tensor

    def allows(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        row = b if len(self.key_BK) > 1 else torch.zeros_like(b)
        off_1H = self.off_H.reshape(1, -1, *(1,) * (k.ndim - 2))
        return ~(self.key_BK[row, k] & off_1H) | (q < 0)
