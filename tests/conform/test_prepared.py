"""Prepared models: every choice of the core, every family and head computes what its plain twin does.

A prepared model is compared with the plain model whose weights are the matrices that its products multiply
by (`Product.dequantized`). What remains is the rounding of inputs: bounded product by product, by what
rounding can do at most, and measured for the whole model. These matrices are compared with the weights.
"""

import itertools
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch
import zoo
from matrix import combinations
from packed import (
    INPUT_ROUNDING,
    Products,
    apart,
    assert_near_weights,
    assert_within_rounding,
    importances,
    matrices,
    plain_twin,
    unused_products,
)
from references import REFERENCES, Reference
from safetensors.torch import load_file
from torch import Tensor, nn

import clearhead as ch
from clearhead import nn as cn
from clearhead.bundle.preparing import _input_importance
from clearhead.engine import PRECISIONS, preparation, prepare_model

NAMES = list(zoo.EVERY)


def one_in_turn(name: str, precision: str) -> bool:
    return precision == PRECISIONS[NAMES.index(name) % len(PRECISIONS)]


def int8_and_another(name: str, precision: str) -> bool:
    return precision == "int8" or one_in_turn(name, precision)


def models_and_precisions(in_every_run: Callable[[str, str], bool]) -> pytest.MarkDecorator:
    pairs = itertools.product(NAMES, PRECISIONS)
    cases = combinations(pairs, lambda *case: "-".join(case), in_every_run)
    return pytest.mark.parametrize(("name", "precision"), cases)


# Between a row alone and in a padded batch, of the norm of the output.
COMPANY = {"float32": 1e-5, "bfloat16": 5e-3, "int8": 1e-2, "int8-fine": 1e-3, "int4": 5e-3}
PLAIN = [(reference,) for name, reference in REFERENCES.items() if name.endswith("/plain")]


def is_first_head(reference: Reference) -> bool:
    return reference.task == next(iter(reference.family.architectures))


FAMILIES_AND_HEADS = pytest.mark.parametrize("reference", combinations(PLAIN, str, is_first_head))


def check(
    model: nn.Module,
    precision: str,
    source: Tensor,
    target: Tensor,
    importance: Mapping[str, Tensor] | None = None,
) -> None:
    """All laws of one prepared model; int4 may be calibrated with the importance of each layer's inputs."""
    found = preparation(model)
    assert found is not None and found.products and unused_products(model) == []
    known = matrices(model)
    assert set(known) == set(found.products)
    weighed = importances(model, importance or {})
    for product, (weight, _) in known.items():
        assert_near_weights(product, weight, weighed.get(product))
    twin = plain_twin(model)
    tap = zoo.routed_as(twin, source, target)
    with torch.inference_mode(), Products() as products:
        output = zoo.run(model, source, target, tap=tap)
    assert products.calls and output.dtype == torch.float32
    for product, x, y in products.calls:
        assert_within_rounding(product, x, y, known[product][1])
    with torch.inference_mode():
        wanted = zoo.run(twin, source, target)
    assert output.shape == wanted.shape and apart(output, wanted) < INPUT_ROUNDING[precision]


@models_and_precisions(int8_and_another)
def test_every_choice_of_the_core(name: str, precision: str) -> None:
    spec = zoo.EVERY[name]
    model = prepare_model(spec.build(), precision)
    check(model, precision, zoo.ids(2, 9, 1), zoo.ids(2, 9))
    layers = {name: x for name, x in model.named_modules() if isinstance(x, cn.LinearLayer)}
    plain = {name for name, x in layers.items() if ".blocks." in name and x.product is None}
    # A router that computes in float32 whatever the model does reads its weights as they are.
    wide = any(isinstance(node, cn.Router) and node.wide for node in spec.nodes())
    assert plain == {name for name in layers if wide and name.endswith("router.linear")}


@models_and_precisions(one_in_turn)
@torch.inference_mode()
def test_the_company_of_a_row_changes_no_bit(name: str, precision: str) -> None:
    """In a batch of the same shape: other rows may hold anything."""
    spec = zoo.EVERY[name]
    model, source, target = prepare_model(spec.build(), precision), zoo.ids(3, 9, 1), zoo.ids(3, 9)
    output = zoo.run(model, source, target)
    source[1:], target[1:] = source[1:].flip(0), target[1:].flip(1)
    zoo.assert_same_bits(spec, zoo.run(model, source, target)[:1], output[:1])


@models_and_precisions(one_in_turn)
@torch.inference_mode()
def test_a_row_alone_is_the_row_in_a_padded_batch(name: str, precision: str) -> None:
    """Up to the last digits of attention, norms and plain layers, whose sums depend on shapes: these may move
    an input by a step of its rounding, here and there."""
    spec = zoo.EVERY[name]
    model, source, target = prepare_model(spec.build(), precision), zoo.ids(1, 6), zoo.ids(1, 5)
    alone = zoo.run(model, source, target)
    noise, real = zoo.ids(2, 9, 7), torch.ones(2, 9, dtype=torch.long)
    for left in (0, 3):
        padded = {}
        for name, text in (("src", source), ("tgt", target)):
            ids, mask = noise.clone(), real.clone()
            ids[1, left : left + text.shape[1]] = text[0]
            mask[1, :left], mask[1, left + text.shape[1] :] = 0, 0
            padded[name] = ids, mask
        masks = {"src_mask": padded["src"][1], "tgt_mask": padded["tgt"][1]}
        if spec.inputs == 1:
            masks = {"mask": padded["tgt"][1]}
        found = zoo.run(model, padded["src"][0], padded["tgt"][0], **masks)
        if found.ndim == 3:  # one output per token
            found = found[:, left : left + 5]
        assert apart(found[1:], alone) < COMPANY[precision]


@FAMILIES_AND_HEADS
def test_every_family_and_head(reference: Reference, tmp_path: Path) -> None:
    """In every precision; and each saves the checkpoint back bit for bit."""
    reference.files(tmp_path / "model")
    stored = load_file(tmp_path / "model" / "model.safetensors")
    ids = torch.randint(3, 90, (2, 8), generator=torch.Generator().manual_seed(0))
    plain = ch.load(tmp_path / "model")
    names = {layer: name for name, layer in plain.model.named_modules()}
    importance = {names[layer]: found for layer, found in _input_importance(plain).items()}
    for precision in PRECISIONS:
        bundle = ch.load(tmp_path / "model", precision=precision)
        check(bundle.model, precision, ids, ids, importance)
        bundle.save(tmp_path / precision)
        saved = load_file(tmp_path / precision / "model.safetensors")
        assert saved.keys() == stored.keys()
        assert all(torch.equal(saved[name], stored[name]) for name in stored)


@FAMILIES_AND_HEADS
def test_every_family_stored_in_half_precision(reference: Reference, tmp_path: Path) -> None:
    reference.files(tmp_path / "model", torch.bfloat16)
    stored = load_file(tmp_path / "model" / "model.safetensors")
    ids = torch.randint(3, 90, (2, 8), generator=torch.Generator().manual_seed(0))
    for precision in ("bfloat16", "int8"):
        bundle = ch.load(tmp_path / "model", precision=precision)
        # Without importance: the error of a weight that hardly counts has no bound.
        model = prepare_model(bundle.model, "int4") if precision == "int4" else bundle.model
        check(model, precision, ids, ids)
        bundle.save(tmp_path / precision)
        saved = load_file(tmp_path / precision / "model.safetensors")
        assert all(saved[name].dtype == x.dtype and torch.equal(saved[name], x) for name, x in stored.items())
