"""The core against the NumPy primer, which knows nothing of it: equal in float64 to 1e-12."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tolerance import assert_close
from torch import Tensor, nn

import clearhead.primer.numpy as primer
from clearhead import nn as cn
from clearhead.nn.context import Context
from clearhead.nn.positions import BoundPositions

ACT = {"relu": primer.relu, "gelu": primer.gelu}


def spec(order: str, act: str, depth: int) -> cn.EncoderDecoder:
    attention = cn.Attention(heads=4, bias="qkvo")
    block = cn.Block(attention=attention, feedforward=cn.MLP(hidden=32, act=act), order=order)
    encoder = cn.Tower(
        width=16, depth=depth, embed=cn.Tokens(vocab=23, scale=4.0), block=block, positions=cn.Sinusoidal(),
        last_norm=cn.norm.Layer() if order == "pre" else None,
    )  # fmt: skip
    decoder = replace(encoder, causal=True, embed=cn.Tokens(vocab=19, scale=4.0))
    decoder = replace(decoder, block=replace(block, cross=attention))
    head = cn.TokenHead(vocab=19, tied=False, bias=True)
    return cn.EncoderDecoder(
        encoder=encoder, decoder=decoder, head=head, shared=False, init=cn.Normal(std=0.3)
    )


def shaken(model: nn.Module) -> nn.Module:
    key = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=key, dtype=p.dtype) * 0.2 + (p.ndim == 1))
    return model.eval()


def array(x: Tensor) -> np.ndarray:
    return x.detach().numpy()


def linear(x: nn.Linear) -> primer.Linear:
    return primer.Linear(array(x.weight).T, array(x.bias))


def norm(x: nn.LayerNorm) -> primer.Norm:
    return primer.Norm(array(x.weight), array(x.bias), x.eps)


def attention(x: nn.Module) -> primer.Attention:
    return primer.Attention(*(linear(getattr(x, part)) for part in ("q", "k", "v", "out")))


def feedforward(x: nn.Module) -> primer.FeedForward:
    return primer.FeedForward(linear(x.up), linear(x.down))


def encoder_layer(b: nn.Module) -> primer.EncoderLayer:
    return primer.EncoderLayer(attention(b.attn), norm(b.attn_norm), feedforward(b.ff), norm(b.ff_norm))


def decoder_layer(b: nn.Module) -> primer.DecoderLayer:
    own = attention(b.attn), norm(b.attn_norm)
    cross = attention(b.cross), norm(b.cross_norm)
    return primer.DecoderLayer(*own, *cross, feedforward(b.ff), norm(b.ff_norm))


def weights(model: cn.EncoderDecoderModel) -> primer.Transformer:
    encoder, decoder = model.encoder, model.decoder
    return primer.Transformer(
        array(encoder.embed.table.weight),
        array(decoder.embed.table.weight),
        tuple(map(encoder_layer, encoder.blocks)),
        tuple(map(decoder_layer, decoder.blocks)),
        primer.Linear(array(model.head.weight).T, array(model.head.bias)),
        None if encoder.norm is None else norm(encoder.norm),
        None if decoder.norm is None else norm(decoder.norm),
    )


@pytest.mark.parametrize("act", ["relu", "gelu"])
@pytest.mark.parametrize("order", ["post", "pre"])
@given(
    source=st.integers(1, 9), target=st.integers(1, 7), pads=st.tuples(st.integers(0, 3), st.integers(0, 3))
)
@torch.no_grad()
def test_a_whole_transformer(order: str, act: str, source: int, target: int, pads: tuple[int, int]) -> None:
    model = shaken(spec(order, act, depth=2).build(dtype=torch.float64))
    key = torch.Generator().manual_seed(source * 10 + target)
    src = torch.randint(1, 23, (2, source + 3), generator=key)
    tgt = torch.randint(1, 19, (2, target + 3), generator=key)
    src[1, : pads[0]], tgt[1, target + pads[1] :] = 0, 0  # id 0 is padding: in front here, behind there
    want = primer.transformer(src.numpy(), tgt.numpy(), weights(model), 4, order=order, activation=ACT[act])
    got = model(src, tgt, src != 0, tgt != 0)
    real = tgt != 0
    assert_close(got[real], torch.from_numpy(want)[real])


@given(queries=st.integers(1, 6), keys=st.integers(1, 6), data=st.data())
@torch.no_grad()
def test_multi_head_attention_and_its_weights(queries: int, keys: int, data: st.DataObject) -> None:
    ours = shaken(cn.Attention(heads=4, bias="qkvo").build_cross(16, 16).double())
    key = torch.Generator().manual_seed(1)
    x, memory = (torch.randn(2, n, 16, generator=key, dtype=torch.float64) for n in (queries, keys))
    flags = st.lists(st.booleans(), min_size=2 * queries * keys, max_size=2 * queries * keys)
    allowed = torch.tensor(data.draw(flags)).reshape(2, 1, queries, keys)
    want, pattern = primer.multi_head_attention(
        x.numpy(), memory.numpy(), attention(ours), 4, allowed.numpy()
    )
    slots, record = torch.arange(keys)[None], cn.Recorder()
    view = cn.View(cn.mask_adapters.from_allowed(allowed), 2, torch.arange(queries)[None], slots)
    ctx = Context(view, BoundPositions(), encoder_output=memory, encoder_view=view, tap=record.tap())
    assert_close(ours(x, ctx), torch.from_numpy(want))
    assert_close(record["pattern"], torch.from_numpy(pattern))


@given(queries=st.integers(1, 5), keys=st.integers(1, 5), seed=st.integers(0, 50))
def test_the_backward_of_attention(queries: int, keys: int, seed: int) -> None:
    key = torch.Generator().manual_seed(seed)
    q, k, v, grad = (
        torch.randn(2, 3, n, 4, generator=key, dtype=torch.float64) for n in (queries, keys, keys, queries)
    )
    allowed = torch.rand(2, 3, queries, keys, generator=key) < 0.7
    want = primer.attention_backward(q.numpy(), k.numpy(), v.numpy(), allowed.numpy(), 0.5, grad.numpy())
    inputs = [x.requires_grad_() for x in (q, k, v)]
    view = cn.View(
        cn.mask_adapters.from_allowed(allowed), 2, torch.arange(queries)[None], torch.arange(keys)[None]
    )
    out = cn.Softmax().build(3, 4)(cn.AttentionCall(*inputs, view, scale=0.5))
    for got, expected in zip(torch.autograd.grad(out, inputs, grad), want, strict=True):
        assert_close(got, torch.from_numpy(expected))


@pytest.mark.parametrize("layout", ["interleaved", "halves"])
@pytest.mark.parametrize("width", [8, 9])
def test_positional_encodings(layout: str, width: int) -> None:
    ours = cn.waves(torch.arange(40)[None], width, cn.Sinusoidal(layout=layout))[0]
    assert_close(ours, torch.from_numpy(primer.positional_encoding(40, width, layout=layout)))
