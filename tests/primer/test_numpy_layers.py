"""The NumPy primer's heads, positions and layers against torch, and against their formulas written out."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from arrays import (
    assert_close,
    attention_of,
    batch_of,
    decoder_layer_of,
    encoder_layer_of,
    numpied,
    refused,
    shaken,
)
from numpy.testing import assert_allclose, assert_array_equal
from torch import nn
from torch.nn import functional as F

from clearhead.primer import numpy as primer

# --- heads, against nn.MultiheadAttention ---------------------------------------------------------


@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_multi_head_attention_equals_torch(cross: bool, masked: bool) -> None:
    module = shaken(nn.MultiheadAttention(12, 3, batch_first=True))
    random = np.random.default_rng(0)
    query = random.normal(size=(2, 5, 12))
    memory = random.normal(size=(2, 7, 12)) if cross else query
    ids = random.integers(1, 9, size=memory.shape[:2])
    ids[1, 3:] = 0
    mask = primer.padding_mask(ids) if masked else None
    output, weights = primer.multi_head_attention(query, memory, attention_of(module), 3, mask)
    q, m = torch.from_numpy(query), torch.from_numpy(memory)
    expected, expected_weights = module(
        q,
        m,
        m,
        key_padding_mask=torch.from_numpy(ids == 0) if masked else None,
        average_attn_weights=False,
    )
    assert_close(output, numpied(expected))
    assert_close(weights, numpied(expected_weights))


def test_heads_share_one_projection_and_may_have_their_own_value_width() -> None:
    heads, width, head_width, value_width = 2, 6, 3, 5
    random = np.random.default_rng(0)

    def linear(fan_in: int, fan_out: int) -> primer.Linear:
        return primer.Linear(random.normal(size=(fan_in, fan_out)), random.normal(size=fan_out))

    weights = primer.Attention(
        linear(width, heads * head_width),
        linear(width, heads * head_width),
        linear(width, heads * value_width),
        linear(heads * value_width, width),
    )
    query, memory = random.normal(size=(1, 4, width)), random.normal(size=(1, 3, width))
    output, _ = primer.multi_head_attention(query, memory, weights, heads)

    def of_head(x: primer.Array, fused: primer.Linear, head: int) -> primer.Array:
        weight, bias = (np.split(a, heads, axis=-1)[head] for a in fused)
        return x @ weight + bias

    slices = [
        primer.basic_attention(
            of_head(query, weights.q, head),
            of_head(memory, weights.k, head),
            of_head(memory, weights.v, head),
        )[0]
        for head in range(heads)
    ]
    expected = np.concatenate(slices, axis=-1) @ weights.out.weight + weights.out.bias
    assert_close(output, expected)


def test_split_and_combine_are_inverse() -> None:
    x = np.random.default_rng(0).normal(size=(2, 5, 12))
    split = primer.split_heads(x, 3)
    assert split.shape == (2, 3, 5, 4)
    assert_array_equal(split[1, 2, 3], x[1, 3, 8:12])
    assert_array_equal(primer.combine_heads(split), x)


@pytest.mark.parametrize(("shape", "heads"), [((2, 5, 10), 3), ((5, 12), 3), ((2, 5, 12), 0)])
def test_a_width_that_does_not_split_is_refused(shape: tuple[int, ...], heads: int) -> None:
    with refused(f"(batch, tokens, width) must split into {heads} heads, given {shape}"):
        primer.split_heads(np.zeros(shape), heads)


def test_sentences_of_different_batches_are_not_mixed() -> None:
    weights = primer.init(0, source_vocab=5, target_vocab=5, width=4, depth=1)
    with refused("q, k and v must have the same batch and head axes"):
        primer.multi_head_attention(np.zeros((1, 3, 4)), np.zeros((2, 3, 4)), weights.encoder[0].attn, 2)
    with refused("q, k and v must have the same batch and head axes"):
        primer.transformer(np.ones((2, 3), int), np.ones((1, 3), int), weights, 2)


# --- positions ------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1, 2, 7, 8, 33, 64])
def test_positional_encoding_is_the_scalar_formula(width: int) -> None:
    table = primer.positional_encoding(300, width)
    assert table.dtype == np.float64
    assert table.shape == (300, width)
    for position in (0, 1, 2, 17, 299):
        for column in range(width):
            i = column // 2
            angle = position / 10000 ** (2 * i / width)
            expected = math.cos(angle) if column % 2 else math.sin(angle)
            assert table[position, column] == pytest.approx(expected, rel=0, abs=1e-12)


@pytest.mark.parametrize("width", [1, 7, 8])
def test_halves_are_the_same_columns_in_another_order(width: int) -> None:
    table = primer.positional_encoding(20, width)
    halves = primer.positional_encoding(20, width, layout="halves")
    assert_array_equal(halves, np.concatenate([table[:, 0::2], table[:, 1::2]], axis=1))


def test_positional_encoding_has_no_last_row_and_no_row_twice() -> None:
    table = primer.positional_encoding(5000, 16)
    assert len(np.unique(table, axis=0)) == 5000
    assert_array_equal(primer.positional_encoding(5001, 16)[:5000], table)


def test_an_offset_is_a_rotation() -> None:
    width, offset = 16, 5
    table = primer.positional_encoding(100, width)
    rotation = np.zeros((width, width))
    for i in range(0, width, 2):
        angle = offset / 10000 ** (i / width)
        sin, cos = math.sin(angle), math.cos(angle)
        rotation[i : i + 2, i : i + 2] = [[cos, sin], [-sin, cos]]
    assert_close(table[offset:], table[:-offset] @ rotation.T)


def test_an_unknown_layout_is_refused() -> None:
    with refused("layout must be 'interleaved' or 'halves', given 'half'"):
        primer.positional_encoding(2, 2, layout="half")  # type: ignore[arg-type]


# --- the parts of a layer -------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e3])  # at 1e-4, eps is larger than the variance
@pytest.mark.parametrize("width", [1, 4, 512])
@pytest.mark.parametrize("eps", [1e-5, 1e-12])
def test_layer_norm_equals_torch(scale: float, width: int, eps: float) -> None:
    random = np.random.default_rng(0)
    x, gamma, beta = (random.normal(size=s) for s in [(2, 3, width), (width,), (width,)])
    x *= scale
    tensors = [torch.from_numpy(a) for a in (x, gamma, beta)]
    expected = F.layer_norm(tensors[0], (width,), tensors[1], tensors[2], eps)
    assert_close(primer.layer_norm(x, gamma, beta, eps), expected)


def test_activations_equal_torch() -> None:
    x = np.concatenate([np.linspace(-12, 12, 4801), [-40.0, 0.0, 40.0]])
    assert_allclose(primer.gelu(x), F.gelu(torch.from_numpy(x)), rtol=0, atol=1e-14)
    assert_array_equal(primer.relu(x), F.relu(torch.from_numpy(x)))
    assert primer.gelu(x.astype(np.float32)).dtype == np.float32


def test_gelu_keeps_its_digits_far_below_zero() -> None:
    tail = 7.619853024160526066e-24  # mpmath.ncdf(-10) with 40 digits
    assert primer.gelu(np.array([-10.0]))[0] == pytest.approx(-10 * tail, rel=1e-12, abs=0)


def test_feed_forward_is_its_formula() -> None:
    random = np.random.default_rng(0)
    x, w1, b1, w2, b2 = (random.normal(size=s) for s in [(3, 4), (4, 6), (6,), (6, 4), (4,)])
    weights = primer.FeedForward(primer.Linear(w1, b1), primer.Linear(w2, b2))
    assert_close(primer.feed_forward(x, weights), np.maximum(0, x @ w1 + b1) @ w2 + b2)
    expected = F.gelu(torch.from_numpy(x @ w1 + b1)).numpy() @ w2 + b2
    assert_close(primer.feed_forward(x, weights, primer.gelu), expected)


# --- layers, against torch.nn ---------------------------------------------------------------------


@pytest.mark.parametrize("order", ["post", "pre"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_encoder_layer_equals_torch(order: primer.Order, activation: str) -> None:
    layer = shaken(
        nn.TransformerEncoderLayer(
            8,
            2,
            16,
            activation=activation,
            norm_first=order == "pre",
            batch_first=True,
            layer_norm_eps=1e-3,
        )
    )
    x, padded = batch_of(6, seed=0)
    mask = ~padded[:, None, None, :]
    function = getattr(primer, activation)
    output = primer.encoder_layer(x, encoder_layer_of(layer), 2, mask, order, function)
    # Not under no_grad: torch's fused path would fill the padding with zeros.
    expected = layer(torch.from_numpy(x), src_key_padding_mask=torch.from_numpy(padded))
    assert_close(output, numpied(expected))


@pytest.mark.parametrize("order", ["post", "pre"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_decoder_layer_equals_torch(order: primer.Order, activation: str) -> None:
    layer = shaken(
        nn.TransformerDecoderLayer(
            8,
            2,
            16,
            activation=activation,
            norm_first=order == "pre",
            batch_first=True,
            layer_norm_eps=1e-3,
        )
    )
    x, x_padded = batch_of(5, seed=0)
    memory, memory_padded = batch_of(7, seed=1)
    output = primer.decoder_layer(
        x,
        memory,
        decoder_layer_of(layer),
        2,
        mask=~x_padded[:, None, None, :] & primer.causal_mask(5),
        source_mask=~memory_padded[:, None, None, :],
        order=order,
        activation=getattr(primer, activation),
    )
    expected = layer(
        torch.from_numpy(x),
        torch.from_numpy(memory),
        tgt_mask=torch.from_numpy(~primer.causal_mask(5)),
        tgt_key_padding_mask=torch.from_numpy(x_padded),
        memory_key_padding_mask=torch.from_numpy(memory_padded),
    )
    assert_close(output, numpied(expected))


def test_an_unknown_order_is_refused() -> None:
    weights = primer.init(0, source_vocab=5, target_vocab=5, width=4, depth=1)
    with refused("order must be 'post' or 'pre', given 'norm_first'"):
        primer.encoder_layer(np.zeros((1, 2, 4)), weights.encoder[0], 2, order="norm_first")  # type: ignore[arg-type]
