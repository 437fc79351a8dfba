"""Attention rollout and attention flow (Abnar 2020): weights of all layers in; input attributions out.

Rollout multiplies the layers; flow is the maximum flow through them. Both take each layer as half attention
(the mean over heads) and half residual connection.
Shape suffixes: L layers, H heads, T tokens.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import InputError, MissingError


def rollout(weights_LHTT: Tensor) -> Tensor:
    """(T, T): row q holds the share of each input token in the last state of token q."""
    total = torch.eye(weights_LHTT.shape[-1])
    for layer_TT in _layer_matrices(weights_LHTT):
        total = layer_TT @ total
    return total


def flow(weights_LHTT: Tensor, query: int) -> Tensor:
    """(T,): the maximum flow from the last state of one token to each input token.

    Weights are the capacities of the edges. Slower than rollout: one flow problem per token.
    """
    try:
        import networkx
    except ImportError:
        raise MissingError("networkx", "attention flow") from None
    layers = _layer_matrices(weights_LHTT)
    depth, length = len(layers), weights_LHTT.shape[-1]
    if not -length <= query < length:
        raise InputError(f"there is no token {query}; there are {length}, from 0 to {length - 1}")
    graph = networkx.DiGraph()
    for i, layer_TT in enumerate(layers):
        for q in range(length):
            for k in range(length):
                if layer_TT[q, k] > 0:
                    graph.add_edge((i + 1, q), (i, k), capacity=float(layer_TT[q, k]))
    top = (depth, query % length)
    flows = [
        networkx.maximum_flow_value(graph, top, (0, k)) if (0, k) in graph else 0.0 for k in range(length)
    ]
    return torch.tensor(flows)


def _layer_matrices(weights_LHTT: Tensor) -> list[Tensor]:
    """Half the mean of the heads, half the identity (the residual connection); rows sum to one."""
    if weights_LHTT.ndim != 4 or weights_LHTT.shape[-1] != weights_LHTT.shape[-2]:
        raise InputError(f"expected (layers, heads, tokens, tokens); given {tuple(weights_LHTT.shape)}")
    identity = torch.eye(weights_LHTT.shape[-1])
    return [0.5 * layer.mean(0) + 0.5 * identity for layer in weights_LHTT.float()]
