"""Memory layout: a model in; the same weights out, in memory where one product has one result.

Math libraries choose their loops by where a matrix begins and by its strides, and each loop rounds in its own
order. A weight mapped from a file begins wherever the file's header ends; a view of a fused tensor has the
strides of the whole. So before a model computes, its weights are laid out one way, whatever they came from
(a file, a fused tensor, a fresh build, a training run): at a multiple of 64 bytes, and

    for inference   contiguous, but float32 matrices on a CPU by inputs: the transpose of a contiguous matrix
    for training    contiguous, in memory of its own, because it will be written to

By inputs is the faster layout of float32 products of few rows: 1.2 to 1.8 times at one row where the
processor has AVX-512, 1.2 to 2.5 times from 4 to 64 rows where it has AVX2 alone. In float16 it is 20 times
slower.
docs/exactness.md says what else identical bits depend on.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from ..nn import Stack, TokenEmbedding, TokenLogits

ALIGNMENT = 64  # bytes: what torch itself allocates at, and the widest load of a CPU


@torch.no_grad()
def for_inference(model: nn.Module) -> None:
    """Lay out every parameter for computing answers. What lies right already is not copied."""
    by_inputs = {id(matrix) for matrix in _matrices(model) if _is_cpu_float32(matrix)}
    for parameter in model.parameters():
        if id(parameter) in by_inputs:
            parameter.data = aligned_contiguous(parameter.data.t()).t()
        else:
            parameter.data = aligned_contiguous(parameter.data)


@torch.no_grad()
def for_training(model: nn.Module) -> None:
    """Every parameter contiguous, in memory that nothing else looks at."""
    for parameter in model.parameters():
        parameter.data = parameter.data.clone(memory_format=torch.contiguous_format)


def aligned_contiguous(x: Tensor) -> Tensor:
    """The tensor itself if it is contiguous and begins at a multiple of 64 bytes; else a copy that does."""
    if x.is_contiguous() and x.data_ptr() % ALIGNMENT == 0:
        return x
    return x.clone(memory_format=torch.contiguous_format)


def _is_cpu_float32(x: Tensor) -> bool:
    return x.device.type == "cpu" and x.dtype == torch.float32


def _matrices(model: nn.Module) -> Iterator[Tensor]:
    """The weights of linear layers and of the product with the vocabulary, which may be the token table."""
    for layer in model.modules():
        if isinstance(layer, nn.Linear):
            yield layer.weight
    head = getattr(model, "head", None)
    if isinstance(head, TokenLogits):
        if head.weight is not None:
            yield head.weight
        else:
            last = [module for module in model.modules() if isinstance(module, Stack)][-1]
            assert isinstance(last.embed, TokenEmbedding)
            yield last.embed.table.weight
