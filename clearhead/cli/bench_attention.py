"""`clearhead bench attention`: the cost of each attention kernel, and from which length it pays off."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ..errors import InputError
from .bench import print_footer
from .console import ERR, OUT, amount, print_json, table
from .options import Json, Threads

if TYPE_CHECKING:
    from ..bench.attention import AttentionBenchmark, AttentionPoint, Growth, LayerSize
    from ..bench.drift import Drift
    from ..lens.pictures import Picture

FIGURES: dict[str, Callable[[AttentionPoint], float]] = {
    "forward, ms": lambda p: 1e3 * p.forward,
    "forward and backward, ms": lambda p: 1e3 * p.both,
    "memory forward, MB": lambda p: p.forward_memory / 1e6,
    "memory forward and backward, MB": lambda p: p.both_memory / 1e6,
}


def attention(
    *variants: Annotated[str, Parameter(help="such as Softmax 'Window(256)' Linear; default: all")],
    lengths: Annotated[
        tuple[int, ...], Parameter(help="sequence lengths (default: 512 to 16,384)", consume_multiple=True)
    ] = (),
    width: Annotated[int, Parameter(help="model dimension of the layer")] = 256,
    heads: Annotated[int, Parameter(help="number of heads")] = 4,
    batch: Annotated[int, Parameter(help="batch size")] = 1,
    causal: Annotated[
        bool, Parameter(negative="", help="causal attention; some kernels do not support it")
    ] = False,
    model: Annotated[str | None, Parameter(help="a folder: how far each kernel moves its outputs")] = None,
    text: Annotated[str | None, Parameter(help="for --model: input text")] = None,
    rounds: Annotated[int, Parameter(help="rounds each; the median is reported")] = 3,
    limit: Annotated[
        float, Parameter(help="seconds; lengths whose call would take longer are skipped")
    ] = 10.0,
    save: Annotated[Path | None, Parameter(help="a picture: .png, .svg or .pdf")] = None,
    threads_: Threads = None,
    json: Json = False,
) -> None:
    """One layer with each attention kernel: time, memory and FLOPs by length, and the crossover."""
    from ..bench.attention import ATTENTION_VARIANTS, LENGTHS, SOFTMAX, LayerSize, measure_attention
    from ..bench.drift import drifts
    from ..bench.timing import describe_machine, set_threads

    for name, value in {"width": width, "heads": heads, "batch": batch}.items():
        if value < 1:
            raise InputError(f"--{name} is {value}, expected 1 or more")
    names = list(dict.fromkeys((SOFTMAX, *(variants or ATTENTION_VARIANTS))))
    cores, layer = set_threads(threads_), LayerSize(width, heads, batch, causal)
    with ERR.status("building") as status:
        result = measure_attention(
            names, lengths or LENGTHS, layer, rounds=rounds, limit=limit, progress=status.update
        )
        drift, failed = (
            drifts(model, [n for n in names if n != SOFTMAX], text, status.update) if model else ({}, {})
        )
    line = describe_machine(cores, {}) + ("; processor time" if cores == 1 else "")
    if save is not None:
        _draw(result, layer).save(save)
    if json:
        print_json(_to_dict(result, drift, layer, line) | {"rounds": rounds, "not possible": failed})
        return
    OUT.print(
        f"[bold]one layer[/] · width {width} · {heads} heads · batch {batch}"
        + (" · causal" if causal else "")
    )
    for what, of in FIGURES.items():
        _print_by_length(what, result, of)
    _print_summary(result)
    if model is not None:
        _print_drift(model, drift)
    for name, sentence in (result.refused | failed).items():
        OUT.print(f"{name}: {sentence}", style="dim", markup=False)
    for name, length in result.skipped.items():
        OUT.print(
            f"{name}: {length:,} tokens and more would take over {limit:g} s a call",
            style="dim",
            markup=False,
        )
    if save is not None:
        OUT.print(f"saved {save}", markup=False)
    print_footer(line, rounds, [])


def _print_by_length(what: str, result: AttentionBenchmark, of: Callable[[AttentionPoint], float]) -> None:
    lengths = sorted({point.length for point in result.points})
    listing = table(what, *(f"{n:,}" for n in lengths), right=tuple(range(1, len(lengths) + 1)), no_wrap=(0,))
    for name in dict.fromkeys(point.variant for point in result.points):
        values = {point.length: of(point) for point in result.of(name)}
        listing.add_row(name, *(_number(values[n]) if n in values else "·" for n in lengths))
    OUT.print(listing)
    OUT.print()


def _print_summary(result: AttentionBenchmark) -> None:
    from ..bench.attention import SOFTMAX, crossover, growth_per_doubling

    longest = max(point.length for point in result.points)
    headings = [f"at {longest:,}", "predicted", "counted", "x2 time", "x2 memory", "pays from"]
    listing = table(*headings, right=tuple(range(1, len(headings))), no_wrap=(0,))
    for name in dict.fromkeys(point.variant for point in result.points):
        last = result.of(name)[-1]
        row = [amount(n) if n is not None else "·" for n in (last.predicted, last.counted)]
        row += [
            _format_growth(growth_per_doubling(result, name, of))
            for of in (lambda p: p.both, lambda p: p.both_memory)
        ]
        row.append("" if name == SOFTMAX else _format_crossover(crossover(result, name, lambda p: p.both)))
        listing.add_row(name, *row)
    OUT.print(listing)
    OUT.print(
        "predicted, counted: FLOPs of a forward pass at the longest length · x2: doubling the length "
        "multiplies the time at most (and on average), from 2,048 on · pays from: length from which "
        "it is faster than Softmax, forward and backward",
        style="dim",
    )


def _print_drift(model: str, drift: dict[str, Drift]) -> None:
    OUT.print()
    listing = table(
        f"in {model}", "states moved", "answers, bits", "same answer", right=(1, 2, 3), no_wrap=(0,)
    )
    for name, moved in drift.items():
        bits = "·" if moved.bits is None else f"{moved.bits:.3g}"
        listing.add_row(name, f"{moved.states:.1%}", bits, "·" if moved.same is None else f"{moved.same:.0%}")
    OUT.print(listing)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _format_growth(growth: Growth | None) -> str:
    return "·" if growth is None else f"{growth.worst:.2f} ({growth.mean:.2f})"


def _format_crossover(length: float | None) -> str:
    return "not here" if length is None else "always" if length == 0 else f"{length:,.0f}"


def _to_dict(
    result: AttentionBenchmark, drift: dict[str, Drift], layer: LayerSize, line: str
) -> dict[str, object]:
    from ..bench.attention import SOFTMAX, crossover, growth_per_doubling

    names = dict.fromkeys(point.variant for point in result.points)
    return {
        "machine": line,
        "layer": vars(layer),
        "points": [vars(point) for point in result.points],
        "crossover": {
            name: {
                "forward": crossover(result, name, lambda p: p.forward),
                "both": crossover(result, name, lambda p: p.both),
            }
            for name in names
            if name != SOFTMAX
        },
        "growth": {
            name: {
                what: vars(growth) if (growth := growth_per_doubling(result, name, of)) else None
                for what, of in (
                    ("forward", lambda p: p.forward),
                    ("both", lambda p: p.both),
                    ("memory", lambda p: p.both_memory),
                )
            }
            for name in names
        },
        "drift": {name: vars(moved) for name, moved in drift.items()},
        "refused": result.refused,
        "skipped": result.skipped,
    }


def _draw(result: AttentionBenchmark, layer: LayerSize) -> Picture:
    from ..bench.attention import SOFTMAX
    from ..lens.pictures import growth as growth_picture

    names = list(dict.fromkeys(point.variant for point in result.points))
    panels = {
        what: {name: [(p.length, of(p)) for p in result.of(name)] for name in names}
        for what, of in list(FIGURES.items())[1::2]
    }
    return growth_picture(panels, SOFTMAX, f"one layer of width {layer.width}, {layer.heads} heads")
