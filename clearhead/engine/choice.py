"""The choice of a product: the shape of a matrix and the candidates in; the fastest one on this machine out.

Machines differ (AVX2 alone, AVX-512, AMX; one math library or another), so nothing is chosen by name. Each
candidate multiplies random matrices of the shape, enough of them that none stays in a cache, for a few
milliseconds per class of rows:

    1        a decode step of one sequence
    2-8      beams, small batches
    9-64     larger batches, the slots of a server
    many     prompts, sentences to embed

A candidate counts only if its result is right. The result is kept per machine in the user's cache folder.
"""

from __future__ import annotations

import json
import logging
import os
import platform
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .products import Pack, Product

ROW_CLASSES = {"1": 1, "2-8": 4, "9-64": 16, "many": 256}  # rows with which each class is measured
COLD_BYTES = 96_000_000  # of all matrices of a measurement, so that each is read from memory
MOST_COPIES = 160
MEASURE_SECONDS = 0.008  # per candidate and class of rows
TOO_LARGE = 8_000_000  # weights from which on many rows are not measured: it would take too long
PRODUCT_TOLERANCE = 0.016  # relative error of a product: that of bfloat16
MARGIN = 0.92  # a later candidate is chosen if it takes less than this share of the time
Times = dict[str, float]  # seconds of one product, by class of rows


@dataclass(frozen=True)
class ProductChoice:
    """The product for one shape, and what was measured: seconds by candidate and class of rows."""

    name: str
    seconds: dict[str, Times]


def choose_product(packs: Sequence[Pack], outputs: int, inputs: int) -> ProductChoice:
    """The fastest of these packings for matrices of this shape; measured once per machine."""
    key = _key(packs, outputs, inputs)
    kept = _kept().get(key)
    if not kept:
        kept = {pack_name(pack): measure_pack(pack, outputs, inputs) for pack in packs}
        keep_measured(packs, outputs, inputs, kept)
    return _choice(kept)


def keep_measured(packs: Sequence[Pack], outputs: int, inputs: int, measured: dict[str, Times]) -> None:
    """From now on the choice between these packings follows from these times, on this machine."""
    _kept()[_key(packs, outputs, inputs)] = measured
    _write_kept()


def by_name(packs: Sequence[Pack], name: str) -> Pack:
    return next(pack for pack in packs if pack_name(pack) == name)


def all_kept() -> dict[str, dict[str, Times]]:
    """Everything that was measured on this machine, by candidates and shape."""
    return dict(_kept())


def all_choices() -> dict[str, ProductChoice]:
    """What follows from everything that was measured on this machine, by candidates and shape."""
    return {key: _choice(kept) for key, kept in all_kept().items() if kept}


def _key(packs: Sequence[Pack], outputs: int, inputs: int) -> str:
    return f"{'|'.join(pack_name(pack) for pack in packs)} {outputs}x{inputs}"


def _choice(measured: dict[str, Times]) -> ProductChoice:
    """The first of the candidates that work, unless a later one is faster; the last if none works."""
    working = [name for name, times in measured.items() if times]
    best = working[0] if working else list(measured)[-1]
    for name in working[1:]:
        if _relative(measured[name], measured[best]) < MARGIN:
            best = name
    return ProductChoice(best, measured)


def _relative(one: Times, two: Times) -> float:
    """The mean ratio of the times of two candidates; every class of rows counts the same."""
    ratios = [one[rows] / two[rows] for rows in one if rows in two]
    return sum(ratios) / len(ratios)


def pack_name(pack: Pack) -> str:
    return str(getattr(pack, "name", ""))


@torch.inference_mode()
def measure_pack(pack: Pack, outputs: int, inputs: int, tolerance: float = PRODUCT_TOLERANCE) -> Times:
    """Seconds by class of rows; empty if it fails or is wrong."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(outputs, inputs, generator=generator) * inputs**-0.5
    try:
        copies = [pack(weight, None)]
        count = min(MOST_COPIES, COLD_BYTES // max(copies[0].bytes, 1))
        copies += [pack(weight, None) for _ in range(count - 1)]
        times: Times = {}
        for rows, measured in ROW_CLASSES.items():
            if rows == "many" and outputs * inputs > TOO_LARGE:
                continue
            x = torch.randn(measured, inputs, generator=generator)
            if not is_right(copies[0], x, weight, tolerance):
                raise RuntimeError("its result is wrong")
            times[rows] = _seconds(copies, x)
    except (RuntimeError, AttributeError, TypeError, ImportError) as error:
        reason = str(error).strip().split("\n")[0][:100]
        logging.getLogger("clearhead.engine").info("%s is not used: %s", pack_name(pack), reason)
        return {}
    return times


def is_right(product: Product, x: Tensor, weight: Tensor, tolerance: float = PRODUCT_TOLERANCE) -> bool:
    """Whether the product of float32 numbers is that of `F.linear`, to within the tolerance."""
    wanted = x @ weight.T
    return float((product.compute(x) - wanted).norm()) <= tolerance * float(wanted.norm())


def _seconds(copies: Sequence[Product], x: Tensor) -> float:
    """The time of one product: the least of a few rounds, because other load only ever adds to it."""
    copies[0].compute(x)
    best, spent = float("inf"), 0.0
    while spent < MEASURE_SECONDS:
        start = time.perf_counter()
        for product in copies:
            product.compute(x)
        elapsed = time.perf_counter() - start
        best, spent = min(best, elapsed / len(copies)), spent + elapsed
    return best


def machine() -> str:
    """What the speed of a product depends on, in one line."""
    limits = " ".join(
        f"{name}={os.environ[name]}"
        for name in ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS")
        if name in os.environ
    )
    parts = (_processor(), f"torch {torch.__version__}", f"{torch.get_num_threads()} threads", limits)
    return ", ".join(part for part in parts if part)


@cache
def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    found = {line.split(":")[0].strip(): line.partition(":")[2].strip() for line in lines if ":" in line}
    name = found.get("model name") or platform.processor() or platform.machine()
    # Virtual machines often hide the model; the caches and instructions tell two of one name apart.
    details = f"{found.get('cpu family', '')}.{found.get('model', '')} {found.get('cache size', '')}"
    return f"{name} {details}".strip()


def kept_path() -> Path:
    """The file with everything measured, of all machines that share this home."""
    root = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(root).expanduser() / "clearhead" / "products.json"


_measured: dict[str, dict[str, Any]] = {}  # by machine; read from the file at the first use of each


def _kept() -> dict[str, Any]:
    here = machine()
    if here not in _measured:
        _measured[here] = _read_kept().get(here, {})
    return _measured[here]


def _read_kept() -> dict[str, Any]:
    """What the file holds; nothing if there is none or it is damaged: then it is measured again."""
    try:
        found = json.loads(kept_path().read_text())
        return {
            str(machine): {str(key): _checked(entry) for key, entry in shapes.items()}
            for machine, shapes in found.items()
        }
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def _checked(entry: Any) -> dict[str, Times]:
    return {
        str(name): {str(rows): float(seconds) for rows, seconds in times.items() if float(seconds) > 0}
        for name, times in entry.items()
    }


def _write_kept() -> None:
    """Add this machine's measurements to the file; a home that cannot be written to is no error."""
    path = kept_path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        content = json.dumps({**_read_kept(), machine(): _kept()}, indent=1)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
            file.write(content)
        os.replace(file.name, path)
    except OSError:
        return
