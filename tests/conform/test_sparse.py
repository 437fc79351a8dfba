"""Laws of the sparse kernels: they are dense attention under their mask, and never make all pairs."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st
from tolerance import assert_close
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from transformers.models.big_bird import modeling_big_bird
from zoo import attention, block, ids, single

from clearhead import nn as cn
from clearhead.errors import InputError, SpecError, UnsupportedError
from clearhead.nn.kernels import AttentionKernel
from clearhead.nn.masks import segment_positions


@dataclass(frozen=True)
class Dilated(cn.Mask):
    """Every second (third, ...) neighbour, so many of them to each side."""

    window: int
    dilation: int

    def allows(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return ((q - k).abs() <= self.window * self.dilation) & ((q - k) % self.dilation == 0)


@dataclass(frozen=True, eq=False)
class Bird(cn.Mask):
    """Neighbouring blocks, and the first and the last block of each text."""

    block: int
    place_BK: Tensor
    count_BK: Tensor  # how many tokens the text of each token has

    @staticmethod
    def over(block: int, rule: cn.Mask, length: int) -> "Bird":
        segment = rule.segments()
        segment = torch.zeros(2, length, dtype=torch.long) if segment is None else segment
        same = segment[:, :, None] == segment[:, None, :]
        return Bird(block, segment_positions(segment), same.sum(-1))

    def allows(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        one, two = self.place_BK[b, q] // self.block, self.place_BK[b, k] // self.block
        last = (self.count_BK[b, q] - 1) // self.block
        return ((one - two).abs() <= 1) | (one * two == 0) | (one == last) | (two == last)


@dataclass(frozen=True, eq=False)
class Ring(cn.Mask):
    """The same chunk, some before it and some after it, round in a ring."""

    chunk: int
    before: int
    after: int
    place_BK: Tensor
    count_BK: Tensor

    @staticmethod
    def over(chunk: int, before: int, after: int, rule: cn.Mask, length: int) -> "Ring":
        bird = Bird.over(chunk, rule, length)
        return Ring(chunk, before, after, bird.place_BK, bird.count_BK)

    def allows(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        one, two = self.place_BK[b, q] // self.chunk, self.place_BK[b, k] // self.chunk
        chunks = (self.count_BK[b, q] + self.chunk - 1) // self.chunk
        back = (one - two) % chunks
        return (back <= self.before) | (back >= chunks - self.after)


@dataclass(frozen=True)
class Exact:
    """A sparse kernel, and the mask under which Softmax must say the same of a call with such a mask."""

    kernel: AttentionKernel
    mask: Callable[[cn.Mask, int], cn.Mask]  # (the mask of the call, length)

    def can(self, *needs: str) -> bool:
        return set(needs) <= self.kernel.build(4, 6).supports


EXACT = {
    "longformer": Exact(cn.Longformer(window=3), lambda rule, length: cn.SlidingWindow(3, 3)),
    "longformer-wide": Exact(cn.Longformer(window=100), lambda rule, length: cn.Everyone()),
    "longformer-dilated": Exact(cn.Longformer(window=2, dilation=3), lambda rule, length: Dilated(2, 3)),
    "longformer-always": Exact(
        cn.Longformer(window=2, always=(0, 5)),
        lambda rule, length: cn.SlidingWindow(2, 2) | cn.Global((0, 5)),
    ),
    "chunks": Exact(cn.Chunks(chunk=4, before=1), lambda rule, length: Ring.over(4, 1, 0, rule, length)),
    "chunks-both-sides": Exact(
        cn.Chunks(chunk=3, before=2, after=1), lambda rule, length: Ring.over(3, 2, 1, rule, length)
    ),
    "bigbird": Exact(cn.BigBird(block=4, random=0), lambda rule, length: Bird.over(4, rule, length)),
    "bigbird-fine": Exact(cn.BigBird(block=1, random=0), lambda rule, length: Bird.over(1, rule, length)),
}
exact_law = pytest.mark.parametrize("member", EXACT.values(), ids=EXACT)


def noise(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def view(mask: cn.Mask, batch: int, queries: int, keys: int) -> cn.View:
    slots = torch.arange(keys)[None]
    return cn.View(mask, batch, slots[:, keys - queries :], slots, keys - queries)


def mix(spec: AttentionKernel, q: Tensor, k: Tensor, v: Tensor, over: cn.View, **more: object) -> Tensor:
    kernel = spec.build(q.shape[1], q.shape[-1]).eval()
    tap = more.pop("tap", cn.OFF)
    return kernel(cn.AttentionCall(q, k, v, over, **{"scale": 0.4} | more), tap)


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
        "drawn": cn.mask_adapters.from_allowed(noise(2, 4, length, length, seed=3) > -1),
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
    queries = data.draw(st.sampled_from([length, 1, (length + 1) // 2] if member.can("uneven") else [length]))
    q, v = noise(2, 4, queries, 6, dtype=dtype), noise(2, groups, length, 5, seed=2, dtype=dtype)
    k = noise(2, groups, length, 6, seed=1, dtype=dtype)
    if asked == "packed" and getattr(member.kernel, "always", ()):
        return  # positions begin again with every text: another test
    if "causal" in asked and not member.can("causal"):
        return  # refused; see below
    rule = calls(length)[asked]
    bias = data.draw(st.sampled_from([None, noise(1, 4, queries, length, seed=4, dtype=dtype)]))
    got = mix(member.kernel, q, k, v, view(rule, 2, queries, length), bias=bias)
    local = member.mask(rule, length)
    want = mix(cn.Softmax(), q, k, v, view(rule & local, 2, queries, length), bias=bias)
    segment = rule.segments()
    real = torch.ones(2, length) if segment is None else segment >= 0
    real = real[:, None, length - queries :, None]
    assert_close(got * real, want * real)


@exact_law
def test_the_pattern_is_what_was_used(member: Exact) -> None:
    q, k, v = noise(2, 4, 40, 6), noise(2, 2, 40, 6, seed=1), noise(2, 2, 40, 5, seed=2)
    for rule in (cn.Everyone(), cn.Causal(), cn.Padding(padding(40))):
        if rule == cn.Causal() and not member.can("causal"):
            continue
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
@pytest.mark.parametrize("padded", [False, True], ids=["open", "padded"])
def test_gradients_match_finite_differences(member: Exact, padded: bool) -> None:
    q, k, v = (noise(2, 4, 9, 3, seed=s).requires_grad_() for s in range(3))
    kernel = member.kernel.build(4, 3)
    over = view(cn.Padding(padding(9)) if padded else cn.Everyone(), 2, 9, 9)
    assert torch.autograd.gradcheck(
        lambda q, k, v: kernel(cn.AttentionCall(q, k, v, over, scale=0.4)),
        (q, k, v),
        fast_mode=True,
    )


@pytest.mark.parametrize("name", [name for name in EXACT if "wide" not in name])
def test_no_tensor_of_all_pairs_is_ever_made(name: str) -> None:
    """Forwards and backwards, the largest tensor grows with the length and not with its square."""
    member = EXACT[name]
    largest = {n: _largest(member.kernel, n) for n in (512, 1024)}
    assert largest[1024] <= 2.1 * largest[512]


def _largest(spec: AttentionKernel, length: int) -> int:
    sizes: list[int] = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            out = func(*args, **kwargs or {})
            made = out if isinstance(out, tuple | list) else (out,)
            sizes.extend(x.untyped_storage().nbytes() for x in made if isinstance(x, Tensor))
            return out

    q, k, v = (noise(1, 4, length, 8, seed=s, dtype=torch.float32).requires_grad_() for s in range(3))
    rule = cn.Padding(torch.ones(1, length, dtype=torch.bool))
    with Watch():
        mix(spec, q, k, v, view(rule, 1, length, length)).sum().backward()
    return max(sizes)


@torch.no_grad()
def test_global_tokens_come_with_the_call_and_no_local_rule_binds_them() -> None:
    """For Longformer's kernel, for a layer's window, and for nobody where attention is full anyway."""
    q, k, v = noise(2, 4, 30, 6), noise(2, 4, 30, 6, seed=1), noise(2, 4, 30, 5, seed=2)
    flags = torch.zeros(2, 30, dtype=torch.bool)
    flags[0, [3, 20]], flags[1, [0, 28, 29]] = True, True
    real = padding(30)
    rule = cn.mask_adapters.from_attention_mask(real) & cn.mask_adapters.from_global_attention_mask(flags)
    over, local = view(rule, 2, 30, 30), cn.SlidingWindow(2, 2)
    dense = cn.Padding(real) & (local | cn.Globals(flags))
    want = mix(cn.Softmax(), q, k, v, view(dense, 2, 30, 30))
    assert_close(mix(cn.Longformer(window=2), q, k, v, over), want)
    assert_close(mix(cn.Softmax(), q, k, v, over.restrict(local)), want)
    assert_close(
        mix(cn.Softmax(), q, k, v, over), mix(cn.Softmax(), q, k, v, view(cn.Padding(real), 2, 30, 30))
    )
    one = view(cn.Everyone() | cn.Global((7,)), 2, 30, 30)
    want = mix(cn.Softmax(), q, k, v, view(local | cn.Global((7,)), 2, 30, 30))
    assert_close(mix(cn.Longformer(window=2), q, k, v, one), want)


BIRDS = [(64, 4, 2, 128), (48, 4, 3, 128), (128, 8, 4, 999), (112, 8, 4, 112), (1024, 64, 3, 4096),
         (1024, 128, 2, 1024)]  # fmt: skip


@pytest.mark.parametrize("training", [True, False], ids=["training", "resting"])
@pytest.mark.parametrize(("length", "block", "random", "longest"), BIRDS)
@torch.no_grad()
def test_bigbird_draws_the_blocks_of_the_reference(
    length: int, block: int, random: int, longest: int, training: bool
) -> None:
    """Each of its three plans, layer by layer, and what it does with them outside of training."""
    config = transformers.BigBirdConfig(
        hidden_size=12, num_attention_heads=3, block_size=block, num_random_blocks=random,
        max_position_embeddings=longest,
    )  # fmt: skip
    before = np.random.get_state()
    try:
        for layer in (0, 5):
            theirs = (
                modeling_big_bird.BigBirdBlockSparseAttention(config, seed=layer).double().train(training)
            )
            x, real = noise(1, length, 12), torch.ones(1, length, dtype=torch.float64)
            blocked, *masks = modeling_big_bird.BigBirdModel.create_masks_for_block_sparse_attn(real, block)
            want, weights = theirs(x, *masks, blocked, blocked)
            q, k, v = (
                part(x).reshape(1, length, 3, 4).transpose(1, 2)
                for part in (theirs.query, theirs.key, theirs.value)
            )
            spec = cn.BigBird(block=block, random=random, seed=layer, longest=longest, resting="first")
            ours, record = spec.build(3, 4).train(training), cn.Recorder()
            got = ours(
                cn.AttentionCall(q, k, v, view(cn.Everyone(), 1, length, length), scale=0.5), record.tap()
            )
            assert_close(got.transpose(1, 2).flatten(2), want)
            if training:  # resting, they write the repeated first block over instead of adding it up
                distinct = (record["pattern"] > 0) == (weights > 0)
                assert bool(distinct.all())
    finally:
        np.random.set_state(before)


@torch.no_grad()
def test_bigbird_stays_sparse_and_counts_blocks_within_each_text() -> None:
    """Short or long, padded in front or behind, packed with others: always the same blocks."""
    kernel = cn.BigBird(block=2, random=1)
    spec = single(block=block(attention=attention(kernel=kernel)))
    model = spec.build(dtype=torch.float64)
    texts = [ids(1, 13), ids(1, 22, seed=1)]
    alone = [model(text)[0] for text in texts]
    rows, real = torch.cat([ids(1, 24, seed=2)] * 3), torch.zeros(3, 24, dtype=torch.long)
    rows[0, 4:17], rows[1, :13], rows[2, 1:23] = texts[0], texts[0], texts[1]
    real[0, 4:17], real[1, :13], real[2, 1:23] = 1, 1, 1
    got = model(rows, real)
    assert_close(got[0, 4:17], alone[0])
    assert_close(got[1, :13], alone[0])
    assert_close(got[2, 1:23], alone[1])
    packed = model(torch.cat(texts, dim=1), cn.Documents(torch.tensor([[3] * 13 + [1] * 22])))[0]
    assert_close(packed, torch.cat(alone))
    full = spec.edit(cn.Attention, kernel=cn.Softmax()).build(dtype=torch.float64)
    assert not torch.allclose(full(texts[0])[0], alone[0])


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


def _small(**changes: object) -> cn.SingleStackModel:
    return single(block=block(attention=attention(**changes))).build()


BAD_SPECS = {
    "window": (lambda: cn.Longformer(window=0), "window=0"),
    "dilation": (lambda: cn.Longformer(window=2, dilation=0), "dilation=0"),
    "always": (lambda: cn.Longformer(window=2, always=(-1,)), "always is"),
    "block": (lambda: cn.BigBird(block=0), "BigBird.block is 0"),
    "drawn": (lambda: cn.BigBird(random=-1), "BigBird.random is -1"),
    "chunk": (lambda: cn.Chunks(chunk=0), "Chunks.chunk is 0"),
    "multiple": (lambda: cn.LSH(chunk=4, multiple=6), "multiple is 6, expected a multiple of the chunk, 4"),
    "odd buckets": (lambda: cn.LSH(buckets=(4, 3)), "expected even numbers"),
    "no buckets": (lambda: cn.LSH(buckets=()), "expected even numbers"),
    "rounds": (lambda: cn.LSH(rounds=0), "LSH.rounds is 0"),
    "shared": (lambda: cn.Attention(heads=4, kv_heads=2, project="shared"), "leave kv_heads unset"),
    "grid": (lambda: cn.Axial(shape=(0, 4), widths=(2, 2)), "1 or more"),
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
        model(ids(2, 9), cn.mask_adapters.from_global_attention_mask(torch.ones(2, 8)))
    with pytest.raises(InputError, match="Global alone"):
        model(ids(2, 9), cn.Padding(padding(9)) & cn.Global((0,)))
    model(ids(2, 9), cn.Everyone() | cn.Global((8,)))


def test_bigbird_refuses_what_would_make_its_blocks_move() -> None:
    """Which blocks are the last, and which are drawn, follows from the length: no step by step, no causal."""
    with pytest.raises(UnsupportedError, match="BigBird attention cannot take a causal mask"):
        single(causal=True, block=block(attention=attention(kernel=cn.BigBird(block=2)))).build()
    with pytest.raises(UnsupportedError, match="takes no Global mask"):
        _small(kernel=cn.BigBird(block=2))(ids(2, 9), cn.Everyone() | cn.Global((0,)))


def test_a_second_set_is_refused_where_it_cannot_be() -> None:
    with pytest.raises(UnsupportedError, match="projections of their own"):
        _small(project="twice")(ids(2, 5))
    model = _small(project="twice", kernel=cn.Longformer(window=2, always=(0,)))
    with pytest.raises(UnsupportedError, match="with a cache"):
        model(ids(2, 5), cache=model.cache())
