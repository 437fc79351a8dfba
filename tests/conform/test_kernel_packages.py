"""Kernels against packages that nobody here wrote, with their projections and under their masks."""

import importlib
import warnings
from types import ModuleType, SimpleNamespace

import pytest
import torch
from mixing import mix, noise, view
from tolerance import assert_close
from torch import Tensor

from clearhead import nn as cn
from clearhead.nn import kernels


def package(name: str) -> ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some warn of their own dependencies when they are imported
        return importlib.import_module(name)


def qkv(length: int, batch: int = 2, heads: int = 3, width: int = 8) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = (noise(batch, heads, length, width, seed=s) for s in range(3))
    return q, k, v


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "open"])
@pytest.mark.parametrize("window", [4, 40])
@torch.no_grad()
def test_window_equals_local_attention(window: int, causal: bool) -> None:
    theirs = package("local_attention").LocalAttention(
        window_size=window, causal=causal, exact_windowsize=True, autopad=True, use_rotary_pos_emb=False
    )
    real = torch.ones(2, 333, dtype=torch.bool)
    real[1, -50:] = False
    q, k, v = qkv(333)
    rule = cn.Padding(real) & cn.Causal() if causal else cn.Padding(real)
    got = mix(kernels.Window(left=window), q, k, v, view(rule, 2, 333, 333))
    want = theirs(*(x.flatten(0, 1) for x in (q, k, v)), mask=real).reshape(q.shape)
    assert_close(got.transpose(1, 2)[real], want.transpose(1, 2)[real])


@pytest.mark.parametrize("share", ["kv", "heads"])
@torch.no_grad()
def test_linformer_equals_the_package(share: str) -> None:
    theirs = package("linformer").LinformerSelfAttention(24, 30, k=7, heads=3, share_kv=False).double().eval()
    if share == "kv":
        theirs.proj_v.copy_(theirs.proj_k)
    spec = cn.Attention(heads=3, bias="o", kernel=kernels.Linformer(rank=7, length=30, share=share))
    ours = spec.build(24).double()
    for mine, other in zip("qkv", (theirs.to_q, theirs.to_k, theirs.to_v), strict=True):
        getattr(ours, mine).weight.copy_(other.weight)
    ours.out.load_state_dict(theirs.to_out.state_dict())
    ours.kernel.k.copy_(theirs.proj_k)
    ours.kernel.v.copy_(theirs.proj_v)
    for length in (30, 17):
        x = noise(2, length, 24)
        ctx = SimpleNamespace(
            positions=cn.BoundPositions(),
            view=view(cn.Everyone(), 2, length, length),
            cache=None,
            tap=cn.OFF,
            prefix=None,
        )
        ctx.layer, ctx.source = 0, None
        assert_close(ours(x, ctx), theirs(x))


@torch.no_grad()
def test_nystrom_equals_the_package() -> None:
    """One row and one head at a time: theirs scales the first guess of the inverse by the whole batch."""
    theirs = package("nystrom_attention").NystromAttention(
        8, dim_head=8, heads=1, num_landmarks=5, residual=False
    )
    theirs = theirs.double().eval()
    x = noise(1, 40, 8)
    q, k, v = theirs.to_qkv(x)[:, None].chunk(3, dim=-1)
    got = mix(kernels.Nystrom(landmarks=5), q, k, v, view(cn.Everyone(), 1, 40, 40))
    assert_close(theirs.to_out(got[:, 0]), theirs(x), tolerance=1e-6)  # theirs keeps its identity in float32
    real = torch.ones(1, 40, dtype=torch.bool)
    assert_close(theirs(x, mask=real), theirs(x), tolerance=1e-6)


@pytest.mark.parametrize("causal", [False, True], ids=["open", "causal"])
@torch.no_grad()
def test_performer_equals_the_package_with_the_same_directions(causal: bool) -> None:
    """Features made by theirs without the small number that it adds to each, which would bias them."""
    theirs = package("performer_pytorch.performer_pytorch")
    q, k, v = qkv(70)
    kernel = kernels.Performer(features=32).build(3, 8).double()
    w = kernel.directions(q)
    over = view(cn.Causal() if causal else cn.Everyone(), 2, 70, 70)
    got = kernel(cn.AttentionCall(q, k, v, over, scale=8**-0.5))
    phi_q, phi_k = (
        theirs.softmax_kernel(x, projection_matrix=w, is_query=is_query, eps=0.0)
        for x, is_query in ((q, True), (k, False))
    )
    if causal:
        want = theirs.causal_linear_attention_noncuda(phi_q, phi_k, v, chunk_size=7, eps=0.0)
    else:
        want = theirs.linear_attention(phi_q, phi_k, v)
    assert_close(got, want, tolerance=1e-10)


@torch.no_grad()
def test_performers_directions_have_the_spread_of_the_package() -> None:
    """Lengths of normal draws, blocks of orthogonal directions."""
    theirs = package("performer_pytorch.performer_pytorch")
    w = kernels.Performer(features=640).build(1, 64).directions(torch.zeros(1, 64))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        other = theirs.gaussian_orthogonal_random_matrix(640, 64)
    assert abs(w.norm(dim=1).mean() - other.norm(dim=1).mean()) < 0.15
    block = w[:64] / w[:64].norm(dim=1, keepdim=True)
    assert_close(block @ block.mT, torch.eye(64))


@pytest.mark.parametrize("causal", [False, True], ids=["open", "causal"])
@torch.no_grad()
def test_linear_equals_loops(causal: bool) -> None:
    """The paper's formula, one query at a time (Katharopoulos 2020, equations 4 and 9)."""
    q, k, v = qkv(20, batch=1, heads=1)
    phi = lambda x: torch.where(x > 0, x + 1, x.exp())  # noqa: E731
    want = torch.zeros_like(v)
    for i in range(20):
        seen = range(i + 1) if causal else range(20)
        top = sum(phi(q[0, 0, i]) @ phi(k[0, 0, j]) * v[0, 0, j] for j in seen)
        want[0, 0, i] = top / sum(phi(q[0, 0, i]) @ phi(k[0, 0, j]) for j in seen)
    over = view(cn.Causal() if causal else cn.Everyone(), 1, 20, 20)
    assert_close(mix(kernels.Linear(), q, k, v, over), want)


@torch.no_grad()
def test_tiled_equals_torchs_own_flash_attention() -> None:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q, k, v = (x.float() for x in qkv(150))
    over = view(cn.Causal(), 2, 150, 150)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        want = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert_close(mix(kernels.Tiled(tile=32), q, k, v, over), want)


@pytest.mark.parametrize("causal", [False, True], ids=["open", "causal"])
@torch.no_grad()
def test_a_sink_is_that_of_gpt_oss(causal: bool) -> None:
    eager = importlib.import_module("transformers.models.gpt_oss.modeling_gpt_oss").eager_attention_forward
    q, (k, v) = noise(2, 4, 9, 6), (noise(2, 2, 9, 6, seed=s) for s in (1, 2))
    sinks = noise(4, seed=3)
    kernel = cn.Softmax(sink=True).build(4, 6).double()
    kernel.sink.copy_(sinks)
    over = view(cn.Causal() if causal else cn.Everyone(), 2, 9, 9)
    record = cn.Recorder()
    got = kernel(cn.AttentionCall(q, k, v, over, bias=None, scale=0.3), record.tap("pattern"))
    module = SimpleNamespace(num_key_value_groups=2, sinks=sinks, training=False)
    mask = (
        torch.zeros(9, 9).double().masked_fill(~torch.ones(9, 9).bool().tril(), float("-inf"))
        if causal
        else None
    )
    want, weights = eager(module, q, k, v, mask, 0.3)
    assert_close(got, want.transpose(1, 2))
    assert_close(record["pattern"], weights)
