"""Reversible layers (Gomez 2017, Reformer): two streams in, two streams out, and nothing kept in between.

    y1 = x1 + attention(x2)          x2 = y2 - feedforward(y1)
    y2 = x2 + feedforward(y1)        x1 = y1 - attention(x2)

In the backward pass each layer's inputs are computed from its outputs, so that training keeps the last states
only, however deep the tower. The gradients are those of the plain computation.
Shape suffixes: B batch, T tokens, D width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import get_device_states, set_device_states

from ..block import BlockModule
from ..context import Context
from ..tap import OFF


def run_reversible(blocks: Sequence[BlockModule], x_BTD: Tensor, contexts: Sequence[Context]) -> Tensor:
    """Both streams side by side, (B, T, 2 * D); each begins as `x`."""
    watched = contexts[0].tap is not OFF  # a tap that changes an activation must be part of the graph
    if watched or not torch.is_grad_enabled():
        one = two = x_BTD
        for block, ctx in zip(blocks, contexts, strict=True):
            one, two = block.forward_reversible(one, two, ctx)
    else:
        work = _Work(blocks, contexts)
        apply: Any = _TwoStreams.apply
        one, two = apply(work, x_BTD, x_BTD.clone(), *work.parameters)
    return torch.cat([one, two], dim=-1)


@dataclass(frozen=True)
class _RandomState:
    """The states of the CPU's generator and of that of the device a tensor is on."""

    cpu: Tensor
    devices: list[int]
    states: list[Tensor]
    kind: str  # the type of the device

    @classmethod
    def of(cls, x: Tensor) -> _RandomState:
        devices, states = get_device_states(x)
        return cls(torch.get_rng_state(), devices, states, x.device.type if devices else "cuda")


@dataclass(frozen=True)
class _Work:
    blocks: Sequence[BlockModule]
    contexts: Sequence[Context]
    random: list[_RandomState] = field(default_factory=list)  # of the dropout generators, step by step

    @property
    def parameters(self) -> list[nn.Parameter]:
        """Each once, though shared layers have it in several places."""
        every = {id(p): p for block in self.blocks for p in block.parameters() if p.requires_grad}
        return list(every.values())


class _TwoStreams(torch.autograd.Function):
    @staticmethod
    def forward(fx: Any, work: _Work, one: Tensor, two: Tensor, *parameters: Tensor) -> tuple[Tensor, Tensor]:
        for block, ctx in zip(work.blocks, work.contexts, strict=True):
            for name, read in (("attn", two), ("ff", None)):
                if block.training:
                    work.random.append(_RandomState.of(one))
                if read is not None:
                    one = one + block.sublayer(name, read, ctx)
                else:
                    two = two + block.sublayer(name, one, ctx)
        fx.work = work
        fx.save_for_backward(one, two)
        return one, two

    @staticmethod
    def backward(fx: Any, grad_one: Tensor, grad_two: Tensor) -> tuple[Tensor | None, ...]:
        work, (one, two) = fx.work, fx.saved_tensors
        sums: dict[int, Tensor] = {}
        random = iter(reversed(work.random))
        for block, ctx in zip(reversed(work.blocks), reversed(work.contexts), strict=True):
            made, grad = _again(block, "ff", one, grad_two, ctx, sums, next(random, None))
            two, grad_one = two - made, grad_one + grad
            made, grad = _again(block, "attn", two, grad_one, ctx, sums, next(random, None))
            one, grad_two = one - made, grad_two + grad
        return None, grad_one, grad_two, *(sums.get(id(p)) for p in work.parameters)


def _again(
    block: BlockModule,
    name: str,
    read: Tensor,
    grad: Tensor,
    ctx: Context,
    sums: dict[int, Tensor],
    random: _RandomState | None,
) -> tuple[Tensor, Tensor]:
    """One sub-layer recomputed: its output for `read`, and the gradient of that."""
    wanted = [p for p in block.sublayer_parameters(name) if p.requires_grad]
    with torch.enable_grad(), _drawn_from(random):
        read = read.detach().requires_grad_()
        made = block.sublayer(name, read, ctx)
    into, *shares = torch.autograd.grad(made, [read, *wanted], grad, allow_unused=True)
    for parameter, share in zip(wanted, shares, strict=True):
        if share is not None:
            sums[id(parameter)] = sums[id(parameter)] + share if id(parameter) in sums else share
    return made.detach(), into


@contextmanager
def _drawn_from(random: _RandomState | None) -> Iterator[None]:
    """The same random numbers as the first time, and the generators as they were afterwards."""
    if random is None:
        yield
        return
    with torch.random.fork_rng(devices=random.devices, device_type=random.kind):
        torch.set_rng_state(random.cpu)
        set_device_states(random.devices, random.states, device_type=random.kind)
        yield
