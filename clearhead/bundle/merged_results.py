"""Results of a merge: a job in; a bundle with the merged weights, or with one merged adapter, out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from ..engine import layout, trim_heap, unprepare
from ..errors import InputError
from ..tune import (
    LowRank,
    Pairs,
    attach_tuning,
    factors_of,
    fill_adapters,
    joined,
    layer_groups,
    linear_layers,
    lora_of,
    lower_rank,
    replace_parameters,
    second_tree,
    truncated,
)
from .bundle import Bundle
from .merge_checks import is_of_head
from .merge_job import MergeJob, row_slices
from .merge_report import MergeFigures
from .tuning import model_names

MergeProgress = Callable[[int, int], None]  # parameters merged, and of how many
MergeRank = int | Literal["exact"]


@torch.no_grad()
def as_model(
    job: MergeJob, figures: MergeFigures, dtype: torch.dtype | None, progress: MergeProgress | None
) -> Bundle:
    """A bundle whose own weights are the merged ones; of adapters, weights that none changes are shared."""
    values: dict[str, Tensor] = {}
    for done, name in enumerate(job.names, 1):
        values[name] = _rounded(job, name, figures, dtype or job.dtype(name))
        if progress is not None:
            progress(done, len(job.names))
    for name in job.unchanged:
        stored = job.stored(name)
        _add_unchanged(figures, stored)
        if dtype not in (None, stored.dtype):
            values[name] = stored.to(dtype)
    model = second_tree(job.plain.model)
    unprepare(model)
    replace_parameters(model, values)
    values.clear()  # the layout below is made tensor by tensor, and each is then freed
    model.requires_grad_()
    layout.for_inference(model)
    trim_heap()
    return _bundle(job, figures, model=model, spec=job.plain.spec, tuning=None, base=None, loaded_from=None)


def _rounded(job: MergeJob, name: str, figures: MergeFigures, dtype: torch.dtype) -> Tensor:
    """A merged parameter; its pieces are rounded once."""
    stored = job.stored(name)
    merged = torch.empty(stored.shape, dtype=dtype)
    for rows, (exact, conflicts) in zip(row_slices(stored), job.merged(name), strict=True):
        piece = merged[rows] if merged.ndim else merged
        piece.copy_(exact)
        figures.add(stored[rows] if merged.ndim else stored, piece, conflicts)
    return merged.to(stored.device)


def _add_unchanged(figures: MergeFigures, stored: Tensor) -> None:
    for rows in row_slices(stored):
        figures.add(stored[rows] if stored.ndim else stored)


@torch.no_grad()
def as_adapter(
    job: MergeJob, figures: MergeFigures, rank: MergeRank, progress: MergeProgress | None
) -> Bundle:
    """A bundle tuned by one LoRA adapter; what is not the matrix of a linear layer is kept whole."""
    base, names = job.plain, model_names(job.plain)
    every = list(linear_layers(base.model))
    hit = [name for name in every if f"{name}.weight" in job.names and _is_adapted(job, name)]
    if not hit:
        raise InputError(
            "the adapters change no linear layer, so that one LoRA adapter has none; leave rank out"
        )
    layers: dict[str, LowRank] = {}
    groups = layer_groups(hit, names)
    for done, group in enumerate(groups, 1):
        layers |= _low_rank(job, group, rank, figures)
        if progress is not None:
            progress(done, len(groups))
    matrices = {f"{name}.weight" for name in hit}
    others = [name for name in job.names if name not in matrices]
    tuning = lora_of(layers, others=others, every=every)
    made = attach_tuning(base.model, tuning, names=names, learn=base.report.fresh)
    fill_adapters(made.model, layers)
    for name in others:
        parameter = made.model.get_parameter(name)
        parameter.copy_(_rounded(job, name, figures, parameter.dtype))
    for name in job.unchanged:
        _add_unchanged(figures, job.stored(name))
    layout.for_inference(made.model, only_trained=True)
    return _bundle(job, figures, model=made.model, spec=made.spec, tuning=made.tuning, base=base)


def _is_adapted(job: MergeJob, layer: str) -> bool:
    """Whether a layer becomes narrow matrices. A head that was trained as a whole stays one."""
    if not job.is_in_base(f"{layer}.weight"):
        return False
    return not is_of_head(layer) or any(source.layer(layer) for source in job.sources)


def _low_rank(
    job: MergeJob, group: Sequence[str], rank: MergeRank, figures: MergeFigures
) -> dict[str, LowRank]:
    """The narrow matrices of layers that are one matrix in the checkpoint, and share `down`."""
    names = [f"{layer}.weight" for layer in group]
    before = [job.before.exact(name) for name in names]
    merged = [list(job.merged(name)) for name in names]
    deltas = [torch.cat([piece.tensor for piece in m]) - x for m, x in zip(merged, before, strict=True)]
    rows = [len(x) for x in before]
    parts = [_factors(job, layer) for layer in group]
    if None not in parts:
        known = [part for part in parts if part is not None]
        found = joined(known, rows, before[0].shape[1])
        found = found if rank == "exact" else lower_rank(found, rank)
    elif rank == "exact":
        raise InputError(
            f"rank='exact' is for weighted sums of LoRA adapters; what {type(job.method).__name__} gives for "
            f"{group[0]} has no low rank: give a number, such as rank=16, or leave rank out for a model"
        )
    else:
        found = truncated(torch.cat(deltas), rank)
    figures.add_layer(group[0], found)
    layers = {}
    for layer, x, up_OR, pieces in zip(group, before, torch.split(found.up_OR, rows), merged, strict=True):
        layers[layer] = replace(found, up_OR=up_OR)
        stored = job.stored(f"{layer}.weight")
        after = (x + up_OR @ found.down_RI).to(stored.dtype)
        figures.add(stored, after, sum(piece.conflicts for piece in pieces))
    return layers


def _factors(job: MergeJob, layer: str) -> list[tuple[float, Pairs]] | None:
    """The factor and the narrow matrices of each adapter; None where the merge is no sum of them."""
    name = f"{layer}.weight"
    factors = job.method.coefficients(job.deltas(name), len(job.models), job.key(name))
    pairs = [factors_of(source, layer) for source in job.sources]
    known = [each for each in pairs if each is not None]
    if factors is None or len(known) < len(pairs):
        return None
    return list(zip(factors, known, strict=True))


def _bundle(job: MergeJob, figures: MergeFigures, **changes: Any) -> Bundle:
    """The first bundle with other weights."""
    first = job.models[0]
    fresh = [name for name in first.report.fresh if all(name in each.report.fresh for each in job.models)]
    base = None if job.base is None else job.base.loaded_from
    merged = figures.report(job.method, tuple(job.labels), base)
    return replace(
        first,
        config=dict(first.config),
        generation=dict(first.generation),
        files=dict(first.files),
        report=replace(first.report, fresh=tuple(fresh), merged=None, merge=merged),
        weight_files=(),
        adapter_kept=None,
        scores={},
        **changes,
    )
