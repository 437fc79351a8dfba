"""The textbook listing's attention, called as it is there, against torch's own; and every mask it takes."""

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from textbook import random
from tolerance import assert_close
from torch import Tensor, nn

import clearhead.primer.numpy as arrays
from clearhead.errors import InputError
from clearhead.primer import torch as primer

SHAPES = [((), 3, 3, 4, 4), ((), 2, 5, 4, 7), ((2,), 5, 3, 8, 2), ((2, 3), 4, 6, 5, 3)]


def qkv(shape: tuple[Any, ...]) -> tuple[Tensor, Tensor, Tensor]:
    lead, queries, keys, width, value = shape
    return (
        random(*lead, queries, width),
        random(*lead, keys, width, seed=1),
        random(*lead, keys, value, seed=2),
    )


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("masked", [False, True])
def test_attention_equals_torch(shape: tuple[Any, ...], masked: bool) -> None:
    q, k, v = qkv(shape)
    mask = random(*shape[0], shape[1], shape[2], seed=3) > -0.5 if masked else None
    if mask is not None:
        mask[..., 0] = True
    output, weights = primer.scaled_dot_product_attention(q, k, v, mask)
    assert_close(output, F.scaled_dot_product_attention(q, k, v, mask))
    assert_close(weights @ v, output)
    assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))


def test_basic_and_self_attention() -> None:
    x, *weights = random(5, 8), random(8, 4, seed=1), random(8, 4, seed=2), random(8, 6, seed=3)
    q, k, v = (x @ w for w in weights)
    assert_close(primer.basic_attention(q, k, v)[0], F.scaled_dot_product_attention(q, k, v))
    assert_close(primer.self_attention(x, *weights), F.scaled_dot_product_attention(q, k, v))
    # Arrays are taken, too.
    given = [each.numpy() for each in (x, *weights)]
    assert_close(primer.self_attention(*given), torch.from_numpy(arrays.self_attention(*given)))


def test_the_cat_sat() -> None:
    keys = torch.tensor([12.5, 30.8, 25.1])[:, None].expand(3, 64) / 64  # so that the products are these
    _, weights = primer.basic_attention(torch.ones(1, 64), keys, keys)
    assert [round(w, 4) for w in weights[0].tolist()] == [0.0638, 0.6282, 0.3081]


def test_huge_scores_and_half_precision() -> None:
    q = torch.full((1, 64), 100.0)
    assert primer.basic_attention(q * 10, torch.cat([q, -q]), torch.eye(2))[1].tolist() == [[1.0, 0.0]]
    half = torch.randn(1, 2, 3, 8).half()
    mask = torch.ones(3, 3, dtype=torch.bool).tril()
    output, weights = primer.scaled_dot_product_attention(half, half, half, mask)
    assert output.dtype == weights.dtype == torch.float16 and bool(output.isfinite().all())
    assert weights[0, 0, 0].tolist() == [1.0, 0.0, 0.0]


def test_weights_are_those_before_dropout() -> None:
    q, k, v = (x.float() for x in qkv(((2, 3), 4, 6, 5, 3)))
    for dropout in (0.5, nn.Dropout(0.5)):
        output, weights = primer.attention(q, k, v, dropout=dropout)
        assert_close(weights.sum(-1), torch.ones(2, 3, 4))
        assert (output - weights @ v).abs().max() > 0.1
    output, weights = primer.attention(q, k, v, nn.Dropout(0.5).eval())
    assert_close(output, weights @ v)


def test_shapes_that_do_not_belong_together_are_refused() -> None:
    for shapes in ((1, 3, 4), (2, 3, 4)), ((2, 3, 4), (2, 3, 5)), ((4,), (4,)):
        q, k = (torch.zeros(shape) for shape in shapes)
        with pytest.raises(InputError, match="given Q"):
            primer.basic_attention(q, k, k)
    with pytest.raises(InputError, match="as many tokens"):
        primer.basic_attention(torch.zeros(2, 4), torch.zeros(3, 4), torch.zeros(2, 4))


def test_the_notes_masks() -> None:
    src, tgt = torch.tensor([[5, 6, 0, 0]]), torch.tensor([[1, 7, 8, 0]])
    src_mask, tgt_mask = primer.create_masks(src, tgt)
    assert src_mask.dtype == tgt_mask.dtype == torch.bool
    assert src_mask.long().tolist() == [[[[1, 1, 0, 0]]]]
    rows = [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 0]]
    assert tgt_mask.long().tolist() == [[rows]]
    assert primer.create_padding_mask(torch.tensor([[3, 9]]), pad_idx=9).tolist() == [[[[True, False]]]]
    assert torch.equal(
        primer.generate_square_subsequent_mask(4), nn.Transformer.generate_square_subsequent_mask(4)
    )
    with pytest.raises(InputError, match=r"given \(3,\)"):
        primer.create_padding_mask(torch.tensor([1, 2, 0]))


def test_the_numpy_masks_of_the_notes() -> None:
    padding = arrays.create_padding_mask([[1, 2, 3, 0, 0], [1, 2, 0, 0, 0]])
    assert padding.dtype == np.float32 and padding.tolist() == [[0, 0, 0, 1, 1], [0, 0, 1, 1, 1]]
    ahead = arrays.create_look_ahead_mask(3)
    assert ahead.tolist() == [[0, 1, 1], [0, 0, 1], [0, 0, 0]]
    joined = arrays.create_padding_mask([[1, 2, 0]])[:, None, :] | ahead
    assert isinstance(joined, arrays.Blocked) and joined.tolist() == [[[0, 1, 1], [0, 0, 1], [0, 0, 1]]]
    for done in (1 - ahead, ahead * -1e9, ahead + ahead):
        assert not isinstance(done, arrays.Blocked)
    assert (ahead == 0).dtype == np.bool_


CAUSAL = torch.ones(4, 4, dtype=torch.bool).tril()


SAME = {
    "true = may attend": CAUSAL,
    "1 = may attend": CAUSAL.long(),
    "0 and -inf": primer.generate_square_subsequent_mask(4),
    "0 and -1e9": (~CAUSAL).float() * -1e9,
    "1 = blocked, by its maker": arrays.create_look_ahead_mask(4),
    "three axes": CAUSAL.expand(2, 4, 4),
    "four axes": CAUSAL[None, None],
    "a row for each sentence and head": CAUSAL.expand(2, 3, 4, 4),
}


@pytest.mark.parametrize("name", SAME)
def test_every_polarity_and_shape_means_the_same(name: str) -> None:
    q, k, v = qkv(((2, 3), 4, 4, 5, 5))
    expected = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert_close(primer.scaled_dot_product_attention(q, k, v, SAME[name])[0], expected)
    x, mha = random(2, 4, 6), primer.MultiHeadAttention(6, 3, seed=0).double().eval()
    assert_close(mha(x, x, x, SAME[name])[0], mha(x, mask=CAUSAL))
    assert_close(
        arrays_attention(q, k, v, SAME[name]) if isinstance(SAME[name], arrays.Blocked) else expected,
        expected,
    )


def arrays_attention(q: Tensor, k: Tensor, v: Tensor, mask: Any) -> Tensor:
    return torch.from_numpy(
        arrays.scaled_dot_product_attention(*(x.numpy() for x in (q, k, v)), mask=mask)[0]
    )


def test_padding_hits_the_right_sentence() -> None:
    q, k, v = qkv(((2, 3), 4, 5, 6, 6))
    real = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    for mask in (real, real.bool(), real[:, None], real[:, None, None], arrays.Blocked):
        if mask is arrays.Blocked:
            mask = arrays.create_padding_mask(real.numpy())
        output, weights = primer.scaled_dot_product_attention(q, k, v, mask)
        assert_close(output[0], F.scaled_dot_product_attention(q[0], k[0, :, :3], v[0, :, :3]))
        assert_close(output[1], F.scaled_dot_product_attention(q[1], k[1], v[1]))
        assert bool((weights[0, ..., 3:] == 0).all())


FOR_ANY_BATCH = [name for name, mask in SAME.items() if mask.ndim == 2 or len(mask) == 1]


@pytest.mark.parametrize("name", FOR_ANY_BATCH)
def test_a_look_ahead_mask_for_as_many_sentences_as_tokens(name: str) -> None:
    q, k, v = qkv(((4, 2), 4, 4, 3, 3))
    expected = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert_close(primer.scaled_dot_product_attention(q, k, v, SAME[name])[0], expected)
    mha, x = primer.MultiHeadAttention(32, 4, seed=0).eval(), torch.randn(4, 4, 32)
    assert_close(mha(x, mask=SAME[name]), mha(x, mask=CAUSAL[None, None]))
    window = CAUSAL & CAUSAL.triu(-1)
    assert_close(mha(x, mask=window), mha(x, mask=window[None, None]))


def test_a_square_mask_that_may_be_padding_is_refused() -> None:
    q, k, v = qkv(((4, 2), 4, 4, 3, 3))
    real = torch.arange(4) < torch.tensor([3, 4, 4, 4])[:, None]
    for mask in (real, real.long(), real.flip(1), torch.zeros(4, 4).masked_fill(~real, -math.inf)):
        with pytest.raises(InputError, match="could mean either"):
            primer.scaled_dot_product_attention(q, k, v, mask)
    by_query, by_sentence = real[None, None], real[:, None, None]
    for mask in (by_query, by_sentence):
        expected = F.scaled_dot_product_attention(q, k, v, mask)
        assert_close(primer.scaled_dot_product_attention(q, k, v, mask)[0], expected)
    # A mask that says what it is needs no axes.
    padding = arrays.create_padding_mask(real.numpy())
    expected = F.scaled_dot_product_attention(q, k, v, by_sentence)
    assert_close(primer.scaled_dot_product_attention(q, k, v, padding)[0], expected)
    assert_close(arrays_attention(q, k, v, padding), expected)


@pytest.mark.parametrize(
    "mask", [np.triu(np.ones((4, 4)), 1), CAUSAL.long().triu(1), torch.zeros(2, 4).long()]
)
def test_ones_that_mean_blocked_are_not_taken_for_may_attend(mask: Any) -> None:
    q, k, v = qkv(((2, 3), 4, 4, 5, 5))
    with pytest.raises(InputError, match=r"leaves a query nothing to attend to.*give mask == 0"):
        primer.scaled_dot_product_attention(q, k, v, mask)
    primer.scaled_dot_product_attention(q, k, v, mask == 0)
    primer.scaled_dot_product_attention(q, k, v, mask == 1)


@pytest.mark.parametrize(
    "bad", [torch.ones(3, 4), torch.full((4, 4), 0.5), torch.ones(2, 1, 4, 5), torch.ones(4)]
)
def test_other_masks_are_refused(bad: Tensor) -> None:
    q, k, v = qkv(((2, 3), 4, 4, 5, 5))
    with pytest.raises(InputError, match="mask"):
        primer.scaled_dot_product_attention(q, k, v, bad)


def test_a_blocked_row_is_zero_with_zero_gradient() -> None:
    q, k, v = (x.requires_grad_() for x in qkv(((2, 3), 4, 4, 5, 5)))
    mask = torch.ones(4, 4, dtype=torch.bool)
    mask[1] = False
    output, weights = primer.scaled_dot_product_attention(q, k, v, mask)
    assert bool((output[:, :, 1] == 0).all() and (weights[:, :, 1] == 0).all())
    output.sum().backward()
    assert bool(q.grad.isfinite().all()) and bool((q.grad[:, :, 1] == 0).all())


def test_dot_products_grow_with_the_width_and_the_scale_undoes_it() -> None:
    q, k = random(20_000, 64), random(20_000, 64, seed=1)
    products = (q * k).sum(-1)
    assert products.var().item() == pytest.approx(64, rel=0.05)
    assert (products / math.sqrt(64)).var().item() == pytest.approx(1, rel=0.05)
