"""Keys and values stored in bfloat16 and int8: what is lost, and that nothing else changes."""

from pathlib import Path

import pytest
import torch
import zoo
from torch import Tensor

import clearhead as ch
from clearhead import nn as cn
from clearhead.errors import InputError
from clearhead.nn import CACHE_PRECISIONS, Cache, CachePrecision, from_stored, to_stored

ROUNDED: tuple[CachePrecision, ...] = ("bfloat16", "int8")
DECODERS = {f"decoder/{name}": spec for name, spec in zoo.DECODERS.items()}
DECODERS |= {f"pair/{name}": spec for name, spec in zoo.PAIRS.items()}


def there_and_back(x: Tensor, precision: CachePrecision) -> Tensor:
    return from_stored(to_stored(x, precision), precision, x.shape[-1], x.dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("width", [1, 6, 64, 80])
def test_int8_is_within_half_a_step_of_the_vector(width: int, dtype: torch.dtype) -> None:
    x = (torch.randn(2, 3, 5, width, generator=torch.Generator().manual_seed(0)) * 10).to(dtype)
    x[0, 0, 0] = 0
    stored, back = to_stored(x, "int8"), there_and_back(x, "int8")
    assert stored.dtype == torch.int8 and stored.shape[-1] == -(-width // 4) * 4 + 4
    half_a_step = x.float().abs().amax(-1, keepdim=True) / 127 * 0.5
    rounding = torch.finfo(dtype).eps * x.float().abs()
    assert back.dtype == dtype and bool(((back - x).float().abs() <= half_a_step * 1.001 + rounding).all())
    assert bool((back[0, 0, 0] == 0).all())


def test_bfloat16_is_torchs() -> None:
    x = torch.randn(2, 3, 5, 8)
    assert torch.equal(there_and_back(x, "bfloat16"), x.bfloat16().float())


@pytest.mark.parametrize("precision", ROUNDED)
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_vector_that_is_no_number_does_not_become_one(precision: CachePrecision, bad: float) -> None:
    x = torch.randn(1, 1, 2, 8)
    x[0, 0, 1, 3] = bad
    back = there_and_back(x, precision)
    assert not bool(back[0, 0, 1, 3].isfinite()) and bool(back[0, 0, 0].isfinite().all())


@pytest.mark.parametrize("precision", ROUNDED)
@pytest.mark.parametrize("name", list(DECODERS))
def test_a_text_at_once_and_token_by_token_is_the_same(name: str, precision: CachePrecision) -> None:
    """Attention sees the stored keys from the first pass on, whatever the cache: growing or allocated."""
    spec = DECODERS[name]
    model = spec.build(seed=3).double()
    model.cache_precision = precision
    ids = zoo.ids(2, 9, 1)
    first = (zoo.ids(2, 5, 2),) if isinstance(spec, cn.EncoderDecoder) else ()
    with torch.inference_mode():
        whole = model(*first, ids, cache=model.cache(12))
        for cache in (model.cache(), model.cache(12)):
            steps = [model(*first, part, cache=cache) for part in ids.split(1, dim=1)]
            torch.testing.assert_close(torch.cat(steps, dim=1), whole, atol=1e-9, rtol=1e-9)
        tap = zoo.routed_as(model, *(first or (ids,)), ids, cache=model.cache(12))
        plain = model(*first, ids, tap=tap)
    torch.testing.assert_close(whole, plain, atol=0.05 * float(plain.abs().max()), rtol=0)
    # Layers that keep a state, not keys, round nothing.
    keeps_keys = any(layer.kv is not None or layer.cross_kv is not None for layer in cache.layers)
    assert (float((whole - plain).abs().max()) > 1e-6) == keeps_keys


@pytest.mark.parametrize("precision", CACHE_PRECISIONS)
def test_fewer_bytes_are_kept(precision: CachePrecision) -> None:
    cache = Cache(1, 10, precision)
    cache.layers[0].append(torch.randn(1, 2, 3, 64), torch.randn(1, 2, 3, 64))
    kv = cache.layers[0].kv
    assert kv is not None
    bytes_per_vector = {"float32": 256, "bfloat16": 128, "int8": 68}[precision]
    assert sum(x.numel() * x.element_size() for x in kv) == 2 * 2 * 10 * bytes_per_vector


@pytest.mark.parametrize("capacity", [None, 6])
@pytest.mark.parametrize("rows", [[1, 0, 1], [1, 0]])
@pytest.mark.parametrize("precision", CACHE_PRECISIONS)
def test_rows_take_their_keys_along(precision: CachePrecision, rows: list[int], capacity: int | None) -> None:
    cache = Cache(1, capacity, precision)
    k, v, new = torch.randn(2, 2, 3, 8), torch.randn(2, 2, 3, 8), torch.randn(len(rows), 2, 1, 8)
    cache.add_tokens(torch.ones(2, 3, dtype=torch.bool))
    cache.layers[0].append(k, v)
    cache.reorder(torch.tensor(rows))
    found = cache.layers[0].append(new, new)
    for one, old in zip(found, (k, v), strict=True):
        assert torch.equal(one, there_and_back(torch.cat([old[rows], new], dim=2), precision))


def test_the_choice_stays_and_another_word_is_one_sentence(tmp_path: Path) -> None:
    bundle = ch.build("gpt2", n_embd=16, n_head=2, n_layer=1, vocab_size=30, n_positions=20)
    bundle.prepare("float32", cache_precision="int8")
    assert bundle.model.cache(4).precision == "int8"
    bundle.prepare("int8")
    assert bundle.model.cache(4).precision == "int8"
    ch.save(bundle, tmp_path / "model")
    assert ch.load(tmp_path / "model").model.cache().precision == "float32"
    assert ch.load(tmp_path / "model", cache_precision="bfloat16").model.cache().precision == "bfloat16"
    with pytest.raises(InputError, match="cache_precision is 'int7'; did you mean 'int8'"):
        bundle.prepare("float32", cache_precision="int7")
