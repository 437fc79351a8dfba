"""Which experts the tokens went to: the weights of a trace in; choices in order, and the load, out.

Shape suffixes: L layers with experts, T tokens, E experts.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..errors import InputError
from .record import AttentionKind
from .trace_data import TraceData


def chosen_experts(weights_E: Tensor) -> list[tuple[int, float]]:
    """The experts of one token with their weights, highest first; none if all were full."""
    order = weights_E.argsort(descending=True, stable=True).tolist()
    return [(e, float(weights_E[e])) for e in order if float(weights_E[e]) != 0]


def expert_load(routing_LTE: Tensor) -> Tensor:
    """(L, E): the share of each expert in all choices of a layer; 1 / E each if they are balanced."""
    counts_LE = (routing_LTE != 0).float().sum(1)
    return counts_LE / counts_LE.sum(-1, keepdim=True).clamp(min=1)


def routing_facts(trace: TraceData, kind: AttentionKind) -> dict[str, Any]:
    """What a page or a program needs to show: for each layer, the choices of each token and the load."""
    side = trace.side_of(kind)
    routing_LTE = trace.routing(side=side)
    return {
        "side": side,
        "layers": trace.expert_layers(side),
        "experts": routing_LTE.shape[-1],
        "tokens": [token.label for token in trace.sides(kind)[0]],
        "chosen": [
            [[(e, round(weight, 4)) for e, weight in chosen_experts(weights_E)] for weights_E in layer_TE]
            for layer_TE in routing_LTE
        ],
        "load": [[round(share, 4) for share in row] for row in expert_load(routing_LTE).tolist()],
    }


def routing_facts_or_none(trace: TraceData, kind: AttentionKind) -> dict[str, Any] | None:
    """None if there are no experts where this attention is."""
    try:
        return routing_facts(trace, kind)
    except InputError:
        return None
