"""Parallelism plans: a job and a number of devices in; layouts, and the fastest one that fits, out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ...errors import InputError, nearest
from ...nn import Attention, Model, Tower
from .split import Job, Layout, Share, check_layout, share

NODE = 8  # devices per machine; tensor parallelism across machines is too slow
USABLE_MEMORY = 0.9  # share of a device's memory; the rest is workspace


@dataclass(frozen=True, kw_only=True)
class Device:
    """The assumed memory and speed of one device."""

    memory: int  # bytes
    flops: float = 150e12  # FLOP/s reached in practice
    link: float = 50e9  # bytes per second to other devices

    def fits(self, part: Share) -> bool:
        return part.memory <= USABLE_MEMORY * self.memory

    def seconds(self, part: Share) -> float:
        return part.seconds(self.flops, self.link)


@dataclass(frozen=True)
class Plan:
    rows: tuple[Share, ...]  # one per layout
    best: Share | None  # the fastest that fits


def plan(spec: Model, job: Job, devices: int, device: Device, only: Layout | None = None) -> Plan:
    """Each kind of parallelism by itself, and the fastest combination that fits."""
    if devices < 1:
        raise InputError(f"devices is {devices}; expected 1 or more")
    if only is not None:
        check_layout(spec, job, only)
        row = best_rows(spec, job, only, device)
        return Plan((row,), row if device.fits(row) else None)
    candidates = [best_rows(spec, job, layout, device) for layout in layouts(spec, job, devices)]
    fitting = [row for row in candidates if device.fits(row)]
    best = min(fitting, key=device.seconds, default=None)
    matches = [_select(candidates, sizes) for sizes in _pure_layouts(job, devices)]
    rows = [row for row in matches if row is not None]
    if best is not None and best not in rows:
        rows.append(best)
    return Plan(tuple(rows), best)


def layouts(spec: Model, job: Job, devices: int) -> Iterator[Layout]:
    """Every possible layout on this number of devices."""
    heads = [a.kv_heads or a.heads for a in spec.nodes() if isinstance(a, Attention)]
    depth = sum(t.depth for t in spec.nodes() if isinstance(t, Tower))
    for tensor in _divisors(devices):
        if tensor > NODE or any(count % tensor for count in heads):
            continue
        for pipeline in _divisors(devices // tensor):
            data = devices // tensor // pipeline
            if pipeline > depth or depth % pipeline or data > job.batch:
                continue
            # ZeRO 2 and 3 would communicate for every micro-batch of a pipeline.
            levels = [0] if data == 1 or not job.training else [0, 1] if pipeline > 1 else [0, 1, 2, 3]
            for zero in levels:
                plain = Layout(data=data, tensor=tensor, pipeline=pipeline, zero=zero)
                yield plain
                if job.training:
                    yield replace(plain, recompute=True)


def best_rows(spec: Model, job: Job, layout: Layout, device: Device) -> Share:
    """A layout with the micro-batch size that is fastest and fits; size 1 if none fits."""
    group = -(-job.batch // layout.data)
    sizes = [n for n in (2**i for i in range(group.bit_length())) if n <= group]
    # Powers of two; small sizes matter most, because many micro-batches keep a pipeline busy.
    candidates = [share(spec, job, layout, rows) for rows in sizes]
    fitting = [row for row in candidates if device.fits(row)]
    return min(fitting, key=device.seconds) if fitting else candidates[0]


def parse_layout(words: str, devices: int) -> Layout:
    """`data=128,tensor=8,zero=1,recompute` as a layout; without `data`, the remaining devices."""
    given: dict[str, int] = {}
    for word in words.replace(" ", "").split(","):
        name, sign, value = word.partition("=")
        if name == "recompute" and not sign:
            given["recompute"] = True
        elif name not in ("data", "tensor", "pipeline", "zero"):
            known = ["data", "tensor", "pipeline", "zero", "recompute"]
            raise InputError(
                f"parallel has no {name!r}; {nearest(name, known)}, as in data=4,tensor=2,zero=1"
            )
        elif (
            not value.isdigit() or (name != "zero" and int(value) < 1) or (name == "zero" and int(value) > 3)
        ):
            expected = "0 to 3" if name == "zero" else "1 or more"
            raise InputError(f"parallel {word!r}: expected {name}= and a whole number, {expected}")
        else:
            given[name] = int(value)
    rest = given.get("tensor", 1) * given.get("pipeline", 1)
    given.setdefault("data", max(devices // rest, 1))
    layout = Layout(**{**given, "recompute": bool(given.get("recompute"))})  # type: ignore[arg-type]
    if layout.devices != devices:
        raise InputError(f"{layout} is {layout.devices} devices, not {devices}; change one of them")
    return layout


def _pure_layouts(job: Job, devices: int) -> list[dict[str, int]]:
    """Data (with each ZeRO level), tensor and pipeline parallelism alone; -1 is the largest possible size."""
    if devices == 1:
        return [{}]
    levels = (0, 1, 2, 3) if job.training else (0,)
    return [
        *({"data": devices, "zero": zero} for zero in levels),
        {"tensor": min(NODE, devices), "pipeline": 1, "zero": 0},
        {"tensor": 1, "pipeline": -1, "zero": 0},
    ]


def _select(candidates: list[Share], sizes: dict[str, int]) -> Share | None:
    """The candidate of these sizes with the least memory, without recomputation if possible."""
    fixed = {name: size for name, size in sizes.items() if size >= 0}
    rows = [r for r in candidates if all(getattr(r.layout, name) == size for name, size in fixed.items())]
    for name in (name for name in sizes if name not in fixed):
        largest = max((getattr(row.layout, name) for row in rows), default=1)
        rows = [row for row in rows if getattr(row.layout, name) == largest and largest > 1]
    simple = [row for row in rows if not row.layout.recompute]
    return min(simple or rows, key=lambda row: row.memory, default=None)


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]
