"""The steps of one head: what its kernel was given in; every product on the way to its answer out.

    scores = q k'        scaled = scores * scale (squashed, where there is a cap) + bias
    masked = scaled, -inf where one may not look        weights = softmax(masked)        mix = weights v

Each is computed from the one before it. Shape suffixes: Q queries, K keys, E head width.
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
    weights: Tensor  # the core's own pattern
    mix: Tensor  # (Q, E)
    scale: float
    sink: float | None = None  # one more score of every row, which takes its share and gives nothing


def steps(call: RecordedCall, head: int) -> Steps:
    """Only exact attention has scores; an approximation has the weights it amounts to, and nothing before."""
    if type(call.kernel) is not SoftmaxKernel:
        name = call.kernel.name
        raise InputError(f"{name} attention has no scores to show; its implied weights are in attention()")
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
        return Steps(q, k, v, scores, scaled, masked, weights, weights @ v, call.scale, sink)
