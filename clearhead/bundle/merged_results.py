"""Results of a merge: a job in; a bundle with the merged weights, or with one merged adapter, out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from ..engine import layout, unprepare
from ..errors import InputError
from ..tune import (
    LowRank,
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
from .merge_job import MergeJob
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
        exact, conflicts = job.merged(name)
        stored = job.stored(name)
        values[name] = exact.to(dtype or job.dtype(name)).to(stored.device)
        figures.add(stored, values[name].cpu(), conflicts)
        if progress is not None:
            progress(done, len(job.names))
    for name in job.unchanged:
        stored = job.stored(name)
        figures.add(stored)
        if dtype not in (None, stored.dtype):
            values[name] = stored.to(dtype)
    model = second_tree(job.plain.model)
    unprepare(model)
    replace_parameters(model, values)
    model.requires_grad_()
    layout.for_inference(model)
    return _bundle(job, figures, model=model, spec=job.plain.spec, tuning=None, base=None, loaded_from=None)


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
        parameter.copy_(job.merged(name).tensor)
        figures.add(job.stored(name), parameter.detach().cpu())
    for name in job.unchanged:
        figures.add(job.stored(name))
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
    deltas = [job.deltas(name) for name in names]
    combined = [job.method.combine(d, job.key(n)) for n, d in zip(names, deltas, strict=True)]
    factors = [job.method.coefficients(d, job.key(n)) for n, d in zip(names, deltas, strict=True)]
    pairs = [[factors_of(source, layer) for source in job.sources] for layer in group]
    rows, inputs = [len(x) for x in before], before[0].shape[1]
    if None not in factors and not any(None in each for each in pairs):
        parts: Any = [list(zip(f, p, strict=True)) for f, p in zip(factors, pairs, strict=True)]  # type: ignore[arg-type]
        found = joined(parts, rows, inputs)
        found = found if rank == "exact" else lower_rank(found, rank)
    elif rank == "exact":
        raise InputError(
            f"rank='exact' is for weighted sums of LoRA adapters; what {type(job.method).__name__} gives for "
            f"{group[0]} has no low rank: give a number, such as rank=16, or leave rank out for a model"
        )
    else:
        found = truncated(torch.cat([each.tensor for each in combined]), rank)
    figures.add_layer(group[0], found)
    layers = {}
    for layer, x, up_OR, each in zip(group, before, torch.split(found.up_OR, rows), combined, strict=True):
        layers[layer] = replace(found, up_OR=up_OR)
        after = (x + up_OR @ found.down_RI).to(job.stored(f"{layer}.weight").dtype)
        figures.add(job.stored(f"{layer}.weight"), after, each.conflicts)
    return layers


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
