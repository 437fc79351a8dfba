"""Preparing: models look as before, and changed weights, gradients and training see the plain ones.

What prepared models compute is in tests/conform/test_prepared.py.
"""

import copy
from pathlib import Path

import pytest
import torch
import zoo
from packed import SMALL_LLAMA
from torch import nn

import clearhead as ch
from clearhead import nn as cn
from clearhead.engine import PRECISIONS, preparation, prepare_model, unprepare
from clearhead.engine.products import BoundProduct, FusedProduct, PlainFloat32, Product
from clearhead.errors import InputError
from clearhead.nn.model import Model
from clearhead.nn.tap import sites

MODELS = pytest.mark.parametrize("spec", zoo.EVERY.values(), ids=list(zoo.EVERY))
# Relative error of the output of a model with random weights, no wider than 24.
BOUNDS = {"float32": 1e-5, "bfloat16": 0.05, "int8": 0.15, "int8-fine": 0.12, "int4": 0.9}


def outputs(model: nn.Module, length: int = 9) -> torch.Tensor:
    with torch.inference_mode():
        return zoo.run(model, zoo.ids(2, length, 1), zoo.ids(2, length))


def products(model: nn.Module) -> list[Product]:
    found = preparation(model)
    return [] if found is None else found.products


@MODELS
def test_names_and_parameters_stay(spec: Model) -> None:
    plain, model = spec.build(), prepare_model(spec.build(), "int8")
    assert model.state_dict().keys() == plain.state_dict().keys()
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), plain.parameters(), strict=True))
    unprepare(model)
    assert torch.equal(outputs(model), outputs(plain)) and preparation(model) is None
    assert [p.requires_grad for p in model.parameters()] == [p.requires_grad for p in plain.parameters()]


@pytest.mark.parametrize("name", ["decoder/grouped", "pair/Gated-silu", "encoder/shared-layers"])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_every_site_is_still_there_and_can_be_changed(name: str, precision: str) -> None:
    spec = zoo.EVERY[name]
    model, seen = prepare_model(spec.build(), precision), cn.Recorder()
    with torch.inference_mode():
        watched = zoo.run(model, zoo.ids(2, 9, 1), zoo.ids(2, 9), tap=seen.tap())
    assert torch.equal(watched, outputs(model))
    assert set(seen) == set(sites(spec.build()))
    silence = cn.Tap("*.attn.v", lambda _, x: torch.zeros_like(x))
    with torch.inference_mode():
        changed = zoo.run(model, zoo.ids(2, 9, 1), zoo.ids(2, 9), tap=silence)
    assert not torch.equal(changed, watched)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_changed_weight_is_used_at_once(precision: str) -> None:
    model = prepare_model(zoo.single().build(), precision)
    layer = model.tower.blocks[0].attn.q
    packed = outputs(model)
    with torch.no_grad():
        layer.weight.mul_(2.0)
    changed = outputs(model)
    assert not torch.equal(changed, packed)
    plain = zoo.single().build()
    plain.load_state_dict(model.state_dict())
    with torch.inference_mode():
        x = torch.randn(2, layer.in_features, generator=torch.Generator().manual_seed(0))
        assert torch.equal(layer(x), plain.tower.blocks[0].attn.q(x))
    prepare_model(model, precision)
    again = outputs(model)
    assert float((again - outputs(plain)).norm() / again.norm()) < BOUNDS[precision]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_other_memory_is_another_weight(precision: str) -> None:
    """`load_state_dict(assign=True)`, `.data =` and `.to()` give a parameter other memory."""
    model = prepare_model(zoo.single().build(), precision)
    packed, layer = outputs(model), model.tower.blocks[0].ff.down
    layer.weight.data = layer.weight.data * 2
    assert not torch.equal(outputs(model), packed)


def test_gradients_are_those_of_the_weights() -> None:
    model, plain = prepare_model(zoo.single().build(), "int8"), zoo.single().build()
    model.requires_grad_()
    for each in (model, plain):
        zoo.run(each, zoo.ids(2, 9, 1), zoo.ids(2, 9)).square().mean().backward()
    for one, two in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one.grad, two.grad)


def test_training_mode_computes_with_the_weights() -> None:
    model, plain = prepare_model(zoo.single().build(), "int8").train(), zoo.single().build().train()
    found = []
    for each in (model, plain):
        with torch.no_grad(), torch.random.fork_rng():
            torch.manual_seed(0)  # dropout
            found.append(each(zoo.ids(2, 9)))
    assert torch.equal(*found)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("precision", ["int8", "int8-fine"])
@torch.inference_mode()
def test_a_cache_changes_next_to_nothing(precision: str, seed: int) -> None:
    """The last digit of an input may differ, and with it its last step; rounding weights moves far more."""
    plain = zoo.DECODERS["grouped"].build()
    model = prepare_model(zoo.DECODERS["grouped"].build(), precision)
    ids, cache = zoo.ids(2, 9, seed), model.cache(9)
    whole = model(ids)
    steps = torch.cat([model(ids[:, i : i + 1], cache=cache) for i in range(9)], 1)
    assert (steps - whole).abs().max() < 0.05 * (whole - plain(ids)).abs().max()


def test_a_slice_is_never_of_another_input() -> None:
    weight, bias = torch.randn(6, 4), torch.randn(6)
    fused = FusedProduct(PlainFloat32(weight, bias), [2, 4])
    one, two = (BoundProduct(fused, i, weight, bias) for i in (0, 1))
    x, y = torch.ones(1, 4), torch.zeros(1, 4)
    whole = lambda z: z @ weight.T + bias  # noqa: E731
    torch.testing.assert_close(one(x), whole(x)[:, :2])
    torch.testing.assert_close(two(y), whole(y)[:, 2:])
    torch.testing.assert_close(two(x), whole(x)[:, 2:])
    torch.testing.assert_close(one(x), whole(x)[:, :2])
    x.add_(1.0)
    torch.testing.assert_close(one(x), whole(x)[:, :2])


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("stored", ["bfloat16", "float16"])
def test_half_precision_files_compute_in_float32_and_are_saved_as_they_were(
    stored: str, precision: str, tmp_path: Path
) -> None:
    bundle = ch.build("llama", **SMALL_LLAMA).to(stored)
    bundle.save(tmp_path / "half")
    prepared = ch.load(tmp_path / "half", precision=precision)
    exact = ch.load(tmp_path / "half", dtype="float32")
    ids = torch.arange(12)[None]
    with torch.inference_mode():
        found, wanted = prepared.model(ids), exact.model(ids)
    assert found.dtype == torch.float32
    assert float((found - wanted).norm() / wanted.norm()) < BOUNDS[precision]
    prepared.save(tmp_path / "again")
    files = (tmp_path / folder / "model.safetensors" for folder in ("half", "again"))
    assert len({file.read_bytes() for file in files}) == 1
    assert prepared.dtype == getattr(torch, stored)


def test_a_loaded_bundle_prepared_later_is_the_same(tmp_path: Path) -> None:
    ch.build("llama", **SMALL_LLAMA).save(tmp_path / "model")
    at_once = ch.load(tmp_path / "model", precision="int8")
    later = ch.load(tmp_path / "model").prepare("int8")
    ids = torch.arange(12)[None]
    with torch.inference_mode():
        assert torch.equal(at_once.model(ids), later.model(ids))
    edited = ch.load(tmp_path / "model")
    with torch.no_grad():
        edited.model.tower.blocks[0].ff.down.weight.mul_(3.0)
    with torch.inference_mode():
        assert not torch.equal(edited.prepare("int8").model(ids), later.model(ids))


def test_an_unknown_precision_is_refused() -> None:
    with pytest.raises(InputError, match="precision is 'int9'; did you mean 'int"):
        prepare_model(zoo.single().build(), "int9")


def test_weights_that_are_not_finite_are_named() -> None:
    model = zoo.single().build()
    with torch.no_grad():
        model.tower.blocks[0].ff.up.weight[0, 0] = float("nan")
    with pytest.raises(InputError, match=r"tower\.blocks\.0\.ff\.up\.weight has weights that are not finite"):
        prepare_model(model, "int8")


@pytest.mark.parametrize("stored", ["float32", "bfloat16"])
def test_a_copy_computes_with_its_own_weights(stored: str) -> None:
    bundle = ch.build("llama", **SMALL_LLAMA).to(stored)
    plain = copy.deepcopy(bundle.to("float32").model)
    copied = copy.deepcopy(bundle.to(stored).prepare("int8").model)
    with torch.inference_mode():
        torch.testing.assert_close(copied(torch.arange(12)[None]), plain(torch.arange(12)[None]))
