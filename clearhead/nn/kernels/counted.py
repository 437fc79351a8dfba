"""Counting: a kernel, or whatever else mixes tokens, in; what it costs out, by running it without numbers.

torch's meta device has shapes and no memory: a call on it takes a moment, and says which products it would
make and what autograd would keep. For kernels that have no closed formula of their own.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from ..work import Work


def counted(module: nn.Module, call: Callable[..., Tensor], given: list[Tensor], *, training: bool) -> Work:
    """The work of `call(*given)`; the parameters and the given tensors are on the meta device."""
    kept: dict[int, int] = {}

    def keep(x: Tensor) -> Tensor:
        kept[x.untyped_storage()._cdata] = x.untyped_storage().nbytes()
        held.append(x)  # a storage that is gone could lend its number to another
        return x

    held: list[Tensor] = []
    forward, both = FlopCounterMode(display=False), FlopCounterMode(display=False)
    module.train(training)
    with both, torch.random.fork_rng(devices=[]):
        with forward, torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
            answer = call(*(x.requires_grad_() for x in given))
        answer.sum().backward()  # type: ignore[no-untyped-call]
    keep(answer)
    own = {p.untyped_storage()._cdata for p in module.parameters()}
    return Work(
        parameters=sum(p.numel() for p in module.parameters()),
        flops=forward.get_total_flops(),
        backward=both.get_total_flops() - forward.get_total_flops(),
        saved=sum(size for where, size in kept.items() if where not in own) if training else 0,
    )
