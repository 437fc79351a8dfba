"""Preparing a bundle for inference: the choice of a precision, memory, and the model's own text for int4."""

from __future__ import annotations

from functools import partial
from math import prod

import torch
from torch import Tensor, nn

from ..device import check_threads
from ..engine import (
    PackProgress,
    check_precision,
    input_squares,
    layout,
    prepare_model,
    quantized_matrices,
    stored_precision,
    trim_heap,
    unprepare,
)
from ..engine import give_back_pages as give_back
from ..errors import InputError
from ..malloc import available_memory
from ..nn import check_cache_precision, generator
from .keeping import KEPT_KINDS, prepare_with_kept
from .parts import BundleParts

CALIBRATION_ROWS, CALIBRATION_LENGTH = 8, 200  # random ids that int4 is calibrated with
INT8_BLOCK = 512
# Bytes per weight of each precision, scales included.
WEIGHT_BYTES = {"float32": 4.0, "bfloat16": 2.0, "int8": 1.02, "int8-fine": 1.02, "int4": 0.65}


def prepare_bundle(
    bundle: BundleParts,
    precision: str | None,
    threads: int | None = None,
    *,
    cache_precision: str | None = None,
    keep: bool = False,
    just_loaded: bool = False,
    progress: PackProgress | None = None,
) -> None:
    """Pack the weights of the bundle's model in place; `keep` writes quantized ones into its folder.

    `cache_precision` None leaves that of the model as it is.
    `just_loaded` says that the weights are those of the model's files.
    """
    model = bundle.model
    if cache_precision is not None:
        model.cache_precision = check_cache_precision(cache_precision)
    chosen = stored_precision(bundle.dtype) if precision is None else check_precision(precision)
    if threads is not None:
        torch.set_num_threads(check_threads(threads))
    kind = KEPT_KINDS.get(chosen)
    if keep and kind is None:
        raise InputError(f"keep=True is for {', '.join(KEPT_KINDS)}; {chosen} is packed in a moment")
    unprepare(model)
    _check_memory(bundle, chosen)
    layout.use_mapped(model)
    if kind is None:
        prepare_model(model, chosen, trains_adapters=bundle.tuning is not None, progress=progress)
    else:
        importance = partial(_input_importance, bundle) if chosen == "int4" else None
        prepare_with_kept(
            bundle, chosen, kind, keep=keep, just_loaded=just_loaded, importance=importance, progress=progress
        )
    give_back(model.parameters())
    trim_heap()


def _input_importance(bundle: BundleParts) -> dict[nn.Module, Tensor]:
    """How large the inputs of each layer are, measured on random ids: as good as text (docs/log.md)."""
    model, spec = bundle.model, bundle.spec
    length = min(CALIBRATION_LENGTH, spec.max_length or CALIBRATION_LENGTH)
    inputs = [
        tower.embed.example(CALIBRATION_ROWS, length, generator(0, "calibration", str(i)))
        for i, tower in enumerate(list(spec.towers.values())[: spec.inputs])
    ]
    return input_squares(model, lambda: model(*inputs))


def _padding(outputs: int, inputs: int) -> int:
    """Bytes that torch's int8 product adds to a matrix: its inputs are filled up to a multiple of 512."""
    return outputs * (-inputs % INT8_BLOCK)


def _check_memory(bundle: BundleParts, precision: str) -> None:
    """Raise an error that says what would fit, before anything is packed."""
    free = available_memory()
    if free is None:
        return
    needed = {name: int(size * bundle.parameters) for name, size in WEIGHT_BYTES.items()}
    for name in ("int8", "int8-fine", "int4"):
        int8 = [m.shape for m in quantized_matrices(bundle.model, name).values() if m.kind == "int8"]
        more = WEIGHT_BYTES["int8"] - WEIGHT_BYTES[name]  # in int4 the vocabulary is int8
        needed[name] += int(sum(more * prod(shape) + _padding(*shape) for shape in int8))
    if needed[precision] > free:
        fitting = [name for name, size in needed.items() if size <= free]
        advice = f"precision={fitting[0]!r} fits" if fitting else "no precision fits: choose a smaller model"
        raise InputError(
            f"{precision} needs {needed[precision] / 1e9:.1f} GB for {bundle.parameters:,} weights, and "
            f"{free / 1e9:.1f} GB are free; {advice}"
        )
