"""Attention through all layers: weights in, how much of each first token arrives at each last one out.

Rollout multiplies the layers; flow asks how much could pass at most (Abnar 2020). Both take each layer as
half attention, heads taken together, and half the residual stream.
Shape suffixes: L layers, H heads, T tokens.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import InputError, MissingError


def rollout(weights_LHTT: Tensor) -> Tensor:
    """(T, T): row q says of which first tokens the last state of q is made."""
    total = torch.eye(weights_LHTT.shape[-1])
    for layer_TT in _mixed(weights_LHTT):
        total = layer_TT @ total
    return total


def flow(weights_LHTT: Tensor, query: int) -> Tensor:
    """(T,): the maximum flow from the last state of one token down to each first one.

    The layers are pipes as wide as their weights. Slower than rollout: one flow problem per token.
    """
    try:
        import networkx
    except ImportError:
        raise MissingError("networkx", "attention flow") from None
    layers = _mixed(weights_LHTT)
    depth, length = len(layers), weights_LHTT.shape[-1]
    if not -length <= query < length:
        raise InputError(f"there is no token {query}; there are {length}, from 0 to {length - 1}")
    pipes = networkx.DiGraph()
    for i, layer_TT in enumerate(layers):
        for q in range(length):
            for k in range(length):
                if layer_TT[q, k] > 0:
                    pipes.add_edge((i + 1, q), (i, k), capacity=float(layer_TT[q, k]))
    top = (depth, query % length)
    there = set(pipes.nodes)
    flows = [
        networkx.maximum_flow_value(pipes, top, (0, k)) if (0, k) in there else 0.0 for k in range(length)
    ]
    return torch.tensor(flows)


def _mixed(weights_LHTT: Tensor) -> list[Tensor]:
    """Half what the heads look at together, half the stream itself; rows sum to one."""
    if weights_LHTT.ndim != 4 or weights_LHTT.shape[-1] != weights_LHTT.shape[-2]:
        raise InputError(f"expected (layers, heads, tokens, tokens); given {tuple(weights_LHTT.shape)}")
    own = torch.eye(weights_LHTT.shape[-1])
    return [0.5 * layer.mean(0) + 0.5 * own for layer in weights_LHTT.float()]
