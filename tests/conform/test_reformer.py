"""Hashed attention: what it computes, and that it becomes full attention. Reversible layers, axial places."""

import pytest
import reformer_pytorch
import torch
from hypothesis import given
from hypothesis import strategies as st
from tolerance import assert_close
from torch import Tensor
from zoo import VOCAB, attention, block, ids, single

from clearhead import nn as cn
from clearhead.errors import InputError, SpecError, UnsupportedError
from clearhead.nn.kernels.buckets import hash_rounds


def noise(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def view(mask: cn.Mask, batch: int, length: int) -> cn.View:
    slots = torch.arange(length)[None]
    return cn.View(mask, batch, slots, slots)


def mix(spec: cn.AttentionKernel, q: Tensor, k: Tensor, v: Tensor, mask: cn.Mask, **more: object) -> Tensor:
    kernel = spec.build(q.shape[1], q.shape[-1]).eval()
    over = view(mask, len(q), q.shape[2])
    tap = more.pop("tap", cn.OFF)
    return kernel(cn.AttentionCall(q, k, v, over, **{"scale": 0.4} | more), tap)


def met(q: Tensor, k: Tensor, spec: cn.LSH) -> Tensor:
    """(N, H, T, T) how often each pair meets, by plain counting over chunks."""
    rounds = hash_rounds(q, k, spec)
    length = q.shape[2]
    count = torch.zeros(*q.shape[:2], length, length, dtype=torch.long)
    for n in range(len(q)):
        for h in range(q.shape[1]):
            lists = zip(rounds.q_NHRCW[n, h].flatten(0, 1), rounds.k_NHRCS[n, h].flatten(0, 1), strict=True)
            for mine, theirs in lists:
                often = torch.bincount(theirs[theirs < length], minlength=length)
                count[n, h, mine[mine < length]] += often  # no token stands twice in one chunk
    return count


@pytest.mark.parametrize("rule", [cn.Everyone(), cn.Causal()], ids=["open", "causal"])
@given(
    length=st.integers(2, 40), rounds=st.integers(1, 4), before=st.integers(0, 2), after=st.integers(0, 1),
    itself=st.sampled_from(["seen", "alone"]), seed=st.integers(0, 9),
)  # fmt: skip
def test_equals_softmax_over_the_pairs_that_meet(
    rule: cn.Mask, length: int, rounds: int, before: int, after: int, itself: str, seed: int
) -> None:
    spec = cn.LSH(chunk=4, rounds=rounds, before=before, after=after, itself=itself, seed=seed)
    q, k, v = (noise(2, 2, length, 5, seed=seed + n) for n in range(3))
    everyone_oneself = torch.eye(length, dtype=torch.bool) & (itself == "seen")
    allowed = ((met(q, k, spec) > 0) | everyone_oneself) & view(rule & cn.Everyone(), 2, length).mask.allows(
        torch.zeros(1, 1, 1, 1, dtype=torch.long), torch.zeros(1, 1, 1, 1, dtype=torch.long),
        torch.arange(length)[:, None], torch.arange(length),
    )  # fmt: skip
    if itself == "alone":
        others = allowed & ~torch.eye(length, dtype=torch.bool)
        allowed = torch.where(others.any(-1, keepdim=True), others, allowed)
    want = mix(cn.Softmax(), q, k, v, cn.mask_adapters.from_allowed(allowed))
    assert_close(mix(spec, q, k, v, rule), want, tolerance=1e-10)


@given(rounds=st.integers(1, 3), seed=st.integers(0, 9), length=st.integers(5, 30))
def test_counted_pairs_weigh_as_often_as_they_meet(rounds: int, seed: int, length: int) -> None:
    spec = cn.LSH(chunk=4, rounds=rounds, repeats="counted", seed=seed)
    q, k, v = (noise(1, 2, length, 5, seed=seed + n) for n in range(3))
    often = met(q, k, spec).clamp(min=torch.eye(length, dtype=torch.long))
    often = torch.where(
        torch.eye(length, dtype=torch.bool), 1, often
    )  # oneself is seen once, beside the rounds
    want = mix(
        cn.Softmax(),
        q,
        k,
        v,
        cn.mask_adapters.from_allowed(often > 0),
        bias=often.clamp(min=1).double().log(),
    )
    assert_close(mix(spec, q, k, v, cn.Everyone()), want, tolerance=1e-10)


@torch.no_grad()
def test_more_rounds_come_nearer_to_full_attention_and_arrive() -> None:
    """Queries that are their own keys, as in the paper: the error falls with the rounds, to nothing."""
    q, v = noise(1, 2, 64, 16), noise(1, 2, 64, 8, seed=1)
    k = torch.nn.functional.rms_norm(q, (16,))
    full = cn.mask_adapters.from_allowed(~torch.eye(64, dtype=torch.bool))
    want = mix(cn.Softmax(), q, k, v, full)
    error = []
    for rounds in (1, 2, 4, 8, 16):
        got = [
            mix(cn.LSH(chunk=8, rounds=rounds, itself="alone", seed=seed), q, k, v, cn.Everyone())
            for seed in range(4)
        ]
        error.append(sum(float((x - want).abs().mean()) for x in got) / 4)
    assert error == sorted(error, reverse=True), error
    assert error[-1] < error[0] / 4, error
    everyone = mix(cn.LSH(chunk=16, rounds=64, itself="alone"), q, k, v, cn.Everyone())
    assert_close(everyone, want, tolerance=1e-10)


@torch.no_grad()
def test_one_chunk_is_full_attention_as_another_library_has_it() -> None:
    """reformer_pytorch's full shared attention, where a token sees itself only if it sees nobody else."""
    q, v = noise(2, 16, 12, dtype=torch.float32), noise(2, 16, 12, seed=1, dtype=torch.float32)
    full = reformer_pytorch.reformer_pytorch.FullQKAttention(causal=True)
    want = full(q, v)[0]
    k = torch.nn.functional.normalize(q, dim=-1)
    got = mix(
        cn.LSH(chunk=16, itself="alone"), q[:, None], k[:, None], v[:, None], cn.Causal(), scale=12**-0.5
    )
    assert_close(got[:, 0], want)


@pytest.mark.parametrize("rule", [cn.Everyone(), cn.Causal()], ids=["open", "causal"])
@pytest.mark.parametrize("repeats", ["once", "counted"])
def test_the_pattern_is_what_was_used_and_gradients_are_right(rule: cn.Mask, repeats: str) -> None:
    spec = cn.LSH(chunk=4, rounds=2, repeats=repeats, itself="alone")
    q, v = noise(2, 4, 21, 6), noise(2, 2, 21, 5, seed=2)
    k = torch.nn.functional.rms_norm(q, (6,))  # so that everyone meets at least themselves
    plain, record = mix(spec, q, k, v, rule), cn.Recorder()
    assert torch.equal(mix(spec, q, k, v, rule, tap=record.tap()), plain)
    weights = record["pattern"]
    assert_close(weights.sum(-1), torch.ones(2, 4, 21, dtype=torch.float64))
    assert_close(weights @ v.repeat_interleave(2, dim=1), plain)
    assert bool((weights == 0).any())
    if rule == cn.Causal():
        assert float(weights.triu(1).abs().max()) == 0  # no weight on what comes later
    assert_close(mix(spec, q, k, v, rule, tap=cn.Tap("pattern", lambda _, x: x * 2)), plain * 2)
    inputs = [x.clone().requires_grad_() for x in (q, k, v)]
    assert torch.autograd.gradcheck(lambda *x: mix(spec, *x, rule), inputs, fast_mode=True)


@torch.no_grad()
def test_each_text_is_hashed_alone() -> None:
    """Padding in front or behind and packing change nothing."""
    kernel = cn.LSH(chunk=4, rounds=2)
    model = single(block=block(attention=attention(kernel=kernel))).build(dtype=torch.float64)
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
    with pytest.raises(UnsupportedError, match="LSH attention cannot take fewer queries than keys"):
        decoder = single(causal=True, block=block(attention=attention(kernel=kernel))).build()
        cache = decoder.cache()
        decoder(ids(1, 3), cache=cache)
        decoder(ids(1, 1), cache=cache)


def _reversible(depth: int, dropout: float = 0.0) -> cn.SingleStackModel:
    spec = single(
        cn.TokenHead(vocab=VOCAB, tied=False),
        residual="reversible",
        depth=depth,
        causal=True,
        positions=cn.Rope(),
        block=block(dropout=dropout, feedforward=cn.MLP(hidden=40, dropout=dropout)),
        embed=cn.Tokens(vocab=VOCAB),
    )
    return spec.build(dtype=torch.float64)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_reversible_gradients_are_the_plain_ones(dropout: float) -> None:
    """A tap that listens to nothing makes the tower keep its graph: the plain computation."""
    model = _reversible(5, dropout).train()
    found = []
    for tap in (cn.OFF, cn.Tap("nowhere", lambda _, x: x)):
        model.zero_grad()
        with torch.random.fork_rng():
            torch.manual_seed(3)
            answer = model(ids(2, 9), tap=tap)
            answer.square().mean().backward()
            after = torch.get_rng_state()
        found.append((answer.detach(), after, [p.grad.clone() for p in model.parameters()]))
    (one, state_one, grads_one), (two, state_two, grads_two) = found
    assert torch.equal(one, two) and torch.equal(state_one, state_two)
    for a, b in zip(grads_one, grads_two, strict=True):
        assert_close(a, b, tolerance=1e-10)


def test_reversible_memory_does_not_grow_with_depth() -> None:
    kept: dict[int, int] = {}
    for depth in (2, 12):
        model, sizes = _reversible(depth), []
        weights = {p.data_ptr() for p in model.parameters()}

        def keep(x: Tensor, sizes: list[int] = sizes, weights: set[int] = weights) -> Tensor:
            sizes.append(0 if x.data_ptr() in weights else x.numel())
            return x

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
            model(ids(2, 32))
        kept[depth] = sum(sizes)
    assert kept[12] == kept[2]
    plain = single(depth=12, causal=True).build(dtype=torch.float64)
    sizes = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: (sizes.append(x.numel()), x)[1], lambda x: x):
        plain(ids(2, 32))
    assert sum(sizes) > 10 * kept[12]


def test_a_frozen_parameter_gets_nothing_and_asked_for_gradients_are_given() -> None:
    model = _reversible(3)
    frozen = model.tower.blocks[1].ff.up.weight
    frozen.requires_grad_(False)
    wanted = [p for p in model.parameters() if p.requires_grad]
    grads = torch.autograd.grad(model(ids(2, 9)).square().mean(), wanted)
    assert all(float(g.abs().max()) > 0 for g in grads) and frozen.grad is None


def test_what_cannot_be_reversed_is_refused() -> None:
    with pytest.raises(SpecError, match="pre-norm blocks"):
        single(cn.TokenHead(vocab=VOCAB, tied=False), residual="reversible", block=block(order="post"))
    with pytest.raises(SpecError, match="cannot train RelativeBuckets"):
        single(
            cn.TokenHead(vocab=VOCAB, tied=False), residual="reversible", positions=cn.RelativeBuckets()
        ).build()
    with pytest.raises(SpecError, match="needs a transform between"):
        single(residual="reversible")


def test_axial_positions_run_out_in_one_sentence() -> None:
    model = single(positions=cn.Axial(shape=(3, 4), widths=(10, 14))).build()
    model(ids(1, 12))
    with pytest.raises(InputError, match="13 tokens is longer than 12 axial positions"):
        model(ids(1, 13))
    with pytest.raises(SpecError, match="must sum to the width, 24"):
        single(positions=cn.Axial(shape=(3, 4), widths=(10, 10))).build()
