"""The steps of one attention head: the inputs of its kernel in; every intermediate result out.

    scores = q k'        scaled = scores * scale (soft-capped, if there is a cap) + bias
    masked = scaled, -inf where the mask forbids        weights = softmax(masked)        mix = weights v

Shape suffixes: Q queries, K keys, E head width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import InputError
from ..nn.kernels import RecordedCall, SoftmaxKernel
from ..nn.norm import soft_cap, widen


@dataclass(frozen=True, eq=False)
class Steps:
    q_QE: Tensor
    k_KE: Tensor
    v_KE: Tensor
    scores: Tensor  # (Q, K), before the scale
    scaled: Tensor  # after scale, cap and bias
    masked: Tensor
    weights: Tensor  # from the kernel itself
    mix: Tensor  # (Q, E)
    scale: float
    sink: float | None = None  # an extra score in the softmax of every row, without a value
    virtual: int = 0  # how many of the keys are virtual tokens, which come first


def steps(call: RecordedCall, head: int, first_query: int = 0, first_key: int = 0) -> Steps:
    """Only exact attention has scores; an approximation has only the weights it implies.

    Virtual tokens before the first query are left out; those before the first key come first.
    """
    if type(call.kernel) is not SoftmaxKernel:
        name = call.kernel.name
        raise InputError(f"{name} attention has no scores to show; its implied weights are in attention()")
    # In grouped-query attention several query heads share one key/value head; masks and biases may be
    # shared by all heads.
    group = call.q_BHQE.shape[1] // call.k_BHKE.shape[1]
    q, k, v = call.q_BHQE[0, head], call.k_BHKE[0, head // group], call.v_BHKE[0, head // group]
    with torch.no_grad():
        scores = widen(q) @ widen(k).mT
        scaled = soft_cap(scores * call.scale, call.kernel.cap)
        if call.bias is not None:
            bias_HQK = call.bias[0]
            scaled = scaled + bias_HQK[head if len(bias_HQK) > 1 else 0]
        allowed = call.view.dense
        masked = scaled
        if allowed is not None:
            masked = scaled.masked_fill(~allowed[0, head if allowed.shape[1] > 1 else 0], float("-inf"))
        weights = call.pattern(slice(head, head + 1))[0, 0]
        sink = None if call.kernel.sink is None else float(call.kernel.sink[head])
        scores, scaled, masked, weights, q = (x[first_query:] for x in (scores, scaled, masked, weights, q))
        return Steps(q, k, v, scores, scaled, masked, weights, weights @ v, call.scale, sink, first_key)
