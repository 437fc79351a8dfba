"""Preparing: a model in; the same model out, its matrices packed for inference on this machine.

Packed are the linear layers of the blocks and the product with the vocabulary; layers over the same input
(q, k and v) become one product. The parameters stay where they are, so names, taps, edits and saving see the
model as it was: a weight mapped from a file costs no memory of its own. A layer whose weights changed since,
or that is asked for gradients, computes with the parameters.

A prepared model computes in float32 around its products: norms, positions, softmax, residuals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import InputError
from ..nn import EmbeddingTable, LinearLayer, Stack, TokenLogits, TransformerModel
from . import layout
from .choice import by_name, choose_product
from .int4 import Int4Product, quantize_groups
from .int8 import Int8Product, Int8Weights, quantize_rows
from .kept import KeptWeights, QuantizedMatrix, QuantizedWeights
from .precision import InferencePrecision, candidates, check_precision, int8_inputs
from .products import BoundProduct, FusedProduct, Pack, Product
from .stale import PackedWeights

PackProgress = Callable[[int, int], None]  # products packed, and of how many
CHECKED_AT_ONCE = 2**22  # weights


@dataclass
class Preparation:
    """What `prepare` did to a model: kept as its attribute, so that it can be undone."""

    precision: InferencePrecision
    products: list[Product] = field(default_factory=list)
    packed: PackedWeights = field(default_factory=PackedWeights)
    # Parameters that were stored in another number than float32, as they were.
    converted: dict[nn.Parameter, Tensor] = field(default_factory=dict)
    trainable: list[nn.Parameter] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        """The size of all packed matrices."""
        return sum(product.bytes for product in self.products)


@dataclass(frozen=True)
class _Group:
    """Layers over one input, packed as one matrix; a single layer is a group of one."""

    name: str  # the names of its weights, joined by commas
    layers: Sequence[LinearLayer | TokenLogits]
    weights: Sequence[Tensor]
    biases: Sequence[Tensor | None]

    @property
    def rows(self) -> list[int]:
        return [len(weight) for weight in self.weights]

    @property
    def shape(self) -> tuple[int, int]:
        return sum(self.rows), self.weights[0].shape[1]

    def weight(self) -> Tensor:
        """One matrix; a copy only where there are several."""
        return self.weights[0].detach() if len(self.weights) == 1 else torch.cat(list(self.weights)).detach()

    def bias(self) -> Tensor | None:
        """All biases concatenated, zeros for a layer without one; None if no layer has a bias."""
        if all(bias is None for bias in self.biases):
            return None
        return torch.cat(
            [
                weight.new_zeros(len(weight)) if bias is None else bias.detach()
                for weight, bias in zip(self.weights, self.biases, strict=True)
            ]
        )


def preparation(model: nn.Module) -> Preparation | None:
    """How the model was prepared; None if it was not."""
    found = getattr(model, "prepared", None)
    return found if isinstance(found, Preparation) else None


def is_quantized(model: nn.Module) -> bool:
    """Whether the model computes with weights in int8 or int4."""
    done = preparation(model)
    return done is not None and any(product.is_quantized for product in done.products)


@torch.no_grad()
def prepare_model(
    model: TransformerModel,
    precision: str,
    *,
    importance: Mapping[nn.Module, Tensor] | None = None,
    kept: KeptWeights | None = None,
    trains_adapters: bool = False,
    progress: PackProgress | None = None,
) -> TransformerModel:
    """Pack the matrices of a model in place. `importance` weighs the inputs of each layer, for int4.

    `kept` holds quantized weights of earlier, and takes those that it does not have. With `trains_adapters`
    training computes with quantized weights as well, and parameters that learn go on learning.
    """
    checked = check_precision(precision)
    unprepare(model)
    device = next(model.parameters()).device
    if device.type != "cpu":
        raise InputError(f"products are packed for the CPU; this model is on {device}: load it on the CPU")
    groups = list(_groups(model))
    _check_numbers(model, without=[group for group in groups if kept is not None and group.name in kept])
    done = Preparation(checked, trainable=[p for p in model.parameters() if p.requires_grad])
    model.prepared = done  # type: ignore[assignment]
    try:
        if not trains_adapters:
            model.requires_grad_(requires_grad=False)
        _convert_rest(model, done)  # before the products note which memory their biases are in
        for count, group in enumerate(groups, 1):
            product = _product(group, checked, model, importance or {}, kept)
            _bind(group, product, done, is_base=trains_adapters)
            if progress is not None:
                progress(count, len(groups))
        done.packed.remember()
    except BaseException:  # half of it would be neither a plain nor a prepared model
        unprepare(model)
        raise
    return model


def _bind(group: _Group, product: Product, done: Preparation, *, is_base: bool) -> None:
    """Let the layers of a group compute with the product."""
    fused = FusedProduct(product, group.rows)
    parts = zip(group.layers, group.weights, group.biases, strict=True)
    for index, (layer, weight, bias) in enumerate(parts):
        layer.product = bound = BoundProduct(fused, index, weight, bias)
        bound.is_base = is_base
        done.packed.add(bound, weight, bias)
    done.products.append(product)


def share_preparation(
    model: nn.Module, tree: nn.Module, parameters: Mapping[nn.Parameter, nn.Parameter]
) -> None:
    """Let a second tree over the same weights compute with the products of the first.

    `parameters` are those of the tree by those of the model. The model may be prepared anew, or no more,
    without an effect on the tree, and the other way round.
    """
    layout.share_mapped(model, tree, parameters)
    done = preparation(model)
    if done is None:
        return
    fused: dict[FusedProduct, FusedProduct] = {}
    for module in tree.modules():
        if isinstance(module, LinearLayer | TokenLogits) and isinstance(module.product, BoundProduct):
            old = module.product.fused
            module.product = module.product.shared(
                fused.setdefault(old, FusedProduct(old.product, old.widths))
            )
    converted = {parameters[p]: stored for p, stored in done.converted.items() if p in parameters}
    tree.prepared = replace(done, converted=converted, trainable=[])  # type: ignore[assignment]


def quantized_matrices(model: TransformerModel, precision: InferencePrecision) -> dict[str, QuantizedMatrix]:
    """The matrices that are quantized in a precision, by the names of their weights, joined by commas."""
    return {group.name: _matrix(group, precision, model) for group in _groups(model)}


def _matrix(group: _Group, precision: InferencePrecision, model: TransformerModel) -> QuantizedMatrix:
    # The vocabulary is not int4: most of the quality would be lost there.
    int4 = precision == "int4" and group.layers[0] is not model.head
    return QuantizedMatrix("int4" if int4 else "int8", group.weights)


def drop_stale_products(model: nn.Module) -> None:
    """Let layers whose weights were changed behind torch's back compute with their weights.

    Called at the start of a run; torch tells of all other changes itself. See `stale.py` for what is seen.
    """
    done = preparation(model)
    if done is not None:
        done.packed.drop_stale()


@torch.no_grad()
def unprepare(model: nn.Module) -> None:
    """Undo `prepare`: products are dropped, and every parameter is as it was, unless it was changed."""
    done = preparation(model)
    if done is None:
        return
    for module in model.modules():
        if isinstance(module, LinearLayer | TokenLogits):
            module.product = None
        if isinstance(module, EmbeddingTable):
            module.number = None
    for parameter, stored in done.converted.items():
        if torch.equal(parameter, stored.to(parameter.dtype)):
            parameter.data = stored
        else:
            parameter.data = parameter.data.to(stored.dtype)
    for parameter in done.trainable:
        parameter.requires_grad_()
    del model.prepared


def stored_parameters(model: nn.Module) -> dict[str, Tensor]:
    """The parameters by name, in the number they are stored in, whether or not the model is prepared."""
    done = preparation(model)
    converted = {} if done is None else done.converted
    found = {}
    for name, parameter in model.named_parameters():
        stored = converted.get(parameter)
        if stored is None:
            found[name] = parameter.detach()
        elif torch.equal(parameter, stored.to(parameter.dtype)):
            found[name] = stored
        else:
            found[name] = parameter.detach().to(stored.dtype)
    return found


def weight_bytes(model: nn.Module) -> int:
    """The bytes of weights that a call reads: packed ones, and parameters that are not packed."""
    done = preparation(model)
    packed = {id(weight) for group in _groups(model) for weight in group.weights} if done else set()
    kept = sum(p.numel() * p.element_size() for p in model.parameters() if id(p) not in packed)
    return kept + (done.bytes if done else 0)


def step_bytes(model: TransformerModel, bytes_per_weight: float | None = None) -> int:
    """The bytes of matrices that a decode step reads; with `bytes_per_weight`, if each weight had that size.

    Not read are the encoder, the keys and values of its output, and tables of which a step takes a row.
    """
    decoder = [module for module in model.modules() if isinstance(module, Stack)][-1]
    # A layer that is shared by several blocks is read once for each of them.
    reads = Counter(layer for block in decoder.blocks for layer in block.modules())
    for block in decoder.blocks:
        cross: Any = getattr(block, "cross", None)
        if cross is not None:
            reads[cross.k] = reads[cross.v] = 0
    total = 0.0
    for group in _groups(model):
        first = group.layers[0]
        times = 1 if first is model.head else reads[first]
        if bytes_per_weight is not None:
            total += times * bytes_per_weight * sum(weight.numel() for weight in group.weights)
        elif isinstance(first.product, BoundProduct):
            total += times * first.product.fused.product.bytes
        else:
            total += times * sum(weight.numel() * weight.element_size() for weight in group.weights)
    return round(total)


@dataclass(frozen=True)
class ProductShape:
    """The matrix of a product: its shape, and whether its outputs are the scores of the vocabulary."""

    outputs: int
    inputs: int
    vocabulary: bool


def product_shapes(model: TransformerModel) -> Counter[ProductShape]:
    """The shapes of the products that a prepared model would have, and how many of each."""
    return Counter(
        ProductShape(sum(group.rows), group.weights[0].shape[1], group.layers[0] is model.head)
        for group in _groups(model)
    )


def _groups(model: nn.Module) -> Iterator[_Group]:
    """The matrices to pack: those of the blocks, and the product with the vocabulary."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    towers = [module for module in model.modules() if isinstance(module, Stack)]
    seen: set[nn.Module] = set()
    for tower in towers:
        for block in tower.blocks:
            for module in block.modules():
                fusable = [
                    layer
                    for name in getattr(module, "FUSABLE", ())
                    if isinstance(layer := getattr(module, name, None), LinearLayer)
                ]
                others = [x for x in module.children() if isinstance(x, LinearLayer) and x not in fusable]
                for layers in (fusable, *([x] for x in others if x.packs)):
                    if layers and layers[0] not in seen:
                        seen.update(layers)
                        name = ",".join(names[id(x.weight)] for x in layers)
                        yield _Group(name, layers, [x.weight for x in layers], [x.bias for x in layers])
    head = getattr(model, "head", None)
    if isinstance(head, TokenLogits):
        weight = towers[-1].embed.tied_weights() if head.weight is None else head.weight
        assert isinstance(weight, Tensor)
        yield _Group(names[id(weight)], [head], [weight], [head.bias])


def _product(
    group: _Group,
    precision: InferencePrecision,
    model: TransformerModel,
    importance: Mapping[nn.Module, Tensor],
    kept: KeptWeights | None,
) -> Product:
    if precision in ("float32", "bfloat16"):
        return _pack(precision, group)(group.weight(), group.bias())
    matrix = _matrix(group, precision, model)
    weights = None if kept is None else kept.read(group.name, matrix)
    if weights is None:
        weights = _quantized(group, matrix, importance)
    if kept is not None:
        kept.add(group.name, weights)
    if isinstance(weights, Int8Weights):
        inputs = int8_inputs(precision, model.spec, vocabulary=group.layers[0] is model.head)
        return Int8Product.pack(weights, group.bias(), inputs)
    return Int4Product(weights, group.bias())


def _quantized(
    group: _Group, matrix: QuantizedMatrix, importance: Mapping[nn.Module, Tensor]
) -> QuantizedWeights:
    if matrix.kind == "int8":
        return quantize_rows(*group.weights)
    return quantize_groups(group.weight(), importance.get(group.layers[0]))


def _pack(precision: InferencePrecision, group: _Group) -> Pack:
    packs = candidates(precision)
    return by_name(packs, choose_product(packs, *group.shape).name)


def _convert_rest(model: nn.Module, done: Preparation) -> None:
    """Make float32 of what is not packed; tables stay as they are stored, and their vectors are converted."""
    packed = {weight for group in _groups(model) for weight in group.weights}
    tables = {module.weight for module in model.modules() if isinstance(module, EmbeddingTable)}
    for module in model.modules():
        if isinstance(module, EmbeddingTable) and module.weight.dtype != torch.float32:
            module.number = torch.float32
    for parameter in model.parameters():
        if parameter in packed or parameter in tables:
            continue
        if parameter.dtype != torch.float32:
            done.converted[parameter] = parameter.data
            parameter.data = parameter.data.float()
        parameter.data = layout.aligned_contiguous(parameter.data)


def _check_numbers(model: nn.Module, without: Sequence[_Group]) -> None:
    """Raise an error for weights that are not finite: packed, they could not be told from others."""
    known = {id(weight) for group in without for weight in group.weights}
    for name, parameter in model.named_parameters():
        if id(parameter) in known or not parameter.numel():
            continue
        whole = parameter.detach() if parameter.ndim else parameter.detach()[None]
        # A few rows at a time, because torch copies what is not contiguous.
        rows = max(1, CHECKED_AT_ONCE * len(whole) // whole.numel())
        for part in torch.split(whole, rows):
            if not bool(torch.isfinite(torch.stack(part.aminmax())).all()):
                raise InputError(f"{name} has weights that are not finite; the checkpoint is damaged")
