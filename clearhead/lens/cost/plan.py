"""Plans: a job, some devices and their memory in; the layouts there are, and the best that fits, out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ...errors import InputError, nearest
from ...nn import Attention, Model, Tower
from .split import Job, Layout, Share, check_layout, share

NODE = 8  # devices of one machine; tensor splits beyond it do not pay
USABLE_MEMORY = 0.9  # of a device's memory; the rest is work space


@dataclass(frozen=True, kw_only=True)
class Device:
    """What is assumed of one device."""

    memory: int  # bytes
    flops: float = 150e12  # operations a second that are really reached
    link: float = 50e9  # bytes a second to its neighbours

    def fits(self, part: Share) -> bool:
        return part.memory <= USABLE_MEMORY * self.memory

    def seconds(self, part: Share) -> float:
        return part.seconds(self.flops, self.link)


@dataclass(frozen=True)
class Plan:
    rows: tuple[Share, ...]  # one for each way of splitting
    best: Share | None  # the quickest that fits


def plan(spec: Model, job: Job, devices: int, device: Device, only: Layout | None = None) -> Plan:
    """Every pure way of splitting, and the quickest mixture that fits."""
    if devices < 1:
        raise InputError(f"devices is {devices}; expected 1 or more")
    if only is not None:
        check_layout(spec, job, only)
        row = best_rows(spec, job, only, device)
        return Plan((row,), row if device.fits(row) else None)
    found = [best_rows(spec, job, layout, device) for layout in layouts(spec, job, devices)]
    fitting = [row for row in found if device.fits(row)]
    best = min(fitting, key=device.seconds, default=None)
    rows = [_pick(found, want, device) for want in _pure(job, devices)]
    shown = [row for row in rows if row is not None]
    if best is not None and best not in shown:
        shown.append(best)
    return Plan(tuple(shown), best)


def layouts(spec: Model, job: Job, devices: int) -> Iterator[Layout]:
    """Every layout of so many devices that can be."""
    heads = [a.kv_heads or a.heads for a in spec.nodes() if isinstance(a, Attention)]
    depth = sum(t.depth for t in spec.nodes() if isinstance(t, Tower))
    for tensor in _divisors(devices):
        if tensor > NODE or any(count % tensor for count in heads):
            continue
        for pipeline in _divisors(devices // tensor):
            data = devices // tensor // pipeline
            if pipeline > depth or depth % pipeline or data > job.batch:
                continue
            # Gradients and weights that are spread do not go together with a pipeline's many parts.
            levels = [0] if data == 1 or not job.training else [0, 1] if pipeline > 1 else [0, 1, 2, 3]
            for zero in levels:
                plain = Layout(data=data, tensor=tensor, pipeline=pipeline, zero=zero)
                yield plain
                if job.training:
                    yield replace(plain, recompute=True)


def best_rows(spec: Model, job: Job, layout: Layout, device: Device) -> Share:
    """The same layout with as many rows at once as is quickest and fits; one at a time if nothing fits."""
    group = -(-job.batch // layout.data)
    sizes = [n for n in (2**i for i in range(group.bit_length())) if n <= group]
    # A group's rows must fill the pipeline, so the sizes that matter are the small ones.
    found = [share(spec, job, layout, rows) for rows in sizes]
    fitting = [row for row in found if device.fits(row)]
    return min(fitting, key=device.seconds) if fitting else found[0]


def parse_layout(words: str, devices: int) -> Layout:
    """`data=128,tensor=8,zero=1,recompute` as a layout; data is what is left where it is not given."""
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


def _pure(job: Job, devices: int) -> list[dict[str, int]]:
    """The ways of splitting that people know by name, each alone."""
    if devices == 1:
        return [{}]
    ways: list[dict[str, int]] = [
        {"data": devices, "zero": zero} for zero in ((0, 1, 2, 3) if job.training else (0,))
    ]
    return [
        *ways,
        {"tensor": min(NODE, devices), "pipeline": 1, "zero": 0},
        {"tensor": 1, "pipeline": -1, "zero": 0},
    ]


def _pick(found: list[Share], want: dict[str, int], device: Device) -> Share | None:
    """The row that is wanted; -1 wants the most there is. Fitting ones first, then the least memory."""
    rows = [row for row in found if all(getattr(row.layout, k) == v for k, v in want.items() if v >= 0)]
    for name in (k for k, v in want.items() if v < 0):
        most = max((getattr(row.layout, name) for row in rows), default=1)
        rows = [row for row in rows if getattr(row.layout, name) == most and most > 1]
    plain = [row for row in rows if not row.layout.recompute]
    return min(plain or rows, key=lambda row: row.memory, default=None)


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]
