"""The NumPy primer's masks, and what its attention refuses."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from arrays import SHAPES, assert_close, random_qkv, refused, torch_attention
from numpy.testing import assert_array_equal
from torch import nn

from clearhead.primer import numpy as primer

# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, np.uint8])
@pytest.mark.parametrize("mask", [np.ones((3, 3)), np.tri(3), np.array([[1, 1, 1]])])
def test_numbers_that_leave_a_query_nothing_are_refused(mask: Any, dtype: type) -> None:
    q, k, v = random_qkv(SHAPES[0])
    for given in (mask.astype(dtype), mask.astype(dtype).tolist()):
        with pytest.raises(
            ValueError, match=r"1 = blocked, and this one leaves.*mask == 1.*mask_from_blocked"
        ):
            primer.scaled_dot_product_attention(q, k, v, given)
    # The ways out that the message names, and booleans, may leave a query nothing.
    for meant, sees in ((mask == 1, True), (primer.mask_from_blocked(mask), False)):
        _, weights = primer.scaled_dot_product_attention(q, k, v, np.broadcast_to(meant, (3, 3)))
        assert bool(weights[2].any()) == sees


@pytest.mark.parametrize("value", [0.5, 2.0, np.nan, -1.0])
def test_other_numbers_are_no_mask(value: float) -> None:
    q, k, v = random_qkv(SHAPES[0])
    with pytest.raises(ValueError, match="expected a mask of 0 and"):
        primer.scaled_dot_product_attention(q, k, v, np.array([0, 0, value]))


def test_three_ways_to_write_a_mask_mean_the_same() -> None:
    q, k, v = random_qkv(((3, 2), 5, 5, 4, 4))
    expected = torch_attention(q, k, v, is_causal=True)
    blocked = np.triu(np.ones((5, 5)), 1)
    for mask in (blocked == 0, blocked, blocked * -1e9, np.where(blocked, -np.inf, 0)):
        assert_close(primer.scaled_dot_product_attention(q, k, v, mask)[0], expected)


@pytest.mark.parametrize("mask_shape", [(3, 4), (2, 1, 1, 5), (5, 3), (3, 3, 5)])
def test_a_mask_that_does_not_broadcast_is_refused_by_name(mask_shape: tuple[int, ...]) -> None:
    q, k, v = random_qkv(((2,), 3, 5, 4, 4))
    with refused(
        f"mask of shape {mask_shape} for scores of shape (2, 3, 5): the mask does not broadcast to the scores"
    ):
        primer.scaled_dot_product_attention(q, k, v, np.ones(mask_shape, bool))


def padded_to(*lengths: int) -> primer.Mask:
    mask: primer.Mask = np.arange(4) < np.array(lengths)[:, None]
    return mask


@pytest.mark.parametrize(
    ("lead", "mask"),
    [
        ((4,), padded_to(3, 4, 4, 4)),  # sentences or queries?
        ((4, 2), padded_to(4, 4, 2, 1)),
        ((4, 2), padded_to(1, 2, 3, 4)[:, ::-1]),  # padding on the left
        ((4,), padded_to(3, 0, 4, 4)),  # a sentence without tokens
        ((2, 2), np.ones((2, 4, 4), bool)),  # sentences or heads?
    ],
)
def test_a_mask_that_could_mean_sentences_is_refused(lead: tuple[int, ...], mask: primer.Mask) -> None:
    q, k, v = random_qkv((lead, 4, 4, 3, 3))
    with refused(
        f"mask of shape {mask.shape} for scores of shape {(*lead, 4, 4)}: its first axis could "
        f"mean the sentences; give it {len(lead) + 2} axes"
    ):
        primer.scaled_dot_product_attention(q, k, v, mask)
    # Both ways out that the message names are open.
    everywhere = mask[(None,) * (len(lead) + 2 - mask.ndim)]
    primer.scaled_dot_product_attention(q, k, v, everywhere)
    per_sentence = np.expand_dims(mask, tuple(range(1, len(lead) + 3 - mask.ndim)))
    primer.scaled_dot_product_attention(q, k, v, per_sentence)


NEAR = np.abs(np.arange(4)[:, None] - np.arange(4)) <= 1  # a window: no padding looks like this


EVEN = np.tri(4, dtype=bool) & ((np.arange(4)[:, None] - np.arange(4)) % 2 == 0)  # every other token
EVEN[:, 0] = True


@pytest.mark.parametrize("mask", [primer.causal_mask(4), NEAR, EVEN, padded_to(3, 3, 3, 3)])
@pytest.mark.parametrize("lead", [(4,), (4, 2), (2, 4)])
def test_a_square_mask_is_one_of_queries_and_keys(lead: tuple[int, ...], mask: primer.Mask) -> None:
    q, k, v = random_qkv((lead, 4, 4, 3, 3))
    assert_close(primer.scaled_dot_product_attention(q, k, v, mask)[0], torch_attention(q, k, v, mask))


@pytest.mark.parametrize("heads", [(), (2,)])
def test_padding_is_known_by_its_maker(heads: tuple[int, ...]) -> None:
    ids = np.array([[1, 2, 0], [1, 0, 0], [1, 2, 3]])  # as many sentences as tokens
    q, k, v = random_qkv(((3, *heads), 3, 3, 4, 4))
    padding, ahead = primer.create_padding_mask(ids), primer.create_look_ahead_mask(3)
    output, _ = primer.scaled_dot_product_attention(q, k, v, padding)
    for i, length in enumerate([2, 1, 3]):
        alone = primer.scaled_dot_product_attention(q[i], k[i, ..., :length, :], v[i, ..., :length, :])[0]
        assert_close(output[i], alone)
    real = (ids != 0)[:, None, :] & primer.causal_mask(3)
    for joined in (padding | ahead, ahead | padding, np.maximum(padding, ahead)):
        assert isinstance(joined, primer.Blocked)
        assert_array_equal(joined == 0, real)
    assert_array_equal(padding | primer.create_padding_mask(ids, 1), (ids == 0) | (ids == 1))


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
