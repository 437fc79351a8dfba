"""The NumPy primer's attention against torch, forwards and backwards, and what importing it costs."""

from __future__ import annotations

import doctest
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from arrays import SHAPES, assert_close, random_mask, random_qkv, refused, torch_attention
from numpy.testing import assert_allclose, assert_array_equal

from clearhead.primer import numpy as primer

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
