"""The cost of one block, summed over its sub-layers.

The hidden states between two sub-layers are saved once for the backward pass; they are counted in the
sub-layer that reads them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...nn import Block, HiddenShape, PartCost, PositionCost, linear_cost


@dataclass(frozen=True)
class BlockCost:
    """One layer in two parts: norms and dropout on the hidden states, and the inside of its sub-layers.

    Tensor parallelism splits the inside; each device has the complete hidden states.
    """

    stream: PartCost
    inside: PartCost
    steps: int  # sub-layers
    last: int  # FLOPs of the last matrix product, if recomputation stops before it

    @property
    def all(self) -> PartCost:
        return self.stream + self.inside


def block(
    spec: Block,
    shape: HiddenShape,
    encoder: HiddenShape | None,
    *,
    causal: bool,
    positions: PositionCost,
    whole: bool = False,
) -> BlockCost:
    """The cost of one block. Every sub-layer saves the input and the output of its norm.

    `whole`: the block is recomputed to its end.
    """
    steps = [spec.attention.cost(shape, causal=causal, positions=positions), spec.feedforward.cost(shape)]
    if spec.cross is not None:
        assert encoder is not None
        steps.insert(1, spec.cross.cross_cost(shape, encoder))
    if spec.aside is not None:
        steps.append(spec.aside.cost(shape, causal=causal, positions=PositionCost()))
    stream, norm = shape.bytes, spec.norm.cost(shape)
    norm_and_dropout = norm + PartCost(saved=shape.dropout_bytes(shape.vectors * shape.width, spec.dropout))
    if spec.order == "parallel":  # all sub-layers read the same states
        outside = (norm_and_dropout + PartCost(saved=stream)).times(len(steps)) + PartCost(saved=stream)
    elif spec.order == "parallel-shared":  # and the same norm of them
        dropout = replace(norm_and_dropout, parameters=0, saved=norm_and_dropout.saved - norm.saved)
        outside = dropout.times(len(steps)) + norm + PartCost(saved=2 * stream)
    elif spec.order == "sandwich":
        outside = (norm_and_dropout + norm + PartCost(saved=3 * stream)).times(len(steps))
    else:
        outside = (norm_and_dropout + PartCost(saved=2 * stream)).times(len(steps))
    if spec.attention_norm is not None:
        own = spec.attention_norm.cost(shape)
        outside += replace(own, parameters=own.parameters - norm.parameters, saved=own.saved - norm.saved)
    inside = sum(steps[1:], steps[0])
    return BlockCost(outside, inside, len(steps), 0 if whole else _skipped_flops(spec, shape))


def _skipped_flops(spec: Block, shape: HiddenShape) -> int:
    """Recomputation stops before the last product, unless something after it is saved."""
    saved_after = spec.order in ("post", "output", "sandwich") or spec.dropout > 0
    saved_after = saved_after or spec.aside is not None
    inputs = spec.feedforward.last_product_inputs
    return 0 if saved_after else linear_cost(shape.vectors, inputs, shape.width, bias=False).flops
