"""The NumPy primer against torch, against its own formulas written out, and against misuse."""

from __future__ import annotations

import doctest
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from torch import Tensor, nn
from torch.nn import functional as F

from clearhead.primer import numpy as primer

SHAPES = [  # batch and head axes, queries, keys, width of q and k, width of v
    ((), 3, 3, 4, 4),
    ((), 2, 5, 4, 7),
    ((2,), 5, 3, 8, 2),
    ((2, 3), 4, 6, 5, 3),
]


def assert_close(actual: Any, expected: Any) -> None:
    assert_allclose(actual, expected, rtol=1e-12, atol=1e-12)


def random_qkv(shape: tuple[Any, ...]) -> tuple[primer.Array, primer.Array, primer.Array]:
    lead, queries, keys, width, value_width = shape
    random = np.random.default_rng(0)
    return (
        random.normal(size=(*lead, queries, width)),
        random.normal(size=(*lead, keys, width)),
        random.normal(size=(*lead, keys, value_width)),
    )


def random_mask(shape: tuple[Any, ...]) -> primer.Mask:
    """Some keys blocked, and no query without a key."""
    mask = np.random.default_rng(1).random((*shape[0], shape[1], shape[2])) < 0.6
    mask[..., 0] = True
    assert not mask.all()
    return mask


def torch_attention(q: Any, k: Any, v: Any, mask: primer.Mask | None = None, **more: Any) -> Tensor:
    q, k, v = (x if isinstance(x, Tensor) else torch.from_numpy(x) for x in (q, k, v))
    attn_mask = None if mask is None else torch.from_numpy(mask)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask, **more)


def numpied(x: Tensor) -> primer.Array:
    return x.detach().numpy()


# --- softmax --------------------------------------------------------------------------------------


def test_softmax_finishes_the_cat_sat() -> None:
    scaled = np.array([12.5, 30.8, 25.1]) / 8
    assert_allclose(scaled, [1.56, 3.85, 3.14], atol=0.005)
    assert_array_equal(primer.softmax(scaled).round(4), [0.0638, 0.6282, 0.3081])


def test_softmax_survives_large_scores() -> None:
    assert_array_equal(primer.softmax([1000, 1000]), [0.5, 0.5])
    assert_array_equal(primer.softmax(np.array([-1e9, -1e9, -np.inf])), [0.5, 0.5, 0])


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmax_equals_torch_on_any_axis(axis: int) -> None:
    x = np.random.default_rng(0).normal(scale=20, size=(3, 4, 5))
    assert_close(primer.softmax(x, axis), torch.from_numpy(x).softmax(axis))


def test_softmax_of_nothing_is_zeros() -> None:
    x = np.array([[-np.inf, -np.inf], [0, -np.inf]])
    assert_array_equal(primer.softmax(x), [[0, 0], [1, 0]])
    assert primer.softmax(np.zeros((2, 0))).shape == (2, 0)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_softmax_answers_in_the_type_it_was_asked_in(dtype: type) -> None:
    weights = primer.softmax(np.array([1e4, 1e4], dtype))
    assert weights.dtype == dtype
    assert_array_equal(weights, [0.5, 0.5])


def test_softmax_lets_nan_through() -> None:
    assert np.isnan(primer.softmax([np.nan, 0.0])).all()


# --- attention ------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("scale", [None, 0.3, 0.0])
@pytest.mark.parametrize("masked", [False, True])
def test_attention_equals_torch(shape: tuple[Any, ...], scale: float | None, masked: bool) -> None:
    q, k, v = random_qkv(shape)
    mask = random_mask(shape) if masked else None
    output, weights = primer.scaled_dot_product_attention(q, k, v, mask, scale)
    expected = torch_attention(q, k, v, mask, scale=scale)
    assert_close(output, expected)
    assert_close(weights @ v, expected)
    assert_close(weights.sum(-1), np.ones(weights.shape[:-1]))
    if mask is not None:
        assert (weights[~mask] == 0).all()
    else:
        assert (weights > 0).all()


def test_attention_scores_pair_each_query_with_each_key() -> None:
    # Square on purpose: a transpose that does nothing would go unnoticed in the shapes.
    q, k, v = random_qkv(((), 4, 4, 4, 4))
    _, weights = primer.scaled_dot_product_attention(q, k, v)
    for i in range(4):
        scores = [sum(q[i, e] * k[j, e] for e in range(4)) / 2 for j in range(4)]
        total = sum(math.exp(score) for score in scores)
        assert_close(weights[i], [math.exp(score) / total for score in scores])


@pytest.mark.parametrize("lead", [(), (2,), (2, 3)])
def test_a_query_with_nothing_to_attend_to_gets_zeros(lead: tuple[int, ...]) -> None:
    q, k, v = random_qkv((lead, 3, 4, 5, 5))
    mask = np.ones((*lead, 3, 4), dtype=bool)
    mask[..., 1, :] = False
    output, weights = primer.scaled_dot_product_attention(q, k, v, mask)
    assert_array_equal(output[..., 1, :], np.zeros((*lead, 5)))
    assert_array_equal(weights[..., 1, :], np.zeros((*lead, 4)))
    free, _ = primer.scaled_dot_product_attention(q, k, v)
    assert_close(output[..., [0, 2], :], free[..., [0, 2], :])


def test_attention_without_any_key_gives_zeros() -> None:
    q, k, v = random_qkv(((2,), 3, 0, 4, 5))
    output, weights = primer.scaled_dot_product_attention(q, k, v)
    assert_array_equal(output, np.zeros((2, 3, 5)))
    assert weights.shape == (2, 3, 0)


def test_half_precision_is_computed_in_single() -> None:
    # The score is 64 * 40 * 40 = 102,400: more than half precision can hold.
    q = np.full((1, 64), 40, dtype=np.float16)
    k = np.concatenate([q, -q])
    output, weights = primer.scaled_dot_product_attention(q, k, k, scale=1)
    assert output.dtype == weights.dtype == np.float16
    assert_array_equal(weights, [[1, 0]])
    assert_array_equal(output, q)


def test_single_precision_stays_single() -> None:
    q, k, v = (x.astype(np.float32) for x in random_qkv(SHAPES[-1]))
    mask = random_mask(SHAPES[-1])
    output, weights = primer.scaled_dot_product_attention(q, k, v, mask)
    assert output.dtype == weights.dtype == np.float32


def test_whole_numbers_give_fractions() -> None:
    q: Any = np.eye(2, dtype=np.int64)
    _, weights = primer.basic_attention(q, q, q)
    assert_close(weights[0], primer.softmax([1 / math.sqrt(2), 0]))


def test_basic_and_self_attention_are_the_same_formula() -> None:
    random = np.random.default_rng(0)
    X, W_Q, W_K, W_V = (random.normal(size=s) for s in [(5, 8), (8, 4), (8, 4), (8, 6)])
    output, weights = primer.basic_attention(X @ W_Q, X @ W_K, X @ W_V)
    expected = torch.from_numpy(X @ W_Q @ (X @ W_K).T / 2).softmax(-1)
    assert_close(weights, expected)
    assert_close(output, expected.numpy() @ X @ W_V)
    assert_close(primer.self_attention(X, W_Q, W_K, W_V), output)
    # A batch is each sentence alone, and a causal first token sees only itself.
    batch = np.stack([X, X[::-1]])
    causal = primer.self_attention(batch, W_Q, W_K, W_V, primer.causal_mask(5))
    alone = primer.self_attention(X[::-1], W_Q, W_K, W_V, primer.causal_mask(5))
    assert_close(causal[1], alone)
    assert_close(causal[:, 0], batch[:, 0] @ W_V)


# --- refusals -------------------------------------------------------------------------------------


def refused(message: str) -> Any:
    return pytest.raises(ValueError, match=re.escape(message))


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, np.uint8])
def test_a_mask_that_is_not_boolean_is_refused(dtype: type) -> None:
    q, k, v = random_qkv(SHAPES[0])
    name = re.escape(np.dtype(dtype).name)
    match = rf"boolean, True = may attend, given {name}.*mask_from_blocked.*mask_from_additive"
    with pytest.raises(ValueError, match=match):
        primer.scaled_dot_product_attention(q, k, v, np.ones((3, 3), dtype))


@pytest.mark.parametrize("mask_shape", [(3, 4), (2, 1, 1, 5), (5, 3), (3, 3, 5)])
def test_a_mask_that_does_not_broadcast_is_refused_by_name(mask_shape: tuple[int, ...]) -> None:
    q, k, v = random_qkv(((2,), 3, 5, 4, 4))
    with refused(
        f"mask of shape {mask_shape} for scores of shape (2, 3, 5): the mask does not broadcast to the scores"
    ):
        primer.scaled_dot_product_attention(q, k, v, np.ones(mask_shape, bool))


@pytest.mark.parametrize(
    ("lead", "mask_shape"),
    [
        ((4,), (4, 4)),  # sentences or queries?
        ((4, 2), (4, 4)),
        ((2, 2), (2, 4, 4)),  # sentences or heads?
    ],
)
def test_a_mask_that_could_mean_sentences_is_refused(
    lead: tuple[int, ...], mask_shape: tuple[int, ...]
) -> None:
    q, k, v = random_qkv((lead, 4, 4, 3, 3))
    mask = np.ones(mask_shape, bool)
    with refused(
        f"mask of shape {mask_shape} for scores of shape {(*lead, 4, 4)}: its first axis could "
        f"mean the sentences; give it {len(lead) + 2} axes"
    ):
        primer.scaled_dot_product_attention(q, k, v, mask)
    # Both ways out that the message names are open.
    everywhere = mask[(None,) * (len(lead) + 2 - mask.ndim)]
    primer.scaled_dot_product_attention(q, k, v, everywhere)
    per_sentence = np.expand_dims(mask, tuple(range(1, len(lead) + 3 - mask.ndim)))
    primer.scaled_dot_product_attention(q, k, v, per_sentence)


@pytest.mark.parametrize("lead", [(), (1,), (1, 3)])
@pytest.mark.parametrize("mask_shape", [(4,), (1, 4), (4, 4)])
def test_without_a_second_sentence_no_mask_is_ambiguous(
    lead: tuple[int, ...], mask_shape: tuple[int, ...]
) -> None:
    q, k, v = random_qkv((lead, 4, 4, 3, 3))
    mask = np.ones(mask_shape, bool)
    mask[..., 2] = False
    output, _ = primer.scaled_dot_product_attention(q, k, v, mask)
    assert_close(output, torch_attention(q, k, v, np.broadcast_to(mask, (4, 4)).copy()))


def test_a_mask_shared_by_all_sentences_is_taken() -> None:
    q, k, v = random_qkv(((2, 3), 4, 4, 5, 5))
    output, _ = primer.scaled_dot_product_attention(q, k, v, primer.causal_mask(4))
    expected = torch_attention(q, k, v, is_causal=True)
    assert_close(output, expected)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((2, 3, 4), (1, 3, 4), (1, 3, 4)), "the same batch and head axes"),
        (((1, 3, 4), (2, 3, 4), (2, 3, 4)), "the same batch and head axes"),
        (((2, 3, 4), (2, 3, 4), (1, 3, 4)), "the same batch and head axes"),
        (((2, 2, 3, 4), (2, 1, 3, 4), (2, 1, 3, 4)), "the same batch and head axes"),
        (((2, 3, 4), (3, 4), (3, 4)), "the same batch and head axes"),
        (((3, 4), (3, 5), (3, 5)), "q and k must have the same width"),
        (((3, 4), (3, 4), (2, 4)), "k and v must have the same number of tokens"),
        (((4,), (3, 4), (3, 4)), "arrays of 2, 3 or 4 axes"),
        (((1, 1, 1, 3, 4),) * 3, "arrays of 2, 3 or 4 axes"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(shapes: Any, message: str) -> None:
    q, k, v = (np.zeros(shape) for shape in shapes)
    match = f"{re.escape(message)}, given {re.escape(f'q {q.shape}, k {k.shape}, v {v.shape}')}"
    with pytest.raises(ValueError, match=match):
        primer.scaled_dot_product_attention(q, k, v)
    with pytest.raises(ValueError, match=match):
        primer.attention_backward(q, k, v, None, None, q)


# --- masks ----------------------------------------------------------------------------------------


def test_padding_and_causal_masks_combine() -> None:
    source, target = np.array([[5, 6, 0, 0]]), np.array([[1, 7, 8, 0]])
    source_mask = primer.padding_mask(source)
    target_mask = primer.padding_mask(target) & primer.causal_mask(4)
    assert source_mask.dtype == target_mask.dtype == np.bool_
    assert_array_equal(source_mask, [[[[1, 1, 0, 0]]]])
    rows = [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 0]]
    assert_array_equal(target_mask, [[rows]])


def test_padding_mask_keeps_sentences_apart_even_when_square() -> None:
    ids = np.array([[1, 2, 9], [1, 9, 9], [1, 2, 3]])  # 3 sentences of 3 tokens, pad is 9
    mask = primer.padding_mask(ids, pad=9)
    assert mask.shape == (3, 1, 1, 3)
    q, k, v = random_qkv(((3, 2), 3, 3, 4, 4))
    output, _ = primer.scaled_dot_product_attention(q, k, v, mask)
    for i, length in enumerate([2, 1, 3]):
        alone, _ = primer.scaled_dot_product_attention(q[i], k[i, :, :length], v[i, :, :length])
        assert_close(output[i], alone)


def test_padding_mask_takes_only_sentences() -> None:
    with refused("ids must have the shape (sentences, tokens), given (3,)"):
        primer.padding_mask(np.array([1, 2, 0]))


def test_the_other_polarities_have_doors() -> None:
    blocked = np.triu(np.ones((5, 5), np.float32), k=1)
    additive = nn.Transformer.generate_square_subsequent_mask(5).numpy()
    for mask in (
        primer.mask_from_blocked(blocked),
        primer.mask_from_blocked(blocked.astype(bool)),
        primer.mask_from_additive(additive),
    ):
        assert mask.dtype == np.bool_
        assert_array_equal(mask, primer.causal_mask(5))
    padding = primer.mask_from_blocked([[0, 0, 0, 1, 1], [0, 0, 1, 1, 1]])
    ids = np.array([[1, 2, 3, 0, 0], [1, 2, 0, 0, 0]])
    assert_array_equal(padding, primer.padding_mask(ids)[:, 0, 0])


@pytest.mark.parametrize("value", [-np.inf, -1.0, 0.5, 2.0, np.nan])
def test_the_blocked_door_refuses_other_values(value: float) -> None:
    with refused("expected a mask of 0 and 1; for 0 and -inf there is mask_from_additive"):
        primer.mask_from_blocked(np.array([0, value]))


@pytest.mark.parametrize("mask", [[0.0, 1.0], [0.0, -1e9], [0.0, np.inf], [np.nan], [False]])
def test_the_additive_door_refuses_other_values(mask: list[float]) -> None:
    with refused("expected a mask of 0 and -inf; for 0 and 1 there is mask_from_blocked"):
        primer.mask_from_additive(np.array(mask))


# --- heads, against nn.MultiheadAttention ---------------------------------------------------------


def linear_of(module: Any) -> primer.Linear:
    return primer.Linear(numpied(module.weight).T, numpied(module.bias))


def norm_of(module: nn.LayerNorm) -> primer.Norm:
    return primer.Norm(numpied(module.weight), numpied(module.bias), module.eps)


def attention_of(module: nn.MultiheadAttention) -> primer.Attention:
    weights = np.split(numpied(module.in_proj_weight), 3)
    biases = np.split(numpied(module.in_proj_bias), 3)
    q, k, v = (primer.Linear(w.T, b) for w, b in zip(weights, biases, strict=True))
    return primer.Attention(q, k, v, linear_of(module.out_proj))


def feed_forward_of(layer: Any) -> primer.FeedForward:
    return primer.FeedForward(linear_of(layer.linear1), linear_of(layer.linear2))


def encoder_layer_of(layer: nn.TransformerEncoderLayer) -> primer.EncoderLayer:
    return primer.EncoderLayer(
        attention_of(layer.self_attn),
        norm_of(layer.norm1),
        feed_forward_of(layer),
        norm_of(layer.norm2),
    )


def decoder_layer_of(layer: nn.TransformerDecoderLayer) -> primer.DecoderLayer:
    return primer.DecoderLayer(
        attention_of(layer.self_attn),
        norm_of(layer.norm1),
        attention_of(layer.multihead_attn),
        norm_of(layer.norm2),
        feed_forward_of(layer),
        norm_of(layer.norm3),
    )


def shaken(module: nn.Module) -> Any:
    """The module in float64 and eval mode, with no bias left at 0 and no gamma left at 1."""
    generator = torch.Generator().manual_seed(0)
    module = module.double().eval()
    with torch.no_grad():
        for parameter in module.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.add_(0.2 * noise)
    return module


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

PAD_FROM = 4  # the second sentence of a padded batch ends here


def batch_of(tokens: int, seed: int) -> tuple[primer.Array, primer.Mask]:
    x = np.random.default_rng(seed).normal(size=(2, tokens, 8))
    padded = np.zeros((2, tokens), bool)
    padded[1, PAD_FROM:] = True
    return x, padded


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
        memory_mask=~memory_padded[:, None, None, :],
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


# --- the whole model ------------------------------------------------------------------------------

SIZES: dict[str, Any] = {"source_vocab": 11, "target_vocab": 13, "width": 8, "depth": 2}


@pytest.mark.parametrize("order", ["post", "pre"])
def test_transformer_equals_torch(order: primer.Order) -> None:
    torch.manual_seed(0)
    style = {"activation": "gelu", "batch_first": True, "norm_first": order == "pre"}
    # The paper's post order has no last norm; nn.Transformer by itself would always add one.
    last = [nn.LayerNorm(8) if order == "pre" else None for _ in range(2)]
    layer = nn.TransformerEncoderLayer(8, 2, 16, **style)  # type: ignore[arg-type]
    encoder = nn.TransformerEncoder(layer, 2, last[0], enable_nested_tensor=False)
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16, **style), 2, last[1])  # type: ignore[arg-type]
    towers = shaken(nn.Transformer(8, 2, custom_encoder=encoder, custom_decoder=decoder, batch_first=True))
    embed_source, embed_target = shaken(nn.Embedding(11, 8)), shaken(nn.Embedding(13, 8))
    head = shaken(nn.Linear(8, 13))
    weights = primer.Transformer(
        numpied(embed_source.weight),
        numpied(embed_target.weight),
        tuple(encoder_layer_of(layer) for layer in towers.encoder.layers),
        tuple(decoder_layer_of(layer) for layer in towers.decoder.layers),
        linear_of(head),
        norm_of(towers.encoder.norm) if order == "pre" else None,
        norm_of(towers.decoder.norm) if order == "pre" else None,
    )
    source = np.array([[3, 4, 5, 6, 7], [8, 9, 10, 0, 0]])
    target = np.array([[1, 5, 6, 12], [1, 7, 0, 0]])
    logits = primer.transformer(source, target, weights, 2, order=order, activation=primer.gelu)

    def embed(ids: Tensor, table: nn.Embedding) -> Any:
        column = torch.arange(8, dtype=torch.float64)
        position = torch.arange(ids.shape[1], dtype=torch.float64)[:, None]
        angle = position / 10000 ** (2 * (column // 2) / 8)
        positions = torch.where(column % 2 == 0, angle.sin(), angle.cos())
        return table(ids) * math.sqrt(8) + positions

    s, t = torch.from_numpy(source), torch.from_numpy(target)
    x = towers(
        embed(s, embed_source),
        embed(t, embed_target),
        tgt_mask=torch.from_numpy(~primer.causal_mask(4)),
        src_key_padding_mask=s == 0,
        memory_key_padding_mask=s == 0,
        tgt_key_padding_mask=t == 0,
    )
    real = target != 0  # what stands at a padded position is nobody's answer
    assert_close(logits[real], numpied(head(x))[real])


@pytest.mark.parametrize("order", ["post", "pre"])
def test_padding_left_right_or_none_gives_the_same_logits(order: primer.Order) -> None:
    weights = primer.init(3, **SIZES, order=order)
    source, target = np.array([[3, 4, 5]]), np.array([[1, 7]])
    alone = primer.transformer(source, target, weights, 2, order=order)
    right = primer.transformer(
        np.array([[3, 4, 5, 0, 0], [9, 9, 9, 9, 9]]),
        np.array([[1, 7, 0], [1, 2, 3]]),
        weights,
        2,
        order=order,
    )
    left = primer.transformer(np.array([[0, 0, 3, 4, 5]]), np.array([[0, 1, 7]]), weights, 2, order=order)
    assert alone.shape == (1, 2, 13)
    assert_close(right[:1, :2], alone)
    assert_close(left[:, 1:], alone)
    assert np.isfinite(left).all()


def test_the_future_does_not_leak_and_the_source_arrives() -> None:
    weights = primer.init(3, **SIZES)
    source, target = np.array([[3, 4, 5]]), np.array([[1, 7, 8, 9]])
    logits = primer.transformer(source, target, weights, 2)
    for position in range(4):
        changed = target.copy()
        changed[0, position] = 12
        difference = np.abs(primer.transformer(source, changed, weights, 2) - logits).max(-1)[0]
        assert (difference[:position] == 0).all()
        assert (difference[position:] > 1e-6).all()
    other = primer.transformer(np.array([[3, 4, 6]]), target, weights, 2)
    assert (np.abs(other - logits).max(-1) > 1e-6).all()


def test_every_weight_reaches_the_logits() -> None:
    source, target = np.array([[3, 4, 5]]), np.array([[1, 7, 8]])
    weights = primer.init(3, **SIZES, order="pre")
    logits = primer.transformer(source, target, weights, 2, order="pre")

    def leaves(tree: Any, path: str = "") -> list[tuple[str, primer.Array]]:
        if isinstance(tree, np.ndarray):
            return [(path, tree)]
        items = tree._asdict().items() if hasattr(tree, "_asdict") else enumerate(tree)
        return [leaf for k, v in items if k != "eps" for leaf in leaves(v, f"{path}.{k}")]

    found = leaves(weights)
    # 2 embeddings, the head, 2 last norms; 16 arrays in an encoder layer, 26 in a decoder layer.
    assert len(found) == 2 + 2 + 4 + 2 * 16 + 2 * 26
    for path, array in found:
        if path.endswith(".k.bias"):
            continue  # adds the same amount to every score of a query: softmax cannot see it
        array += np.random.default_rng(0).normal(size=array.shape)
        changed = primer.transformer(source, target, weights, 2, order="pre")
        assert np.abs(changed - logits).max() > 1e-9, path
        logits = changed


def test_init_is_a_function_of_its_seed() -> None:
    assert_array_equal(primer.init(1, **SIZES).head.weight, primer.init(1, **SIZES).head.weight)
    assert np.any(primer.init(1, **SIZES).head.weight != primer.init(2, **SIZES).head.weight)
    before = np.random.get_state(legacy=False)["state"]
    primer.init(1, **SIZES)
    after = np.random.get_state(legacy=False)["state"]
    assert_array_equal(after["key"], before["key"])
    assert after["pos"] == before["pos"]


@pytest.mark.parametrize("wrong", [-1, 11])
def test_ids_outside_the_vocabulary_are_refused(wrong: int) -> None:
    weights = primer.init(0, **SIZES)
    low, high = min(wrong, 3), max(wrong, 3)
    with refused(f"ids must be in 0..10, given {low}..{high}"):
        primer.transformer(np.array([[3, wrong]]), np.array([[1]]), weights, 2)


@pytest.mark.parametrize("missing", ["encoder_norm", "decoder_norm"])
def test_pre_order_without_last_norms_is_refused(missing: str) -> None:
    absent: dict[str, Any] = {missing: None}
    weights = primer.init(0, **SIZES, order="pre")._replace(**absent)
    with refused("order='pre' needs the last norms"):
        primer.transformer(np.array([[3]]), np.array([[1]]), weights, 2, "pre")


def test_the_padding_id_is_a_choice() -> None:
    weights = primer.init(3, **SIZES)
    alone = primer.transformer(np.array([[3, 0]]), np.array([[1, 0]]), weights, 2, pad=9)
    source, target = np.array([[9, 3, 0, 9]]), np.array([[9, 1, 0]])
    padded = primer.transformer(source, target, weights, 2, pad=9)
    assert_close(padded[:, 1:], alone)


def test_a_model_in_single_precision_stays_there() -> None:
    weights = primer.init(0, **{**SIZES, "depth": 0})
    single = weights._replace(
        source_embedding=weights.source_embedding.astype(np.float32),
        target_embedding=weights.target_embedding.astype(np.float32),
        head=primer.Linear(*(array.astype(np.float32) for array in weights.head)),
    )
    ids = np.array([[1, 2]])
    logits = primer.transformer(ids, ids, single, 2)
    assert logits.dtype == np.float32
    assert_allclose(logits, primer.transformer(ids, ids, weights, 2), rtol=0, atol=1e-5)


# --- the way back ---------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("scale", [None, 0.7])
@pytest.mark.parametrize("masked", [False, True])
def test_backward_equals_autograd(shape: tuple[Any, ...], scale: float | None, masked: bool) -> None:
    arrays = random_qkv(shape)
    mask = random_mask(shape) if masked else None
    q, k, v = (torch.from_numpy(a).requires_grad_() for a in arrays)
    output = torch_attention(q, k, v, mask, scale=scale)
    grad_output = np.random.default_rng(2).normal(size=output.shape)
    torch.autograd.backward(output, torch.from_numpy(grad_output))
    grads = primer.attention_backward(*arrays, mask, scale, grad_output)
    for grad, tensor in zip(grads, (q, k, v), strict=True):
        assert_close(grad, tensor.grad)


@pytest.mark.parametrize("masked", [False, True])
def test_backward_equals_finite_differences(masked: bool) -> None:
    shape = ((2,), 3, 4, 5, 2)
    arrays = random_qkv(shape)
    mask = random_mask(shape) if masked else None
    grad_output = np.random.default_rng(2).normal(size=(2, 3, 2))

    def loss() -> float:
        output, _ = primer.scaled_dot_product_attention(*arrays, mask)
        return float((output * grad_output).sum())

    grads = primer.attention_backward(*arrays, mask, None, grad_output)
    step = 1e-5
    for array, grad in zip(arrays, grads, strict=True):
        for index in np.ndindex(array.shape):
            middle = array[index]
            array[index] = middle + step
            above = loss()
            array[index] = middle - step
            below = loss()
            array[index] = middle
            assert grad[index] == pytest.approx((above - below) / (2 * step), rel=0, abs=1e-8)


def test_no_gradient_comes_from_an_all_blocked_row() -> None:
    q, k, v = random_qkv(((), 2, 3, 4, 4))
    mask = np.array([[False] * 3, [True] * 3])
    grad_output = np.ones((2, 4))
    grad_q, grad_k, grad_v = primer.attention_backward(q, k, v, mask, None, grad_output)
    assert_array_equal(grad_q[0], np.zeros(4))
    only = primer.attention_backward(q[1:], k, v, None, None, grad_output[1:])
    for grad, expected in zip((grad_q[1:], grad_k, grad_v), only, strict=True):
        assert_close(grad, expected)


def test_backward_in_half_precision_is_computed_in_single() -> None:
    # Two keys tie with scores of 102,400, more than half precision can hold: weights of one half.
    q = np.full((1, 64), 40, dtype=np.float16)
    k = np.concatenate([q, q])
    v = np.array([[1], [3]], dtype=np.float16)
    grads = primer.attention_backward(q, k, v, None, 1.0, np.ones((1, 1), np.float16))
    assert [grad.dtype for grad in grads] == [np.float16] * 3
    for grad, expected in zip(grads, (0 * q, np.concatenate([-q, q]) / 2, [[0.5], [0.5]]), strict=True):
        assert_array_equal(grad, expected)


def test_backward_refuses_a_gradient_of_another_shape() -> None:
    q, k, v = random_qkv(((), 2, 3, 4, 5))
    with refused("grad_output must have the shape (2, 5), given (1, 5)"):
        primer.attention_backward(q, k, v, None, None, np.ones((1, 5)))


# --- manners --------------------------------------------------------------------------------------


def test_importing_the_primer_imports_numpy_alone() -> None:
    script = """
import sys, numpy, numpy.random, numpy.typing
before = {name.split(".")[0] for name in sys.modules}
import clearhead.primer.numpy as primer
after = {name.split(".")[0] for name in sys.modules}
assert "torch" not in after, "torch was imported"
extra = after - before - set(sys.stdlib_module_names)
assert extra == {"clearhead"}, extra
print(primer.__file__)
"""
    root = Path(primer.__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=root, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()) == Path(primer.__file__)


def test_the_example_in_the_docstring_runs() -> None:
    result = doctest.testmod(primer)
    assert (result.failed, result.attempted) == (0, 2)
