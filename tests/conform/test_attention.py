"""Attention against torch's own modules, and the laws of kernels and position schemes."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from mixing import KERNELS, mix, noise, view
from tolerance import assert_close
from torch import Tensor, nn
from zoo import CHOICES, block, ids, single

from clearhead import nn as cn
from clearhead.nn import kernels
from clearhead.nn.context import Context
from clearhead.nn.kernels.softmax import attention_weights
from clearhead.nn.positions import BoundPositions
from clearhead.spec import Dims

kernel_law = pytest.mark.parametrize("spec", KERNELS.values(), ids=KERNELS)


def copy(ours: nn.Linear, weight: Tensor, bias: Tensor | None) -> None:
    with torch.no_grad():
        ours.weight.copy_(weight)
        if bias is not None:
            ours.bias.copy_(bias)


def copy_attention(ours: nn.Module, theirs: nn.MultiheadAttention) -> None:
    for part, weight, bias in zip(
        "qkv", theirs.in_proj_weight.chunk(3), theirs.in_proj_bias.chunk(3), strict=True
    ):
        copy(getattr(ours, part), weight, bias)
    copy(ours.out, theirs.out_proj.weight, theirs.out_proj.bias)


def copy_norm(ours: nn.Module, theirs: nn.LayerNorm) -> None:
    ours.load_state_dict(theirs.state_dict())


def shaken(module: nn.Module) -> nn.Module:
    """Every parameter moved: norms start at one and biases at zero, which would hide errors."""
    key = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for p in module.parameters():
            p.add_(torch.randn(p.shape, generator=key, dtype=p.dtype) * 0.1)
    return module.eval()


@pytest.mark.parametrize("causal", [False, True], ids=["open", "causal"])
@torch.no_grad()
def test_equals_torch_multihead_attention(causal: bool) -> None:
    theirs = shaken(nn.MultiheadAttention(24, 4, batch_first=True, dtype=torch.float64))
    ours = cn.Attention(heads=4, bias="qkvo").build(24).double()
    copy_attention(ours, theirs)
    x, real = noise(2, 7, 24), torch.ones(2, 7, dtype=torch.bool)
    real[1, 5:] = False
    rule = cn.Padding(real) & cn.Causal() if causal else cn.Padding(real)
    blocked = torch.ones(7, 7, dtype=torch.bool).triu(1) if causal else None
    want, weights = theirs(x, x, x, key_padding_mask=~real, attn_mask=blocked, average_attn_weights=False)
    record = cn.Recorder()
    got = ours(x, Context(view(rule, 2, 7, 7), BoundPositions(), tap=record.tap()))
    assert_close(got, want)
    assert_close(record["pattern"], weights)


@torch.no_grad()
def test_cross_attention_equals_torch_with_another_memory_width() -> None:
    theirs = nn.MultiheadAttention(24, 4, batch_first=True, kdim=18, vdim=18, dtype=torch.float64)
    shaken(theirs)
    ours = cn.Attention(heads=4, bias="qkvo").build_cross(24, 18).double()
    projections = (theirs.q_proj_weight, theirs.k_proj_weight, theirs.v_proj_weight)
    for part, weight, bias in zip("qkv", projections, theirs.in_proj_bias.chunk(3), strict=True):
        copy(getattr(ours, part), weight, bias)
    copy(ours.out, theirs.out_proj.weight, theirs.out_proj.bias)
    x, memory = noise(2, 5, 24), noise(2, 9, 18, seed=1)
    everyone = view(cn.Everyone(), 2, 5, 9)
    ctx = Context(view(cn.Causal(), 2, 5, 5), BoundPositions(), encoder_output=memory, encoder_view=everyone)
    assert_close(ours(x, ctx), theirs(x, memory, memory, need_weights=False)[0])


@pytest.mark.parametrize("order", ["post", "pre"])
@pytest.mark.parametrize("act", ["relu", "gelu"])
@torch.no_grad()
def test_a_block_equals_torch_encoder_layer(order: str, act: str) -> None:
    theirs = nn.TransformerEncoderLayer(
        24, 4, 40, activation=act, batch_first=True, norm_first=order == "pre", dtype=torch.float64
    )
    shaken(theirs)
    spec = cn.Block(
        attention=cn.Attention(heads=4, bias="qkvo"), feedforward=cn.MLP(hidden=40, act=act), order=order
    )
    ours = spec.build(24, 24).double().eval()
    copy_attention(ours.attn, theirs.self_attn)
    copy(ours.ff.up, theirs.linear1.weight, theirs.linear1.bias)
    copy(ours.ff.down, theirs.linear2.weight, theirs.linear2.bias)
    copy_norm(ours.attn_norm, theirs.norm1)
    copy_norm(ours.ff_norm, theirs.norm2)
    x, real = noise(2, 7, 24), torch.ones(2, 7, dtype=torch.bool)
    real[1, 5:] = False
    got = ours(x, Context(view(cn.Padding(real), 2, 7, 7), BoundPositions()))
    want = theirs(x, src_key_padding_mask=~real)
    assert_close(got[0], want[0])
    assert_close(got[1, :5], want[1, :5])  # torch's fast path may leave zeros at padded queries


@pytest.mark.parametrize("order", ["post", "pre"])
@torch.no_grad()
def test_a_block_equals_torch_decoder_layer(order: str) -> None:
    theirs = nn.TransformerDecoderLayer(
        24, 4, 40, batch_first=True, norm_first=order == "pre", dtype=torch.float64
    )
    shaken(theirs)
    heads = cn.Attention(heads=4, bias="qkvo")
    spec = cn.Block(attention=heads, cross=heads, feedforward=cn.MLP(hidden=40, act="relu"), order=order)
    ours = spec.build(24, 24).double().eval()
    copy_attention(ours.attn, theirs.self_attn)
    copy_attention(ours.cross, theirs.multihead_attn)
    copy(ours.ff.up, theirs.linear1.weight, theirs.linear1.bias)
    copy(ours.ff.down, theirs.linear2.weight, theirs.linear2.bias)
    for name, norm in zip(("attn", "cross", "ff"), (theirs.norm1, theirs.norm2, theirs.norm3), strict=True):
        copy_norm(getattr(ours, f"{name}_norm"), norm)
    x, memory, real = noise(2, 6, 24), noise(2, 8, 24, seed=1), torch.ones(2, 8, dtype=torch.bool)
    real[0, 6:] = False
    blocked = torch.ones(6, 6, dtype=torch.bool).triu(1)
    want = theirs(x, memory, tgt_mask=blocked, memory_key_padding_mask=~real)
    across = view(cn.Padding(real), 2, 6, 8)
    ctx = Context(view(cn.Causal(), 2, 6, 6), BoundPositions(), encoder_output=memory, encoder_view=across)
    assert_close(ours(x, ctx), want)


def exact(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor, scale: float) -> Tensor:
    """Fifteen lines of loops, the definition itself."""
    out = torch.zeros(*q.shape[:3], v.shape[-1], dtype=q.dtype)
    group = q.shape[1] // k.shape[1]
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            for i in range(q.shape[2]):
                seen = [j for j in range(k.shape[2]) if allowed[b, i, j]]
                if not seen:
                    continue
                scores = [float(q[b, h, i] @ k[b, h // group, j]) * scale for j in seen]
                weights = [math.exp(s - max(scores)) for s in scores]
                for j, w in zip(seen, weights, strict=True):
                    out[b, h, i] += w / sum(weights) * v[b, h // group, j]
    return out


@given(
    queries=st.integers(1, 6), keys=st.integers(1, 7), heads=st.sampled_from([(1, 1), (4, 2), (3, 1)]),
    widths=st.tuples(st.integers(1, 5), st.integers(1, 5)), seed=st.integers(0, 99), data=st.data(),
)  # fmt: skip
def test_softmax_equals_the_definition(
    queries: int, keys: int, heads: tuple[int, int], widths: tuple[int, int], seed: int, data: st.DataObject
) -> None:
    q, k = (
        noise(2, heads[0], queries, widths[0], seed=seed),
        noise(2, heads[1], keys, widths[0], seed=seed + 1),
    )
    v = noise(2, heads[1], keys, widths[1], seed=seed + 2)
    flags = st.lists(st.booleans(), min_size=queries * keys, max_size=queries * keys)
    allowed = torch.tensor([data.draw(flags), data.draw(flags)]).reshape(2, queries, keys)
    over = view(cn.mask_adapters.from_allowed(allowed), 2, queries, keys)
    want = exact(q, k, v, allowed, 0.7)
    assert_close(mix(cn.Softmax(), q, k, v, over, scale=0.7), want)
    plain = attention_weights(cn.AttentionCall(q, k, v, over, scale=0.7))
    assert_close(plain @ v.repeat_interleave(heads[0] // heads[1], dim=1), want)


@kernel_law
def test_an_all_blocked_row_is_zero_with_zero_gradient(spec: kernels.AttentionKernel) -> None:
    kernel = spec.build(2, 4)
    if "mask" not in kernel.supports:
        pytest.skip(f"{type(spec).__name__} takes no arbitrary mask")
    allowed = torch.tensor([[True, True, False], [False, False, False], [False, True, True]])
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        for bias in (None, torch.ones(1, 2, 3, 3, dtype=dtype)) if "bias" in kernel.supports else (None,):
            for tap in (cn.OFF, cn.Tap("pattern", lambda _, x: x * 1)):  # fused, and the plain formula
                q, k, v = (noise(1, 2, 3, 4, seed=s).to(dtype).requires_grad_() for s in range(3))
                over = view(cn.mask_adapters.from_allowed(allowed), 1, 3, 3)
                out = kernel(cn.AttentionCall(q, k, v, over, bias=bias, scale=0.5), tap)
                out.sum().backward()
                assert torch.equal(out[:, :, 1], torch.zeros_like(out[:, :, 1]))
                assert torch.equal(q.grad[:, :, 1], torch.zeros_like(q.grad[:, :, 1]))
                assert all(bool(x.grad.isfinite().all()) for x in (q, k, v))
                if "uneven" not in kernel.supports:
                    continue  # it cannot be asked about the other rows alone
                alone = [x.detach().clone().requires_grad_() for x in (q, k, v)]
                rows = view(cn.mask_adapters.from_allowed(allowed[[0, 2]]), 1, 2, 3)
                less = None if bias is None else bias[:, :, [0, 2]]
                fewer = cn.AttentionCall(alone[0][:, :, [0, 2]], *alone[1:], rows, bias=less, scale=0.5)
                kernel(fewer, tap).sum().backward()
                assert_close(k.grad, alone[1].grad)  # the blocked row gave nothing to anyone


@kernel_law
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_scores_of_ten_thousand_stay_finite_in_half_precision(
    spec: kernels.AttentionKernel, dtype: torch.dtype
) -> None:
    """Before the scale they are 80,000, more than float16 can hold."""
    q, v = torch.full((1, 2, 3, 8), 100.0, dtype=dtype), noise(1, 2, 3, 4).to(dtype)
    k = q * torch.tensor([1.0, 0.99, -1.0], dtype=dtype)[:, None]
    real = torch.tensor([[True, True, False]])
    for rule in (cn.Everyone(), cn.Padding(real)):
        for tap in (cn.OFF, cn.Tap("pattern", lambda _, x: x * 1)):
            out = mix(spec, q, k, v, view(rule, 1, 3, 3), scale=0.125, tap=tap)
            assert out.dtype == dtype and bool(out.isfinite().all())


@given(groups=st.sampled_from([1, 2, 4]), length=st.integers(1, 9), seed=st.integers(0, 99))
def test_grouped_heads_equal_repeated_ones(groups: int, length: int, seed: int) -> None:
    q = noise(2, 4, length, 6, seed=seed)
    k, v = (noise(2, groups, length, 6, seed=seed + n) for n in (1, 2))
    over = view(cn.Causal(), 2, length, length)
    repeated = (x.repeat_interleave(4 // groups, dim=1) for x in (k, v))
    assert_close(mix(cn.Softmax(), q, k, v, over), mix(cn.Softmax(), q, *repeated, over))


def test_a_kernel_refuses_what_it_cannot_do() -> None:
    class _Plain(cn.Kernel):
        supports = frozenset({"causal"})

    q = noise(1, 1, 3, 4)
    real = torch.tensor([[True, True, False]])
    with pytest.raises(NotImplementedError, match="Plain attention cannot take a mask"):
        _Plain()(cn.AttentionCall(q, q, q, view(cn.Padding(real), 1, 3, 3)))
    with pytest.raises(NotImplementedError, match="fewer queries than keys"):
        _Plain()(cn.AttentionCall(q[:, :, :1], q, q, view(cn.Everyone(), 1, 1, 3)))


RELATIVE = {n: c["positions"] for n, c in CHOICES.items() if isinstance(c.get("positions"), cn.Rope)}


@pytest.mark.parametrize("spec", RELATIVE.values(), ids=RELATIVE)
@given(shift=st.integers(1, 200))
def test_rotary_scores_depend_on_the_offset_only(spec: cn.Rope, shift: int) -> None:
    if isinstance(spec.stretch, cn.DynamicNTK):
        spec = cn.Rope(stretch=cn.DynamicNTK(factor=2.0, length=1000))  # within its trained length
    if isinstance(spec.stretch, cn.LongRope):  # the same, with a factor for each pair of channels
        factors = {"short": (1.0, 1.1, 1.2, 1.4, 1.7, 2.0), "long": (2.0,) * 6}
        spec = cn.Rope(stretch=cn.LongRope(length=1000, **factors))
    scheme = spec.build(Dims(width=48, depth=1, heads=4, head_dim=12, causal=True), 48)
    q, k = noise(1, 4, 5, 12), noise(1, 4, 5, 12, seed=1)

    def scores(start: int) -> Tensor:
        pos = torch.arange(start, start + 5)[None]
        placed = scheme.bind(cn.View(cn.Causal(), 1, pos, pos))
        return placed.rotate_q(q) @ placed.rotate_k(k).mT

    assert_close(scores(0), scores(shift), tolerance=1e-11)  # angles of 200 radians have fewer digits left


@pytest.mark.parametrize("order", ["pre", "post", "sandwich", "parallel"])
def test_without_positions_a_permuted_input_gives_a_permuted_output(order: str) -> None:
    model = single(positions=cn.NoPositions(), block=block(order=order)).build(dtype=torch.float64)
    x, shuffle = ids(2, 7), torch.randperm(7, generator=torch.Generator().manual_seed(3))
    assert_close(model(x[:, shuffle]), model(x)[:, shuffle])
    placed = single(block=block(order=order)).build(dtype=torch.float64)
    assert (placed(x[:, shuffle]) - placed(x)[:, shuffle]).abs().max() > 1e-3
