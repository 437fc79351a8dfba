"""Several adapters in one batch: adapters over one model in; a model whose rows have one each, or none, out.

LoRA matrices of all adapters stand side by side: one product makes the narrow vectors of all of them, and a
row keeps those of its own. Factors (IA3, the lengths of DoRA) are tables with a line for each adapter. The
base is read once for all rows.

    shared = SharedAdapters(model, {"fr": tuned_model, "de": another})
    shared.model_of(["fr", None, "de"])           # for one call, or one run of a decoder

Shape suffixes: B rows, A adapters and none, S sum of ranks, I inputs, O outputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..nn import LinearLayer, TokenLogits, TransformerModel, generator
from .ia3 import ScaleAdapter
from .linear import LayerAdapter, TunedLayer, WithAdapter, tuned_layer
from .lora import LoraAdapter
from .targets import linear_layers
from .tree import replace_modules, second_tree
from .tuning import TunedModel

PROBE_ROWS, PROBE_LENGTH = 3, 5


class AdapterRows:
    """The number of the adapter of each row of a batch. It follows when rows are repeated or reordered."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self.number_B = torch.tensor(numbers)

    def reorder(self, rows: Tensor) -> None:
        """Continue with these rows; with as many as before in place, as a captured decode step expects."""
        chosen = self.number_B[rows.to(self.number_B.device)]
        if len(chosen) == len(self.number_B):
            self.number_B.copy_(chosen)
        else:
            self.number_B = chosen

    def of(self, x: Tensor) -> Tensor:
        """The numbers for an input; adjacent rows may be one row of it, as beams are in cross-attention."""
        if self.number_B.device != x.device:
            self.number_B = self.number_B.to(x.device)
        return self.number_B[:: len(self.number_B) // len(x)]


class RowAdapter(LayerAdapter):
    """The adapters that one layer has, chosen by row."""

    kind = "rows"
    rows: AdapterRows  # of this run

    def __init__(self, layer: LinearLayer | TokenLogits, adapters: Sequence[LayerAdapter | None]) -> None:
        """`adapters` are those of this layer, None for an adapter that leaves it alone."""
        super().__init__()
        loras = [(n, each) for n, each in enumerate(adapters) if isinstance(each, LoraAdapter)]
        self.down_SI, self.up_OS, self.own_AS = _side_by_side(loras, len(adapters) + 1)
        lengths = {n: each.length_ratio(layer) for n, each in loras if each.magnitude is not None}
        scales = [(n, each) for n, each in enumerate(adapters) if isinstance(each, ScaleAdapter)]
        self.ratio_AO = _table(lengths, len(adapters) + 1)
        self.in_AI = _table({n: each.scale for n, each in scales if each.side == "in"}, len(adapters) + 1)
        self.out_AO = _table({n: each.scale for n, each in scales if each.side == "out"}, len(adapters) + 1)

    def before(self, x: Tensor) -> Tensor:
        return x if self.in_AI is None else x * self._of_rows(self.in_AI, x).to(x.dtype)

    def after(self, x: Tensor, y: Tensor, layer: TunedLayer) -> Tensor:
        added: Tensor | None = None
        if self.down_SI is not None and self.up_OS is not None and self.own_AS is not None:
            narrow = F.linear(x.to(self.down_SI.dtype), self.down_SI) * self._of_rows(self.own_AS, x)
            added = F.linear(narrow, self.up_OS)
        if self.ratio_AO is not None and added is not None:
            ratio = self._of_rows(self.ratio_AO, x)
            alone = y if layer.bias is None else y - layer.bias
            added = (ratio - 1) * alone + ratio * added
        y = y if added is None else y + added.to(y.dtype)
        return y if self.out_AO is None else y * self._of_rows(self.out_AO, x).to(y.dtype)

    def _of_rows(self, table_AN: Tensor, x: Tensor) -> Tensor:
        """The lines of the table for the rows of `x`, to be multiplied with vectors of `x`."""
        lines = table_AN[self.rows.of(x)]
        return lines.reshape(len(lines), *(1,) * (x.ndim - 2), lines.shape[-1])


def _side_by_side(
    loras: Sequence[tuple[int, LoraAdapter]], count: int
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """All `down` below each other, all scaled `up` beside each other, and whose columns these are."""
    downs, ups, owners = list[Tensor](), list[Tensor](), list[int]()
    for number, lora in loras:
        for down, up in lora.factors():
            downs.append(down)
            ups.append(up)
            owners += [number] * len(down)
    if not downs:
        return None, None, None
    own_AS = torch.arange(count)[:, None] == torch.tensor(owners)
    return torch.cat(downs), torch.cat(ups, dim=1), own_AS.to(downs[0].device, downs[0].dtype)


def _table(lines: Mapping[int, Tensor], count: int) -> Tensor | None:
    """The lines by number, ones where there is none."""
    if not lines:
        return None
    first = next(iter(lines.values()))
    return torch.stack([lines.get(number, torch.ones_like(first)).detach() for number in range(count)])


class SharedAdapters:
    """A model with all adapters that can share a batch; `names` are those, in the order of their numbers.

    Their values are copied: what is trained later is not seen here.
    """

    @torch.no_grad()
    def __init__(self, model: TransformerModel, tuned: Mapping[str, TunedModel]) -> None:
        rows_first = _layers_by_row(model)
        self.names = [name for name, each in tuned.items() if _is_by_row(model, each, rows_first)]
        self._template = second_tree(model)
        layers = linear_layers(self._template)
        changes: dict[nn.Module, nn.Module] = {}
        for address, layer in layers.items():
            own = [_adapter_at(tuned[name].model, address) for name in self.names]
            if any(each is not None for each in own):
                changes[layer] = by_row = tuned_layer(layer, RowAdapter(layer, own))
                by_row.differs_by_row = True
        replace_modules(self._template, changes)

    def model_of(self, names: Sequence[str | None]) -> TransformerModel:
        """A model whose first row has the first of these adapters, and so on; for one call or one run."""
        numbers = {name: number for number, name in enumerate(self.names)}
        rows = AdapterRows([len(self.names) if name is None else numbers[name] for name in names])
        model = second_tree(self._template)
        for module in model.modules():
            if isinstance(module, RowAdapter):
                module.rows = rows
        model.row_order = rows
        return model


def _adapter_at(model: TransformerModel, address: str) -> LayerAdapter | None:
    layer = model.get_submodule(address)
    return layer.adapter if isinstance(layer, WithAdapter) else None


@torch.no_grad()
def _layers_by_row(model: TransformerModel) -> set[str]:
    """The linear layers whose input has the rows of the batch first: not experts, nor tables of positions."""
    found, other = set[str](), set[str]()
    tree = second_tree(model)
    for address, layer in linear_layers(tree).items():

        def note(module: nn.Module, inputs: tuple[Tensor, ...], address: str = address) -> None:
            (found if len(inputs[0]) == PROBE_ROWS else other).add(address)

        layer.register_forward_pre_hook(note)
    spec = model.spec
    towers = list(spec.towers.values())[: spec.inputs]
    device = next(model.parameters()).device
    length = min(PROBE_LENGTH, spec.max_length or PROBE_LENGTH)
    inputs = [t.embed.example(PROBE_ROWS, length, generator(0, "rows", i)) for i, t in enumerate(towers)]
    tree(*(x.to(device) for x in inputs))
    return found - other


def _is_by_row(base: TransformerModel, tuned: TunedModel, rows_first: set[str]) -> bool:
    """Whether all that was learned is in adapters of linear layers that are applied row by row."""
    layers = linear_layers(tuned.model)
    hit = {address for address, layer in layers.items() if isinstance(layer, WithAdapter)}
    inside = tuple(f"{address}.{layers[address].kind}." for address in hit)
    return hit <= rows_first and all(name.startswith(inside) for name in tuned.tuning.trained)
