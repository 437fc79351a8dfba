"""Memory layout: a model in; the same weights out, laid out so that results are reproducible.

Math libraries choose a kernel by the alignment and the strides of a matrix, and kernels differ in the order
of rounding. A weight mapped from a file begins wherever the file's header ends; a view of a fused tensor has
the strides of the whole. So before a model computes, its weights get one layout, wherever they came from (a
file, a fused tensor, a fresh build, a training run): aligned to 64 bytes, and

    for inference   contiguous, but float32 matrices on a CPU by inputs: the transpose of a contiguous matrix
    for training    contiguous, in memory of its own, because it will be written to

Other devices align their memory themselves, and weights there are contiguous for both.

By inputs is the faster layout for float32 products of few rows: 1.2 to 1.8 times for one row on processors
with AVX-512, 1.2 to 2.5 times for 4 to 64 rows on those with AVX2 only. In float16 it is 20 times slower.
docs/exactness.md lists what else identical bits depend on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from ..nn import Stack, TokenEmbedding, TokenLogits
from .pages import give_back_pages

Stamp = tuple[int, int]
ALIGNMENT = 64  # bytes: what torch itself allocates at, and the widest load of a CPU


@torch.no_grad()
def for_inference(model: nn.Module, *, mapped: bool = False, only_trained: bool = False) -> None:
    """Lay out every parameter for inference. Parameters that already have the layout are not copied.

    `only_trained` leaves those alone that require no gradient: another tree of modules shares them.

    `mapped` says that they are views of a file: such a view takes no memory, so it is kept beside the copy,
    and `use_mapped` can drop the copy again.
    """
    by_inputs = {id(x) for x in _matrices(model) if x.device.type == "cpu" and x.dtype == torch.float32}
    # Only where they are needed: they keep what was copied in memory.
    views = {parameter: parameter.data for parameter in model.parameters()} if mapped else {}
    for parameter in model.parameters():
        if only_trained and not parameter.requires_grad:
            continue
        if id(parameter) in by_inputs:
            parameter.data = aligned_contiguous(parameter.data.t()).t()
        else:
            parameter.data = aligned_contiguous(parameter.data)

    if mapped:
        give_back_pages(views.values())
        copied = {p: view for p, view in views.items() if view.data_ptr() != p.data_ptr()}
        model.mapped_views = MappedViews(copied)  # type: ignore[assignment]


@torch.no_grad()
def use_mapped(model: nn.Module) -> None:
    """Parameters become views of their file again, unless they were changed since they were loaded."""
    views: dict[nn.Parameter, Tensor] = getattr(model, "mapped_views", {})
    for parameter, view in views.items():
        # Compared in full: torch does not count writes through `.data`, and none of them may be lost.
        if parameter.dtype == view.dtype and parameter.device == view.device and torch.equal(parameter, view):
            parameter.data = view
    views.clear()


def share_mapped(model: nn.Module, tree: nn.Module, parameters: Mapping[nn.Parameter, nn.Parameter]) -> None:
    """Let a second tree over the same weights know the views of their file; `parameters` are its own."""
    views: dict[nn.Parameter, Tensor] | None = getattr(model, "mapped_views", None)
    if views is not None:
        tree.mapped_views = MappedViews(  # type: ignore[assignment]
            {parameters[p]: view for p, view in views.items() if p in parameters}
        )


class MappedViews(dict[nn.Parameter, Tensor]):
    """The view of its file for each parameter that was copied from one."""

    def __deepcopy__(self, memo: object) -> MappedViews:
        return MappedViews()  # a copied model has memory of its own; the views would be copied, too


def stamp(x: Tensor) -> Stamp:
    """Changes when a tensor is written to, or gets other memory while the memory it had is not freed."""
    return x.data_ptr(), 0 if x.is_inference() else x._version


@torch.no_grad()
def for_training(model: nn.Module, *, only_trained: bool = False) -> None:
    """Make every parameter contiguous, in memory that is not shared with anything else."""
    for parameter in model.parameters():
        if only_trained and not parameter.requires_grad:
            continue
        parameter.data = parameter.data.clone(memory_format=torch.contiguous_format)


def aligned_contiguous(x: Tensor) -> Tensor:
    """The tensor itself if it is contiguous and begins at a multiple of 64 bytes; else a copy that does."""
    if x.is_contiguous() and (x.device.type != "cpu" or x.data_ptr() % ALIGNMENT == 0):
        return x
    return x.clone(memory_format=torch.contiguous_format)


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
