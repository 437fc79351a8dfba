"""The desk: one computation at a time, and not too many waiting. Traces are kept here, the newest longest."""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ..errors import ClearheadError
from ..lens.trace import Trace
from .shelf import UnknownError

WAITING = 24
KEPT = 2**28  # bytes of traces


class BusyError(ClearheadError):
    """More work than this machine can take; the page asks again."""


@dataclass(eq=False)
class Held:
    id: str
    trace: Trace
    asked: dict[str, Any]  # what it was asked with, so that it can be asked again with something changed
    seconds: float
    size: int  # in bytes
    parts: dict[Any, bytes] = field(default_factory=dict)  # answers already made
    lens: dict[int, Any] = field(default_factory=dict)  # the logit lens at positions somebody asked for


class Desk:
    def __init__(self) -> None:
        self._turn, self._waiting = threading.Lock(), threading.BoundedSemaphore(WAITING)
        self._traces: OrderedDict[str, Held] = OrderedDict()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Models share the cores; two at once would each take twice as long."""
        if not self._waiting.acquire(blocking=False):
            raise BusyError("the studio is busy with earlier questions; try again in a moment")
        try:
            with self._turn:
                yield
        finally:
            self._waiting.release()

    def keep(self, trace: Trace, asked: dict[str, Any], began: float) -> Held:
        seconds = time.perf_counter() - began
        held = Held(secrets.token_hex(8), trace, asked, seconds, _size(trace))
        self._traces[held.id] = held
        while sum(h.size for h in self._traces.values()) > KEPT and len(self._traces) > 1:
            self._traces.popitem(last=False)
        return held

    def trace(self, id: str) -> Held:
        held = self._traces.get(id)
        if held is None:
            raise UnknownError(
                "this trace is no longer kept: the studio was restarted, or newer ones took its place"
            )
        self._traces.move_to_end(id)
        return held


def _size(trace: Trace) -> int:
    calls = trace.inside.calls.values()
    tensors = [t for call in calls for t in (call.q_BHQE, call.k_BHKE, call.v_BHKE)]
    tensors += [*trace.inside.streams.values(), trace.answer]
    return sum(t.numel() * t.element_size() for t in tensors)
