"""Memory of a training step: a bundle, a task and settings in; the bytes a step needs, and an error if the
device does not have them.

The formulas count what must be there at the peak: gradients, moments, activations and logits of the largest
batch. Real runs need 5 to 25 % more, so a run is refused only if even the formulas do not fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ..bundle import Bundle
from ..errors import TrainError, reason
from ..lens.cost import cost
from ..malloc import available_memory
from ..nn import Stack
from ..tasks import Task, model_device
from .average import trainable_parameters
from .optim import SGD
from .settings import Training

WAYS_OUT = (
    "--batch-size, --max-length, --train.micro with smaller batches, --set Tower.recompute=True, or --freeze"
)


def check_memory(bundle: Bundle, task: Task[Any], training: Training) -> None:
    """Raise if the largest step does not fit in what is free. The weights are in memory already."""
    device = model_device(bundle.model)
    needed, free = step_memory(bundle, task, training), free_memory(device)
    if needed is not None and free is not None and needed > free:
        raise TrainError(
            f"a step of this run needs about {_gigabytes(needed)} GB on {device.type} and "
            f"{_gigabytes(free)} GB are free; change {WAYS_OUT}"
        )


def step_memory(bundle: Bundle, task: Task[Any], training: Training) -> int | None:
    """Bytes of the largest step besides the weights; None for a task that does not know its largest batch."""
    largest = getattr(task, "largest_batch", None)
    if largest is None:
        return None
    batch = largest()
    rows, length, target = _shape(batch)
    number = next(bundle.model.parameters()).element_size()
    computed = 2 if training.precision != "float32" else number  # bytes of a number in activations
    device: Any = "cpu" if model_device(bundle.model).type == "cpu" else "cuda"
    call = {"batch": rows, "length": length, "target": target, "training": True, "device": device}
    found = cost(bundle.spec, number=computed, **call)
    learning = sum(p.numel() * p.element_size() for p in trainable_parameters(bundle.model).values())
    kept = learning * (1 + _moments(training) + (training.ema is not None))
    # Logits are computed for tokens with a label alone: all of them, or 15 % in masked language modelling.
    labelled = min(1.0, batch.targets / (rows * (target or length)))
    return int(kept + found.activations * _share_with_backward(bundle.model) + found.answer * labelled)


def free_memory(device: torch.device) -> int | None:
    """Bytes that a device has left; None where nobody knows."""
    if device.type == "cpu":
        return available_memory()
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if device.type == "mps":
        return torch.mps.recommended_max_memory() - torch.mps.current_allocated_memory()
    return None


@contextmanager
def out_of_memory_errors(step: int) -> Iterator[None]:
    """Errors of allocators become one line; the checkpoints of the run stay as they are."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise TrainError(
            f"step {step} ran out of memory ({reason(error)[:60]}); the last checkpoint is intact: resume "
            f"after you change {WAYS_OUT}"
        ) from None


def is_out_of_memory(error: BaseException) -> bool:
    """torch has an error class for devices; its CPU allocator raises a plain RuntimeError."""
    known = isinstance(error, MemoryError | torch.OutOfMemoryError)
    return known or "can't allocate memory" in str(error) or "out of memory" in str(error).lower()


def _shape(batch: Any) -> tuple[int, int, int | None]:
    """Rows, length, and length of the decoder's input, of a batch whose first tensor is its input."""
    first = next(x for x in vars(batch).values() if isinstance(x, Tensor))
    target = getattr(batch, "target_BT", None)
    return first.shape[0], first.shape[1], None if target is None else target.shape[1]


def _moments(training: Training) -> int:
    """Numbers that the optimizer keeps for each parameter."""
    optimizer = training.optimizer
    return int(optimizer.momentum > 0) if isinstance(optimizer, SGD) else 2


def _share_with_backward(model: nn.Module) -> float:
    """The share of layers that keep activations: those from the first with a trainable parameter on."""
    stacks = [module for module in model.modules() if isinstance(module, Stack)]
    kept = total = 0
    for stack in stacks:
        learns = [any(p.requires_grad for p in block.parameters()) for block in stack.blocks]
        below = any(p.requires_grad for p in stack.embed.parameters())
        first = 0 if below else learns.index(True) if any(learns) else len(learns)
        kept, total = kept + len(learns) - first, total + len(learns)
    return kept / total if total else 1.0


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.3g}"
