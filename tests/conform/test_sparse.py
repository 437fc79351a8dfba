"""Laws of the sparse kernels: they are dense attention under their mask, and never make all pairs."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tolerance import assert_close
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from zoo import attention, block, ids, single

from clearhead import nn as cn
from clearhead.errors import InputError, SpecError, UnsupportedError
from clearhead.nn.kernels import Mixing


@dataclass(frozen=True)
class Dilated(cn.Mask):
    """Every second (third, ...) neighbour, so many of them to each side."""

    window: int
    dilation: int

    def allows(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return ((q - k).abs() <= self.window * self.dilation) & ((q - k) % self.dilation == 0)


@dataclass(frozen=True)
class Exact:
    """A sparse kernel, and the mask under which Softmax must say the same of a text of so many tokens."""

    kernel: Mixing
    mask: Callable[[int, int], cn.Mask]  # (length, heads)


EXACT = {
    "longformer": Exact(cn.Longformer(window=3), lambda length, heads: cn.Window(3, 3)),
    "longformer-wide": Exact(cn.Longformer(window=100), lambda length, heads: cn.Everyone()),
    "longformer-dilated": Exact(cn.Longformer(window=2, dilation=3), lambda length, heads: Dilated(2, 3)),
    "longformer-always": Exact(
        cn.Longformer(window=2, always=(0, 5)), lambda length, heads: cn.Window(2, 2) | cn.Global((0, 5))
    ),
}
exact_law = pytest.mark.parametrize("member", EXACT.values(), ids=EXACT)


def noise(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def view(mask: cn.Mask, batch: int, queries: int, keys: int) -> cn.View:
    slots = torch.arange(keys)[None]
    return cn.View(mask, batch, slots[:, keys - queries :], slots, keys - queries)


def mix(spec: Mixing, q: Tensor, k: Tensor, v: Tensor, over: cn.View, **more: object) -> Tensor:
    kernel = spec.build(q.shape[1], q.shape[-1]).eval()
    return kernel(q, k, v, view=over, **{"bias": None, "scale": 0.4, "tap": cn.OFF} | more)


def padding(length: int) -> Tensor:
    real = torch.ones(2, length, dtype=torch.bool)
    real[1, length - length // 4 :] = False
    return real


def calls(length: int) -> dict[str, cn.Mask]:
    """What a call may ask besides."""
    documents = torch.arange(length).expand(2, -1) // 5
    return {
        "open": cn.Everyone(),
        "causal": cn.Causal(),
        "padded": cn.Padding(padding(length)),
        "causal-padded": cn.Causal() & cn.Padding(padding(length)),
        "packed": cn.Documents(documents),
        "drawn": cn.doors.allowed(noise(2, 4, length, length, seed=3) > -1),
    }


@exact_law
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("asked", calls(8))
@given(length=st.integers(1, 70), groups=st.sampled_from([1, 2, 4]), data=st.data())
def test_equals_softmax_under_the_same_mask(
    member: Exact, dtype: torch.dtype, asked: str, length: int, groups: int, data: st.DataObject
) -> None:
    """Also for the last few queries alone, with fewer keys than heads, and with a bias."""
    if any(at >= length for at in getattr(member.kernel, "always", ())):
        length += 6
    queries = data.draw(st.sampled_from([length, 1, (length + 1) // 2]))
    q, v = noise(2, 4, queries, 6, dtype=dtype), noise(2, groups, length, 5, seed=2, dtype=dtype)
    k = noise(2, groups, length, 6, seed=1, dtype=dtype)
    if asked == "packed" and getattr(member.kernel, "always", ()):
        return  # positions begin again with every text: another test
    rule = calls(length)[asked]
    bias = data.draw(st.sampled_from([None, noise(1, 4, queries, length, seed=4, dtype=dtype)]))
    got = mix(member.kernel, q, k, v, view(rule, 2, queries, length), bias=bias)
    local = member.mask(length, 4)
    want = mix(cn.Softmax(), q, k, v, view(rule & local, 2, queries, length), bias=bias)
    assert_close(got, want)


@exact_law
def test_the_pattern_is_what_was_used(member: Exact) -> None:
    q, k, v = noise(2, 4, 40, 6), noise(2, 2, 40, 6, seed=1), noise(2, 2, 40, 5, seed=2)
    for rule in (cn.Everyone(), cn.Causal(), cn.Padding(padding(40))):
        over, record = view(rule, 2, 40, 40), cn.Recorder()
        plain = mix(member.kernel, q, k, v, over)
        assert torch.equal(mix(member.kernel, q, k, v, over, tap=record.tap()), plain)
        weights = record["pattern"]
        assert weights.shape == (2, 4, 40, 40)
        assert_close(weights.sum(-1)[:, :, :30], torch.ones(2, 4, 30, dtype=torch.float64))  # the real rows
        assert_close(weights @ v.repeat_interleave(2, dim=1), plain)
        doubled = mix(member.kernel, q, k, v, over, tap=cn.Tap("pattern", lambda _, x: x * 2))
        assert_close(doubled, plain * 2)


@exact_law
@pytest.mark.parametrize("rule", [cn.Everyone(), cn.Causal()], ids=["open", "causal"])
def test_gradients_match_finite_differences(member: Exact, rule: cn.Mask) -> None:
    q, k, v = (noise(1, 4, 9, 3, seed=s).requires_grad_() for s in range(3))
    kernel = member.kernel.build(4, 3)
    over = view(rule, 1, 9, 9)
    assert torch.autograd.gradcheck(
        lambda q, k, v: kernel(q, k, v, view=over, bias=None, scale=0.4, tap=cn.OFF),
        (q, k, v),
        fast_mode=True,
    )


@pytest.mark.parametrize("member", [e for n, e in EXACT.items() if "wide" not in n])
def test_no_tensor_of_all_pairs_is_ever_made(member: Exact) -> None:
    """Forwards and backwards, the largest tensor grows with the length and not with its square."""
    largest = {n: _largest(member.kernel, n) for n in (512, 1024)}
    assert largest[1024] <= 2.1 * largest[512]


def _largest(spec: Mixing, length: int) -> int:
    sizes: list[int] = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            out = func(*args, **kwargs or {})
            made = out if isinstance(out, tuple | list) else (out,)
            sizes.extend(x.untyped_storage().nbytes() for x in made if isinstance(x, Tensor))
            return out

    q, k, v = (noise(1, 4, length, 8, seed=s, dtype=torch.float32).requires_grad_() for s in range(3))
    with Watch():
        mix(
            spec,
            q,
            k,
            v,
            view(cn.Causal() & cn.Padding(torch.ones(1, length, dtype=torch.bool)), 1, length, length),
        ).sum().backward()
    return max(sizes)


@torch.no_grad()
def test_global_tokens_come_with_the_call_and_no_local_rule_binds_them() -> None:
    """For Longformer's kernel, for a layer's window, and for nobody where attention is full anyway."""
    q, k, v = noise(2, 4, 30, 6), noise(2, 4, 30, 6, seed=1), noise(2, 4, 30, 5, seed=2)
    flags = torch.zeros(2, 30, dtype=torch.bool)
    flags[0, [3, 20]], flags[1, [0, 28, 29]] = True, True
    real = padding(30)
    rule = cn.doors.real(real) & cn.doors.globally(flags)
    over, local = view(rule, 2, 30, 30), cn.Window(2, 2)
    dense = cn.Padding(real) & (local | cn.Globals(flags))
    want = mix(cn.Softmax(), q, k, v, view(dense, 2, 30, 30))
    assert_close(mix(cn.Longformer(window=2), q, k, v, over), want)
    assert_close(mix(cn.Softmax(), q, k, v, over.under(local)), want)
    assert_close(
        mix(cn.Softmax(), q, k, v, over), mix(cn.Softmax(), q, k, v, view(cn.Padding(real), 2, 30, 30))
    )
    one = view(cn.Everyone() | cn.Global((7,)), 2, 30, 30)
    want = mix(cn.Softmax(), q, k, v, view(local | cn.Global((7,)), 2, 30, 30))
    assert_close(mix(cn.Longformer(window=2), q, k, v, one), want)


@torch.no_grad()
def test_a_first_token_is_global_wherever_its_text_begins() -> None:
    """`always` counts positions: padding in front and packing do not move it."""
    spec = single(block=block(attention=attention(kernel=cn.Longformer(window=1, always=(0,)))))
    model = spec.build(dtype=torch.float64)
    texts = ids(1, 7), ids(1, 9, seed=1)
    alone = [model(text)[0] for text in texts]
    packed = model(torch.cat(texts, dim=1), cn.Documents(torch.tensor([[0] * 7 + [1] * 9])))[0]
    assert_close(packed, torch.cat(alone))
    plain = spec.edit(cn.Longformer, always=()).build(dtype=torch.float64)
    assert not torch.allclose(plain(texts[0])[0], alone[0])


def _small(**changes: object) -> cn.SingleModel:
    return single(block=block(attention=attention(**changes))).build()


BAD_SPECS = {
    "window": (lambda: cn.Longformer(window=0), "window=0"),
    "dilation": (lambda: cn.Longformer(window=2, dilation=0), "dilation=0"),
    "always": (lambda: cn.Longformer(window=2, always=(-1,)), "always is"),
    "cross": (lambda: cn.Attention(heads=2, kernel=cn.Longformer(window=2)).build_cross(8, 8), "one text"),
}


@pytest.mark.parametrize("name", BAD_SPECS)
def test_bad_choices_are_refused_in_one_sentence(name: str) -> None:
    make, said = BAD_SPECS[name]
    with pytest.raises(SpecError, match=said) as error:
        make()
    assert "\n" not in str(error.value)


def test_global_tokens_outside_the_text_are_refused() -> None:
    model = _small(kernel=cn.Longformer(window=2))
    for at in ((9,), (-1,)):
        with pytest.raises(InputError, match=f"global position {at[0]} is outside the text; it has 9 tokens"):
            model(ids(2, 9), cn.Everyone() | cn.Global(at))
    with pytest.raises(InputError, match="mask of global tokens is"):
        model(ids(2, 9), cn.doors.globally(torch.ones(2, 8)))
    with pytest.raises(InputError, match="Global alone"):
        model(ids(2, 9), cn.Padding(padding(9)) & cn.Global((0,)))
    model(ids(2, 9), cn.Everyone() | cn.Global((8,)))


def test_a_second_set_is_refused_where_it_cannot_be() -> None:
    with pytest.raises(UnsupportedError, match="projections of their own"):
        _small(project="twice")(ids(2, 5))
    model = _small(project="twice", kernel=cn.Longformer(window=2, always=(0,)))
    with pytest.raises(UnsupportedError, match="with a cache"):
        model(ids(2, 5), cache=model.cache())
