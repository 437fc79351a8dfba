"""Quantised and fused models: every member of the zoo runs, stays near, and looks the same to a watcher."""

from pathlib import Path

import pytest
import torch
import zoo
from references import REFERENCES
from torch import nn

import clearhead as ch
from clearhead import nn as cn
from clearhead.errors import InputError
from clearhead.nn.attention import MultiHead
from clearhead.nn.model import Model
from clearhead.nn.tap import sites
from clearhead.tune.fuse import FusedLinear, FusedSlice, fuse
from clearhead.tune.int8 import Int8Linear, Int8Module
from clearhead.tune.quantize import is_quantized, quantize

MODELS = pytest.mark.parametrize("spec", zoo.EVERY.values(), ids=list(zoo.EVERY))


def plain(weight: torch.Tensor, bias: torch.Tensor | None) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    layer.load_state_dict({"weight": weight} | ({} if bias is None else {"bias": bias}))
    return layer


def answers(model: nn.Module, length: int = 9) -> torch.Tensor:
    with torch.no_grad():
        return zoo.run(model, zoo.ids(2, length, 1), zoo.ids(2, length))


@MODELS
def test_int8_is_near_and_rows_stay_alone(spec: Model) -> None:
    exact, model = answers(spec.build()), quantize(spec.build(), "int8")
    found = answers(model)
    assert found.shape == exact.shape and found.dtype == exact.dtype
    assert float((found - exact).norm() / exact.norm()) < 0.12  # random weights, no wider than 24
    assert is_quantized(model) and not is_quantized(spec.build())
    left = [
        name for name, layer in model.named_modules() if isinstance(layer, nn.Linear) and ".blocks." in name
    ]
    assert left == []


@MODELS
def test_fused_layers_give_the_same_numbers(spec: Model) -> None:
    model = spec.build(dtype=torch.float64)
    exact = answers(model)
    attending = [module for module in model.modules() if isinstance(module, MultiHead)]
    for module in list(model.modules()):
        if together := getattr(module, "FUSABLE", ()):
            fuse(module, together, lambda w, b: plain(w, b).double())
    assert all(isinstance(module.k, FusedSlice) and isinstance(module.v, FusedSlice) for module in attending)
    torch.testing.assert_close(answers(model), exact, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("name", ["decoder/grouped", "pair/Gated-silu", "encoder/shared-layers"])
def test_every_site_is_still_there_and_can_be_changed(name: str) -> None:
    spec = zoo.EVERY[name]
    model, seen = quantize(spec.build(), "int8"), cn.Recorder()
    with torch.no_grad():
        watched = zoo.run(model, zoo.ids(2, 9, 1), zoo.ids(2, 9), tap=seen.tap())
    assert torch.equal(watched, answers(model))
    assert set(seen) == set(sites(spec.build()))
    silence = cn.Tap("*.attn.v", lambda _, x: torch.zeros_like(x))
    with torch.no_grad():
        changed = zoo.run(model, zoo.ids(2, 9, 1), zoo.ids(2, 9), tap=silence)
    assert not torch.equal(changed, watched)


@pytest.mark.parametrize("seed", range(5))
@torch.no_grad()
def test_a_cache_changes_next_to_nothing(seed: int) -> None:
    """The last digit of an input may differ, and with it its last step; rounding weights moves far more."""
    exact = zoo.DECODERS["grouped"].build()
    model = quantize(zoo.DECODERS["grouped"].build(), "int8")
    ids, cache = zoo.ids(2, 9, seed), model.cache(9)
    whole = model(ids)
    steps = torch.cat([model(ids[:, i : i + 1], cache=cache) for i in range(9)], 1)
    assert (steps - whole).abs().max() < 0.05 * (whole - exact(ids)).abs().max()


def test_a_part_is_never_stale() -> None:
    product = nn.Linear(4, 6)
    fused = FusedLinear(product, [2, 4])
    one, two = FusedSlice(fused, 0), FusedSlice(fused, 1)
    with torch.no_grad():
        x, y = torch.ones(1, 4), torch.zeros(1, 4)
        assert torch.equal(one(x), product(x)[:, :2]) and torch.equal(two(y), product(y)[:, 2:])
        assert torch.equal(two(x), product(x)[:, 2:]) and torch.equal(one(x), product(x)[:, :2])
        x.add_(1.0)
        assert torch.equal(one(x), product(x)[:, :2])
    assert sum(p.numel() for p in nn.ModuleList([one, two]).parameters()) == 30  # one product, counted once


@pytest.mark.parametrize("name", [n for n in REFERENCES if n.endswith("/plain")])
def test_every_family_loads_in_int8_and_refuses_to_be_saved(name: str, tmp_path: Path) -> None:
    REFERENCES[name].files(tmp_path / "model")
    exact, bundle = ch.load(tmp_path / "model"), ch.load(tmp_path / "model", quantize="int8")
    layers = [m for m in bundle.model.modules() if isinstance(m, Int8Linear)]
    assert layers and not any(isinstance(m, Int8Linear) for m in exact.model.modules())
    ids = torch.randint(3, 90, (2, 7), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        wanted, found = (zoo.run(b.model, ids, ids) for b in (exact, bundle))
    assert float((found - wanted).norm() / wanted.norm()) < 0.15
    with pytest.raises(InputError, match="without quantize, and save that"):
        ch.save(bundle, tmp_path / "again")
    assert not (tmp_path / "again").exists()
    with pytest.raises(InputError, match="cannot be trained"):
        bundle.model.train()


def test_int8_takes_a_quarter_of_the_memory() -> None:
    sizes = {"n_embd": 128, "n_layer": 2, "n_head": 4, "vocab_size": 500, "n_positions": 16}
    model = ch.build("gpt2", **sizes).model
    before = sum(p.numel() * p.element_size() for p in model.parameters())
    quantize(model, "int8")
    kept = sum(x.numel() * x.element_size() for x in [*model.parameters(), *model.buffers()])
    packed = sum(m.in_features * m.out_features for m in model.modules() if isinstance(m, Int8Linear))
    # The table of words is there twice, to look up and to multiply with: half of what it was.
    assert kept + packed < 0.27 * before + 500 * 128


def test_another_precision_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="did you mean 'int8'"):
        quantize(zoo.single().build(), "int9")


def test_all_rounded_layers_are_of_one_kind() -> None:
    model = quantize(zoo.pair().build(), "int8")
    assert all(isinstance(m, Int8Module) for m in (model.head, model.encoder.embed.table))
    assert model.encoder.embed.table is model.decoder.embed.table


def test_a_rounded_model_knows_its_size() -> None:
    sizes = {"n_embd": 256, "n_layer": 2, "n_head": 4, "n_positions": 16, "vocab_size": 1000}
    exact, small = ch.build("gpt2", **sizes), ch.build("gpt2", **sizes)
    quantize(small.model, "int8")
    assert small.parameters == exact.parameters
    matrices = [p for p in exact.model.tower.blocks.parameters() if p.ndim == 2]
    others = [p for p in exact.model.tower.parameters() if p.ndim == 1]  # biases and norms
    # Each output has a scale and a sum; the table is there to look up and, turned, to multiply with.
    outputs = 2 * (3 * 256 + 256 + 1024 + 256)
    blocks = sum(p.numel() for p in matrices) + 8 * outputs
    tables = 2 * 1000 * 256 + (4 + 8) * 1000
    rest = 4 * (sum(p.numel() for p in others) + 16 * 256)
    assert small.cost().weights == pytest.approx(blocks + tables + rest, rel=0.001)
