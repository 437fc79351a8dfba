"""`clearhead bench products [MODEL]`: the speed of every matrix product, and which one is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from rich.text import Text

from .console import ERR, OUT, print_json, table
from .options import Json, SomePrecisions, Threads, checked_precisions

if TYPE_CHECKING:
    from ..bench.products import ProductBenchmark, ProductTime
    from ..engine import ProductShape


def products(
    model: Annotated[str, Parameter(help="a named size, a folder, or a .gguf file")] = "gpt2",
    *,
    precision: SomePrecisions = (),
    rounds: Annotated[int, Parameter(help="rounds per product; the fastest is reported")] = 3,
    threads_: Threads = None,
    json: Json = False,
) -> None:
    """Every product for every shape of the matrices of a model, by number of rows.

    The result is kept: models are prepared by it on this machine, with this number of threads.
    """
    from ..bench.products import measure_products
    from ..bench.timing import describe_machine, set_threads
    from .inspect import spec_from

    precisions = checked_precisions(precision)
    cores = set_threads(threads_)
    with ERR.status("reading the shapes") as status:
        result = measure_products(spec_from(model), precisions, rounds=rounds, progress=status.update)
    line = describe_machine(cores, {})
    if json:
        print_json({"model": model, "machine": line, "rounds": rounds, **_to_dict(result)})
        return
    _print(model, result, line)


def _print(model: str, result: ProductBenchmark, line: str) -> None:
    from ..engine import ROW_CLASSES

    OUT.print(f"[bold]{model}[/] · memory is read at {result.bandwidth / 1e9:.1f} GB/s")
    for shape, count in result.shapes.items():
        OUT.print()
        headings = [f"{name} row{'' if name == '1' else 's'}" for name in ROW_CLASSES]
        listing = table(_title(shape, count), *headings, right=(1, 2, 3, 4), no_wrap=(1, 2, 3, 4))
        by_product: dict[str, dict[str, ProductTime]] = {}
        for time in (time for time in result.times if time.shape == shape):
            by_product.setdefault(time.product, {})[time.rows] = time
        for product, times in by_product.items():
            cells = [_cell(result, times[rows]) if rows in times else "·" for rows in ROW_CLASSES]
            listing.add_row(_name(product, times["1"]), *cells)
        OUT.print(listing)
    OUT.print()
    total = " · ".join(f"{name} {1000 * seconds:.2f}" for name, seconds in result.row_seconds().items())
    OUT.print(f"all products for one row, milliseconds: {total}")
    OUT.print(
        "for: precisions that it is used for · G/s: 10^9 weights per second · %: share of the speed at which "
        "memory is read; more than 100 comes from a cache",
        style="dim",
    )
    OUT.print(line, style="dim")
    if result.missing:
        ERR.print(f"not on this machine: {', '.join(result.missing)}", style="dim", markup=False)


def _title(shape: ProductShape, count: int) -> str:
    return f"{shape.outputs} x {shape.inputs}, " + ("vocabulary" if shape.vocabulary else f"{count} times")


def _name(product: str, time: ProductTime) -> Text:
    """The product and, below it, what it is used for."""
    if not time.used_for:
        return Text(product)
    return Text.assemble((product, "bold"), f"\n  for {', '.join(time.used_for)}")


def _cell(result: ProductBenchmark, time: ProductTime) -> str:
    speed, share = time.weights_per_second / 1e9, 100 * result.memory_share(time)
    return f"{1e6 * time.seconds:,.0f} µs\n{speed:.1f} G/s {share:3.0f} %"


def _to_dict(result: ProductBenchmark) -> dict[str, object]:
    from ..engine import ROW_CLASSES

    return {
        "bandwidth": result.bandwidth,
        "shapes": [vars(shape) | {"count": count} for shape, count in result.shapes.items()],
        "products": [
            {
                "outputs": time.shape.outputs,
                "inputs": time.shape.inputs,
                "vocabulary": time.shape.vocabulary,
                "product": time.product,
                "rows": time.rows,
                "measured_rows": ROW_CLASSES[time.rows],
                "microseconds": 1e6 * time.seconds,
                "weights_per_second": time.weights_per_second,
                "flops": time.flops,
                "memory_share": result.memory_share(time),
                "used_for": list(time.used_for),
            }
            for time in result.times
        ],
        "row_seconds": result.row_seconds(),
        "missing": result.missing,
    }
