"""Backward pass of attention: the gradient of its output in, those of queries, keys and values out."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from .arrays import Array
from .attention import check_qkv, scale_of, weights_of


def attention_backward(
    q: Array, k: Array, v: Array, mask: ArrayLike | None, scale: float | None, grad_output: Array
) -> tuple[Array, Array, Array]:
    """The gradients of a loss for q, k and v, from its gradient for the output of attention.

    Forward: S = scale * q kᵀ, then W = softmax(S) in every row, then O = W v.
    Backward, with dX short for dLoss/dX:

    1. O = W v is linear in both:           dW = dO vᵀ           dv = Wᵀ dO
    2. In one row dW_j/dS_i = W_j (1 if i = j else 0) - W_j W_i. Summed over all j with dW_j:
                                            dS_i = W_i (dW_i - sum_j W_j dW_j)
    3. S = scale * q kᵀ is linear in both:  dq = scale * dS k    dk = scale * dSᵀ q

    A blocked key has W_i = 0, hence dS_i = 0: no gradient passes, and an all-blocked row gives 0.
    """
    answer, work = check_qkv(q, k, v)
    expected = (*q.shape[:-1], v.shape[-1])
    if grad_output.shape != expected:
        raise ValueError(f"grad_output must have the shape {expected}, given {grad_output.shape}")
    q, k, v, grad_output = (array.astype(work) for array in (q, k, v, grad_output))
    weights = weights_of(q, k, mask, scale)
    grad_weights = grad_output @ np.swapaxes(v, -1, -2)
    grad_v = np.swapaxes(weights, -1, -2) @ grad_output
    mean = (weights * grad_weights).sum(axis=-1, keepdims=True)
    grad_scores = weights * (grad_weights - mean) * scale_of(q, scale)
    grad_q = grad_scores @ k
    grad_k = np.swapaxes(grad_scores, -1, -2) @ q
    return grad_q.astype(answer), grad_k.astype(answer), grad_v.astype(answer)
