"""Products: the matrices of a model in; the time of every product of every precision out, by number of rows.

The times are measured anew and kept, so from then on models are prepared by them on this machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch

from ..engine import (
    ROW_CLASSES,
    InferencePrecision,
    Pack,
    ProductShape,
    all_products,
    candidates,
    chosen_product,
    keep_measured,
    measure_pack,
    pack_name,
    product_shapes,
)
from ..errors import InputError
from ..malloc import available_memory
from ..nn import Model
from .bandwidth import read_bandwidth
from .timing import ProgressCallback


@dataclass(frozen=True)
class ProductTime:
    """One product of one shape, multiplied with this number of rows."""

    shape: ProductShape
    product: str
    rows: str  # class of rows: 1, 2-8, 9-64 or many
    seconds: float
    bytes: int  # of the packed matrix
    used_for: tuple[InferencePrecision, ...]  # a model is prepared with it in these precisions

    @property
    def weights_per_second(self) -> float:
        return self.shape.outputs * self.shape.inputs / self.seconds

    @property
    def flops(self) -> float:
        return 2 * ROW_CLASSES[self.rows] * self.weights_per_second


@dataclass(frozen=True)
class ProductBenchmark:
    shapes: Counter[ProductShape]  # and how many products of the model have each
    times: list[ProductTime]
    missing: list[str]  # products that do not work on this machine
    bandwidth: float  # bytes per second, reading

    def memory_share(self, time: ProductTime) -> float:
        """The speed at which the product reads its matrix, relative to that of reading alone."""
        return time.bytes / time.seconds / self.bandwidth

    def row_seconds(self) -> dict[str, float]:
        """All products for one row, together, by precision: a decode step takes at least that."""
        total: dict[str, float] = {}
        for time in self.times:
            for precision in time.used_for if time.rows == "1" else ():
                seconds = self.shapes[time.shape] * time.seconds
                total[precision] = total.get(precision, 0.0) + seconds
        return total


def measure_products(
    spec: Model, precisions: Sequence[InferencePrecision], *, rounds: int, progress: ProgressCallback
) -> ProductBenchmark:
    if rounds < 1:
        raise InputError(f"rounds is {rounds}, expected 1 or more")
    shapes = product_shapes(spec.empty())
    _check_memory(shapes)
    progress("reading memory")
    bandwidth = read_bandwidth()
    times: list[ProductTime] = []
    missing: dict[str, None] = {}  # a set that keeps its order
    # A product of two precisions is measured once.
    packs = {
        pack: tolerance for precision in precisions for pack, tolerance in all_products(precision).items()
    }
    for shape in shapes:
        measured = _measure_in_turns(packs, shape, rounds, progress)
        chosen = _choose(precisions, spec, shape, measured)
        for pack in packs:
            name = pack_name(pack)
            if not measured[name]:
                missing[name] = None
                continue
            packed = pack(torch.zeros(shape.outputs, shape.inputs), None).bytes
            used_for = tuple(precision for precision in precisions if chosen[precision] == name)
            times += [
                ProductTime(shape, name, rows, seconds, packed, used_for)
                for rows, seconds in measured[name].items()
            ]
    bandwidth = max(bandwidth, read_bandwidth())  # again: other load only ever makes it less
    return ProductBenchmark(shapes, times, list(missing), bandwidth)


def _measure_in_turns(
    packs: Mapping[Pack, float], shape: ProductShape, rounds: int, progress: ProgressCallback
) -> dict[str, dict[str, float]]:
    """The least time of the rounds, by product and class of rows; empty for a product that does not work."""
    best: dict[str, dict[str, float]] = {pack_name(pack): {} for pack in packs}
    for _ in range(rounds):
        for pack, tolerance in packs.items():
            found = best[pack_name(pack)]
            progress(f"{shape.outputs} x {shape.inputs}: {pack_name(pack)}")
            times = measure_pack(pack, shape.outputs, shape.inputs, tolerance)
            found.update({rows: min(seconds, found.get(rows, seconds)) for rows, seconds in times.items()})
    return best


def _choose(
    precisions: Sequence[InferencePrecision],
    spec: Model,
    shape: ProductShape,
    measured: Mapping[str, dict[str, float]],
) -> dict[str, str]:
    """The product of each precision. Where measurements decide, these are kept, and decide from now on."""
    for precision in precisions:
        if packs := candidates(precision):
            own = {name: measured[name] for name in map(pack_name, packs)}
            keep_measured(packs, shape.outputs, shape.inputs, own)
    return {precision: chosen_product(precision, spec, shape) for precision in precisions}


def _check_memory(shapes: Iterable[ProductShape]) -> None:
    """A matrix in float32, its packed copy, and what packing it takes."""
    needed = 12 * max(shape.outputs * shape.inputs for shape in shapes)
    free = available_memory()
    if free is not None and needed > free:
        raise InputError(
            f"the largest matrix needs {needed / 1e9:.1f} GB to measure, and {free / 1e9:.1f} GB are free; "
            f"choose a smaller model"
        )
