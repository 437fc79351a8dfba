"""Merging: several models or adapters and a method in; one bundle out, with what was done in its report.

    ch.merge(["runs/fr", "runs/de"], Ties(density=0.5))              adapters over one base: a model
    ch.merge(["runs/fr", "runs/de"], rank=16)                        the same as one adapter
    ch.merge(["math", "code"], TaskArithmetic(), base="base")        whole models

Parameters are merged one after the other, piece by piece in float64, and rounded once. The inputs stay as
they are: folders are mapped, so that the memory of the result is needed once, and some pieces, however many
models are merged. Adapters are merged by what they add to the weights, not by their narrow matrices.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from ..engine import PRECISIONS
from ..errors import InputError, quoted
from ..store import is_adapter_folder, resolve
from ..tune import MergeMethod, WeightedAverage
from .adapters import base_of_adapter
from .bundle import Bundle
from .loading import load, open_mapped
from .merge_checks import check_alike, check_bases, check_float, head_difference, is_of_head
from .merge_job import MergeJob
from .merge_report import MergeFigures
from .merged_results import MergeProgress, MergeRank, as_adapter, as_model
from .their_arguments import as_dtype
from .tuning import quantized_precision

QUANTIZED = set(PRECISIONS) - {"float32", "bfloat16"}
MergeInput = Bundle | str | Path

_log = logging.getLogger("clearhead.bundle")


def merge(
    models: Sequence[MergeInput],
    method: MergeMethod | None = None,
    *,
    base: MergeInput | None = None,
    rank: MergeRank | None = None,
    dtype: torch.dtype | str | None = None,
    any_base: bool = False,
    seed: int = 0,
    progress: MergeProgress | None = None,
) -> Bundle:
    """Merge models of one shape, or adapters over one base, into one bundle; the inputs stay as they are.

    `models` are bundles, folders or Hub ids. `method` is a value of `clearhead.tune`: WeightedAverage (the
    default), Slerp, TaskArithmetic, Ties, Dare or DareTies; `seed` decides what the last two draw. `base` is
    the model that the others were fine-tuned from; adapters know theirs. `any_base` lets adapters be put
    over other weights than they were trained over.
    Adapters become a model, or one adapter: with `rank="exact"` of the sum of their ranks, with a number the
    best approximation of that rank. The result has the number format of its parts, or `dtype`.
    Tokenizer, config and head are those of the first where they differ, with a note. `report.merge` tells
    how much changed. `progress` is called with the number of merged parameters and of all.
    """
    method = WeightedAverage() if method is None else method
    _check_arguments(models, method, rank)
    check_float(str(dtype) if str(dtype) in QUANTIZED else None)
    number = as_dtype(dtype)
    method.check_count(len(models))
    given = None if base is None else base if isinstance(base, Bundle) else open_mapped(base)
    if given is not None and given.tuning is not None:
        raise InputError("the base is an adapter itself; give the model that it is over")
    opened = _open_all(models, base, given, any_base=any_base)
    labels = [f"model {i}" if isinstance(each, Bundle) else str(each) for i, each in enumerate(models, 1)]
    figures = MergeFigures()
    job = _job(opened, labels, method, given, seed, figures)
    if rank is None:
        return as_model(job, figures, number, progress)
    if not job.are_adapters:
        raise InputError("rank is for adapters, which become one adapter; these are whole models")
    if number is not None:
        raise InputError("dtype is for a merged model; an adapter has the number format of its parts")
    return as_adapter(job, figures, rank, progress)


def _check_arguments(models: Any, method: object, rank: object) -> None:
    is_list = isinstance(models, list | tuple) and models
    if not is_list or not all(isinstance(each, Bundle | str | Path) for each in models):
        raise InputError(
            f"merge takes a list of bundles or folders, such as ['runs/fr', 'runs/de']; "
            f"given {quoted(models)}"
        )
    if not isinstance(method, MergeMethod):
        known = ", ".join(MergeMethod.kinds())
        raise InputError(f"a way of merging is one of {known}, such as Ties(); given {quoted(method)}")
    is_count = isinstance(rank, int) and not isinstance(rank, bool) and rank > 0
    if rank is not None and rank != "exact" and not is_count:
        raise InputError(f"rank is {quoted(rank)}, expected a whole number from 1, or 'exact'")


def _open_all(
    models: Sequence[MergeInput], base: MergeInput | None, given: Bundle | None, *, any_base: bool
) -> list[Bundle]:
    """The bundles. Those of folders are mapped; weights out of a .gguf file are not, and are read once."""
    unmapped = {str(base): given} if given is not None and not given.weight_files else {}
    found = []
    for each in models:
        if isinstance(each, Bundle):
            bundle = each
        elif not is_adapter_folder(resolve(each)):
            bundle = open_mapped(each)
        else:
            over = base_of_adapter(each) if base is None else base
            shared = over if isinstance(over, Bundle) else unmapped.get(str(over))
            if shared is not None:
                bundle = load(shared, adapter=each, any_base=any_base)
            else:
                bundle = open_mapped(str(over), adapter=each, any_base=any_base)
            if isinstance(bundle.base, Bundle) and not bundle.weight_files:
                unmapped[str(over)] = bundle.base
        check_float(quantized_precision(bundle))
        found.append(bundle)
    return found


def _job(
    models: list[Bundle],
    labels: list[str],
    method: MergeMethod,
    base: Bundle | None,
    seed: int,
    figures: MergeFigures,
) -> MergeJob:
    """Check that everything fits together, and note what does not and is taken from the first."""
    plain = [each.base if isinstance(each.base, Bundle) else each for each in models]
    base = _base(models, plain, labels, method, base)
    why = next((why for each in models[1:] if (why := head_difference(models[0], each))), None)
    for other, label in zip(plain[1:], labels[1:], strict=True):
        figures.notes += check_alike(plain[0], other, (labels[0], label), heads=why is None)
    if base is not None and base is not plain[0]:
        same_head = why is None and head_difference(models[0], base) is None
        figures.notes += check_alike(plain[0], base, (labels[0], "the base"), heads=same_head)
    of_first = frozenset[str]()
    if why is not None:
        of_first = frozenset(name for name, _ in plain[0].model.named_parameters() if is_of_head(name))
        figures.notes.append(f"the head is that of {labels[0]}, because the heads differ: {why}")
    for note in figures.notes:
        _log.warning("%s", note)
    return MergeJob(models, labels, method, base, seed, of_first)


def _base(
    models: list[Bundle], plain: list[Bundle], labels: list[str], method: MergeMethod, base: Bundle | None
) -> Bundle | None:
    """What differences are taken to; None where whole models are merged by their weights themselves."""
    if all(bundle.tuning is not None for bundle in models):
        check_bases([*plain, *([base] if base else [])], [*labels, "the base"][: len(plain) + bool(base)])
        return plain[0]
    if not method.needs_base:
        if base is not None:
            raise InputError(f"{type(method).__name__} merges no differences to a base; leave the base out")
        return None
    if base is not None:
        return base
    found = next((each.base for each in models if isinstance(each.base, Bundle)), None)
    if found is None:
        raise InputError(
            f"{type(method).__name__} merges differences to a base; give the model that these were "
            f"fine-tuned from: base=FOLDER (--base FOLDER)"
        )
    return found
