"""Opening a model for a command that only asks it: its name in; a bundle out, prepared for this CPU."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from .console import ERR
from .options import NO_ADAPTER, AdapterOptions, Edits

if TYPE_CHECKING:
    from ..bundle import Bundle


def compile_operators() -> None:
    """Load the fused operators of generation, or compile them, which takes some seconds once."""
    from ..engine import kernels

    with ERR.status("loading operators; the first time they are compiled"):
        kernels()


def adapted(model: str, over: AdapterOptions) -> tuple[str, dict[str, Any]]:
    """What is loaded, and the arguments of `load` for the adapter that is put over it."""
    from ..bundle import base_of_adapter

    if over.adapter != "none":
        return model, {"adapter": over.adapter, "any_base": over.any_base}
    return str(base_of_adapter(model)), {}


def open_prepared(
    model: str,
    *,
    over: AdapterOptions = NO_ADAPTER,
    precision: str | None = None,
    cache_precision: str | None = None,
    keep: bool = False,
    edit: Edits | None = None,
    device: str | None = None,
    threads: int | None = None,
) -> Bundle:
    """Load a model and pack its weights, with a status line.

    Without a precision it is the stored one. `keep` writes quantized weights into the model's folder.
    Another device than the CPU has no packed products: there a float precision is the number format of all
    weights.
    """
    from ..bench.timing import set_threads
    from ..bundle import load, open_mapped
    from ..device import choose_device
    from ..engine import check_precision
    from ..nn import check_cache_precision

    if cache_precision is not None:
        check_cache_precision(cache_precision)
    checked = None if precision is None else check_precision(precision)
    if threads is not None:
        set_threads(threads)
    place = choose_device(device)
    model, adapter = adapted(model, over)
    with ERR.status(f"loading {Path(model).name}") as status:
        if place == "cpu":
            return open_mapped(model, edit=edit, **adapter).prepare(
                checked,
                cache_precision=cache_precision,
                keep=keep,
                progress=lambda done, count: status.update(f"packing matrix {done} of {count}"),
            )
        if keep or checked not in (None, "float32", "bfloat16"):
            given = "--keep" if keep else f"--precision {checked}"
            raise InputError(
                f"{given} is for the CPU, and the device is {place}; "
                f"leave it out, choose --precision bfloat16, or --device cpu"
            )
        return load(model, dtype=checked, cache_precision=cache_precision, edit=edit, device=place, **adapter)
