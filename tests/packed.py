"""Prepared models in tests: which products a run computes, how far each may be off, and the plain twin."""

import copy
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import trained
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

import clearhead as ch
from clearhead.engine import preparation, unprepare
from clearhead.engine.int4 import GROUP_SIZE, LEAST_IMPORTANCE, Int4Product
from clearhead.engine.int8 import (
    INT8_LEVELS,
    STEPS,
    AsymmetricProduct,
    Int8Product,
    SplitProduct,
    SymmetricProduct,
)
from clearhead.engine.products import (
    BoundProduct,
    PackedBfloat16,
    PlainBfloat16,
    Product,
    RoundedFloat32,
    apply_product,
)
from clearhead.nn import LinearLayer, Stack, TokenLogits
from clearhead.text import Tokenizer

SINGLE, HALF = 2.0**-24, 2.0**-8  # relative rounding errors of float32 and of bfloat16
# The norm of the difference between a prepared model and its plain twin, of the norm of the output: what the
# rounding of inputs and outputs makes of a tiny model with random weights. Half of all models of the zoo stay
# below 0.007 in bfloat16 and 0.018 in int8; encoder-decoders with gated layers, where two rounded numbers are
# multiplied, have up to 0.036 and 0.084.
INPUT_ROUNDING = {"float32": 1e-5, "bfloat16": 5e-2, "int8": 0.1, "int8-fine": 1e-3, "int4": 5e-2}


SMALL_LLAMA = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 120,
}
SMALL_GPT2 = {"n_embd": 48, "n_layer": 3, "n_head": 4, "n_positions": 64}
SMALL_BERT = {
    "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 4,
}  # fmt: skip
SMALL_T5 = {"d_model": 48, "d_kv": 12, "d_ff": 80, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 4}
SIZES = {"llama": SMALL_LLAMA, "gpt2": SMALL_GPT2, "bert": SMALL_BERT, "t5": SMALL_T5}
WORDS = {"llama": "bytes", "gpt2": "bytes", "bert": "words", "t5": "unigram"}


def folder_of(name: str, folder: Path, **config: Any) -> Path:
    """A folder with a small random model of a family and a real tokenizer."""
    words = Tokenizer.read(trained.write(folder / "words", WORDS[name]))
    assert words is not None
    if name == "t5":
        config = {"eos_token_id": words.vocab - 1, "decoder_start_token_id": 0, "pad_token_id": 0, **config}
    bundle = ch.build(name, **SIZES[name] | {"vocab_size": words.vocab} | config)
    bundle.tokenizer = words
    with torch.no_grad():  # norms start at one and biases at zero: that hides errors
        for i, parameter in enumerate(bundle.model.parameters()):
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(i)) * 0.1)
    bundle.save(folder / name)
    return folder / name


class Products(TorchFunctionMode):
    """Inside, the packed products that are computed: each with its input and its output."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Product, Tensor, Tensor]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func is apply_product:
            self.calls.append((args[1], args[0].clone(), result.clone()))
        return result


def apart(one: Tensor, two: Tensor) -> float:
    return float((one - two).norm() / two.norm())


def packed_layers(model: nn.Module) -> Iterator[tuple[nn.Module, BoundProduct, Tensor, Tensor | None]]:
    """Layers with a product: the layer, its product, its weight and its bias."""
    for layer in model.modules():
        bound = getattr(layer, "product", None)
        if isinstance(layer, LinearLayer | TokenLogits) and bound is not None:
            yield layer, bound, _weight(model, layer), layer.bias


def _weight(model: nn.Module, layer: LinearLayer | TokenLogits) -> Tensor:
    if layer.weight is not None:
        return layer.weight
    last = [module for module in model.modules() if isinstance(module, Stack)][-1]
    return last.embed.table.weight


def unused_products(model: nn.Module) -> list[nn.Module]:
    """Layers whose product would not be used: it is taken for stale."""
    x = torch.ones(1)
    with torch.no_grad():
        return [layer for layer, bound, w, b in packed_layers(model) if not bound.fits(x, w, b)]


def matrices(model: nn.Module) -> dict[Product, tuple[Tensor, Tensor]]:
    """The weights and biases of every product, in float32."""
    parts: dict[Product, dict[int, tuple[Tensor, Tensor]]] = {}
    for _, bound, weight, bias in packed_layers(model):
        bias = torch.zeros(len(weight)) if bias is None else bias
        parts.setdefault(bound.fused.product, {})[bound.index] = weight.detach().float(), bias.float()
    found = {}
    for product, slices in parts.items():
        weights, biases = zip(*(slices[i] for i in range(len(slices))), strict=True)
        found[product] = torch.cat(weights), torch.cat(biases)
    return found


def assert_within_rounding(product: Product, x: Tensor, y: Tensor, bias_O: Tensor) -> None:
    """The output is the product with the dequantized matrix, up to what rounding can do at most."""
    weight_OI = product.dequantized()
    x_RI, y_RO = x.reshape(-1, x.shape[-1]).float(), y.reshape(-1, y.shape[-1]).float()
    exact_RO = x_RI.double() @ weight_OI.double().T + bias_O.double()
    allowed_RO = _allowed(product, x_RI, weight_OI, exact_RO.abs().float())
    beyond = (y_RO - exact_RO).abs() - allowed_RO
    assert float(beyond.max()) <= 0, (product.name, float(beyond.max()), float(allowed_RO.max()))


def _allowed(product: Product, x_RI: Tensor, weight_OI: Tensor, size_RO: Tensor) -> Tensor:
    """`size` is the output's. A bias is at most as large as the output and the products together."""
    terms_RO = x_RI.abs() @ weight_OI.abs().T + size_RO
    sums_RO = 2 * (x_RI.shape[1] + 8) * SINGLE * terms_RO + 1e-30
    row_sums_O = weight_OI.abs().sum(1)
    if isinstance(product, PackedBfloat16 | PlainBfloat16):
        return sums_RO + 2 * HALF * terms_RO  # inputs, bias, output
    if isinstance(product, Int4Product):
        return sums_RO + 3 * HALF * terms_RO  # inputs, dequantized weights, output
    if isinstance(product, AsymmetricProduct):
        low, high = (x_RI.amin(1).clamp(max=0), x_RI.amax(1).clamp(min=0))
        steps_R = (high - low) / INT8_LEVELS
    elif isinstance(product, SymmetricProduct):
        steps_R = x_RI.abs().amax(1) / STEPS
    else:
        return sums_RO
    if isinstance(product, SplitProduct):
        steps_R = steps_R / (2 * STEPS)
    # Half a step, and a hundredth for float32 on the way to it.
    return sums_RO + 0.51 * steps_R[:, None] * row_sums_O


def importances(model: nn.Module, of_layers: Mapping[str, Tensor]) -> dict[Product, Tensor]:
    """What int4 was calibrated with, by product; `of_layers` by the name of the layer."""
    layers = {layer: name for name, layer in model.named_modules()}
    return {
        bound.fused.product: of_layers[layers[layer]]
        for layer, bound, _, _ in packed_layers(model)
        if bound.index == 0 and layers[layer] in of_layers
    }


def assert_near_weights(product: Product, weight_OI: Tensor, importance_I: Tensor | None = None) -> None:
    """The matrix is the weights, rounded as the product says."""
    found_OI = product.dequantized()
    if isinstance(product, Int8Product):
        half = weight_OI.abs().amax(1, keepdim=True) / 127 / 2
        assert bool(((found_OI - weight_OI).abs() <= half * 1.001 + 1e-30).all())
    elif isinstance(product, Int4Product):
        p_I = torch.ones(weight_OI.shape[1]) if importance_I is None else importance_I / importance_I.mean()
        parts = (x.split(GROUP_SIZE, -1) for x in (weight_OI, found_OI, p_I.clamp(min=LEAST_IMPORTANCE)))
        for w, found, p in zip(*parts, strict=True):
            low, high = w.aminmax(dim=1)
            # Never worse than equal steps from the least to the greatest weight, their ends in bfloat16.
            allowed = (high - low) / 30 + (high - low) * 8 / 15 * HALF + w.abs().amax(1) * 2 * HALF
            assert bool((((found - w).square() * p).sum(1) <= allowed.square() * p.sum()).all())
    elif isinstance(product, PackedBfloat16 | PlainBfloat16 | RoundedFloat32):
        assert torch.equal(found_OI, weight_OI.bfloat16().float())
    else:
        assert torch.equal(found_OI, weight_OI)


def plain_twin(model: nn.Module) -> nn.Module:
    """The same model without products, with the matrices that these multiply by as its weights."""
    slices = {}
    for (name, _), (_, bound, _, _) in zip(_named_layers(model), packed_layers(model), strict=True):
        slices[name] = bound.fused.product.dequantized().split(bound.fused.widths)[bound.index]
    twin = copy.deepcopy(model)
    unprepare(twin)
    twin.float()
    for name, layer in twin.named_modules():
        if name in slices:
            layer.weight = nn.Parameter(slices[name])  # a tied head gets a matrix of its own
    assert preparation(twin) is None
    return twin


def _named_layers(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    for name, layer in model.named_modules():
        if isinstance(layer, LinearLayer | TokenLogits) and layer.product is not None:
            yield name, layer
