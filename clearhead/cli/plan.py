"""`clearhead plan`: what a model costs before it is built, and how to split it over devices."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from ..errors import InputError
from .console import ERR, OUT, amount, print_json, table
from .inspect import spec_from
from .options import Json, ModelOrSize, Set, edits

if TYPE_CHECKING:
    from ..lens.cost import Cost, Device, Job, LayerComplexity, Plan, Share, Time
    from ..nn import Model

BYTES_PER_NUMBER = {"float32": 4, "bfloat16": 2, "float16": 2}
DEFAULT_LENGTH = 512  # tokens, for a model without a maximum length


def plan(
    what: ModelOrSize,
    *,
    set_: Set = None,
    batch: Annotated[int | None, Parameter(help="global batch size (default: one row per device)")] = None,
    length: Annotated[
        int | None, Parameter(help=f"sequence length (default: the model's maximum, or {DEFAULT_LENGTH})")
    ] = None,
    target: Annotated[int | None, Parameter(help="target length of an encoder-decoder")] = None,
    train: Annotated[
        bool, Parameter(negative="", help="cost of a training step instead of decoding")
    ] = False,
    devices: Annotated[int, Parameter(help="number of devices")] = 1,
    memory: Annotated[str, Parameter(help="memory of one device")] = "80GB",
    parallel: Annotated[
        str | None, Parameter(help="one parallel layout instead of all: data=128,tensor=8,zero=1,recompute")
    ] = None,
    precision: Annotated[
        Literal["float32", "bfloat16", "float16"] | None,
        Parameter(help="default: float32 for one device, bfloat16 for several"),
    ] = None,
    flops: Annotated[str, Parameter(help="achieved FLOP/s of one device")] = "150T",
    link: Annotated[str, Parameter(help="bandwidth of one device, bytes per second")] = "50GB",
    here: Annotated[
        bool, Parameter(negative="", help="measure on this machine, by timing one and two layers")
    ] = False,
    table: Annotated[bool, Parameter(negative="", help="complexity table with numbers")] = False,
    json: Json = False,
) -> None:
    """Estimate the cost of a model with formulas that are tested against torch. Nothing is built."""
    from ..lens.cost import Device, Job, cost, parse_layout
    from ..lens.cost import plan as make_plan

    spec = spec_from(what, edits(set_))
    length = _length(spec, length)
    if table:
        _print_complexity(what, spec, length, json=json)
        return
    dtype = precision or ("float32" if devices == 1 else "bfloat16")
    job = Job(
        batch=max(devices, 1) if batch is None else batch,
        length=length,
        target=target,
        training=train,
        number=BYTES_PER_NUMBER[dtype],
    )
    total = cost(
        spec,
        batch=job.batch,
        length=length,
        target=target,
        training=train,
        number=job.number,
        device="cpu" if devices == 1 else "cuda",
    )
    device = Device(memory=_size(memory), flops=_size(flops), link=_size(link))
    only = parse_layout(parallel, devices) if parallel else None
    result = make_plan(spec, job, devices, device, only)
    timing = _measure_time(spec, job) if here else None
    if json:
        facts = {
            "model": what,
            "precision": dtype,
            "cost": total.to_dict(),
            **_layouts_to_dict(result, device),
        }
        print_json(facts | ({"here": asdict(timing) | {"share": timing.share}} if timing else {}))
        return
    _print_cost(what, total, dtype, decodes=spec.decodes)
    if timing is not None:
        _print_timing(timing, job)
    if devices > 1 or only:
        _print_layouts(result, device, memory, job)


def _length(spec: Model, requested: int | None) -> int:
    longest = spec.max_length
    if requested is not None and longest is not None and requested > longest:
        raise InputError(
            f"length is {requested}; this model has {longest} learned positions: give at most {longest}"
        )
    return (longest or DEFAULT_LENGTH) if requested is None else requested


def _size(word: str) -> int:
    """80GB, 1.5 TB, 150T or a plain number."""
    text = word.strip().upper().removesuffix("B").removesuffix("FLOP").strip()
    letters = {"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
    scale = letters.get(text[-1:], 1.0)
    try:
        number = float(text[:-1] if text[-1:] in letters else text) * scale
    except ValueError:
        number = 0.0
    if number < 1:
        raise InputError(f"{word!r} is not a size; expected a number such as 80GB or 150T")
    return int(number)


def _print_cost(what: str, total: Cost, precision: str, *, decodes: bool) -> None:
    doing = "training" if total.training else "decoding" if decodes else "one forward pass"
    rows = f"{total.batch:,} row{'s' if total.batch > 1 else ''} of {total.length:,} tokens"
    OUT.print(f"[bold]{what}[/] · {total.parameters:,} parameters · {doing}, {rows}, {precision}")
    forward = f"{amount(total.flops)}FLOP forward"
    both = f" · {amount(total.training_flops)}FLOP with the backward pass" if total.training else ""
    OUT.print(f"{'operations':<12}{forward}{both}")
    if total.training:
        kinds = {"weights": total.weights, "gradients": total.gradients, "optimiser": total.optimizer}
        kinds["activations"] = total.activations
    else:
        kinds = {"weights": total.weights, "cache": total.cache}
    kinds["logits"] = total.answer
    parts = " · ".join(f"{amount(size)}B {name}" for name, size in kinds.items() if size)
    OUT.print(f"{'memory':<12}{parts} · {amount(total.memory)}B together")


def _measure_time(spec: Model, job: Job) -> Time:
    from ..lens.cost import step_time
    from ..nn import CallShape

    usage = CallShape(batch=job.batch, length=job.length, target=job.target, training=job.training)
    with ERR.status("timing one and two layers"):
        return step_time(spec, usage)


def _print_timing(timing: Time, job: Job) -> None:
    what = "a training step" if job.training else "a forward pass"
    tokens = job.batch * (job.length + (job.target or 0)) / timing.seconds
    how = (
        f"{timing.share:.0%} of" if timing.timed else "too large to be timed, so as fast as matrix products:"
    )
    flops, bandwidth = amount(timing.speed.flops), amount(timing.speed.bandwidth)
    speed = f"{how} {flops}FLOP/s in products · {bandwidth}B/s of memory"
    OUT.print(f"{'here':<12}{timing.seconds:.3g} s for {what}, {_short(tokens)} tokens/s · {speed}")


def _print_layouts(result: Plan, device: Device, memory: str, job: Job) -> None:
    from ..lens.cost import USABLE_MEMORY

    unit, size = ("GB", 1e9) if max(row.memory for row in result.rows) >= 1e10 else ("MB", 1e6)
    kinds = ["weights", "gradients", "optimizer", "activations"] if job.training else ["weights", "cache"]
    heads = ["weights", "grads", "Adam", "acts"] if job.training else kinds
    columns = ["data", "tensor", "pipe", "ZeRO", *heads, "all", "sent", "redo", "fits"]
    listing = table(*columns, right=tuple(range(len(columns) - 2)))
    for row in result.rows:
        at = row.layout
        sizes = [getattr(row, kind) + (row.answer if kind == "activations" else 0) for kind in kinds]
        sizes += [row.memory, row.traffic]
        answers = ("yes" if at.recompute else "no", "yes" if device.fits(row) else "no")
        counts = (f"{n:,}" for n in (at.data, at.tensor, at.pipeline, at.zero))
        listing.add_row(*counts, *(_short(n / size) for n in sizes), *answers)
    OUT.print(f"\n{unit} of one device, what it sends in a step, whether layers are computed again in the")
    OUT.print(f"backward pass (redo), and whether it fits into {USABLE_MEMORY:.0%} of {memory}")
    OUT.print(listing)
    if result.best is None:
        least = min(result.rows, key=lambda row: row.memory)
        OUT.print(f"\nnone fits; the least is {amount(least.memory)}B: {least.layout}. Give more devices")
        return
    OUT.print(f"\nsuggestion  {_suggestion(result.best, device, job)}")


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def _suggestion(best: Share, device: Device, job: Job) -> str:
    at_once = f"{best.rows:,} row{'s' if best.rows > 1 else ''} at a time"
    line = f"{best.layout}: {amount(best.memory)}B per device, {at_once}"
    if best.idle:
        line += f", {best.idle:.0%} of the time waiting in the pipeline"
    if not job.training:
        return line
    tokens = job.batch * (job.length + (job.target or 0)) / device.seconds(best)
    speed = f"{amount(device.flops)}FLOP/s and {amount(device.link)}B/s"
    return f"{line}; about {amount(tokens)} tokens/s if a device reaches {speed}"


def _layouts_to_dict(result: Plan, device: Device) -> dict[str, Any]:
    rows = [
        {**row.to_dict(), "fits": device.fits(row), "seconds": device.seconds(row)} for row in result.rows
    ]
    best = result.rows.index(result.best) if result.best is not None else None
    return {"layouts": rows, "suggestion": best, "assumed": vars(device)}


def _print_complexity(what: str, spec: Model, length: int, *, json: bool) -> None:
    from ..lens.cost import TAPS, complexity_table, crossing

    sides = {side: complexity_table(tower, length) for side, tower in spec.towers.items()}
    if json:
        plain = {side: [vars(row) for row in rows] for side, rows in sides.items()}
        print_json({"model": what, "length": length, "layers": plain})
        return
    for side, tower in spec.towers.items():
        rows = sides[side]
        OUT.print(f"[bold]{what}[/] · one layer of the {side}, n = {length:,} tokens, d = {tower.width:,}")
        columns = ("", "grows with", "operations", "share", "weights", "written", "sequential", "path")
        listing = table(*columns, right=(2, 3, 4, 5, 6, 7), no_wrap=(0, 1))
        layer = sum(row.flops for row in rows[:3])
        for row in rows:
            listing.add_row(*_figures(row, layer))
        OUT.print(listing)
        OUT.print(f"the n^2 part costs more than the projections from n = {crossing(rows, length):,} on\n")
    OUT.print(
        f"The last two rows are other layers of the same width (convolution of {TAPS} taps). written:\n"
        "numbers stored if nothing is fused; sequential: steps that depend on each other; path: path\n"
        "length between the tokens furthest apart."
    )


def _figures(row: LayerComplexity, layer: int) -> tuple[str, ...]:
    path = f"{row.path:,}" if row.path else "none"
    return (
        row.part, row.order, amount(row.flops), f"{row.flops / layer:.0%}", amount(row.parameters),
        amount(row.numbers), f"{row.steps:,}", path,
    )  # fmt: skip
