"""The compute queue: one computation at a time, a limited number waiting; and a cache of recent traces."""

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
from ..lens import Trace
from .registry import UnknownIdError

MAX_WAITING = 24
MAX_CACHED_BYTES = 2**28  # bytes of traces


class BusyError(ClearheadError):
    """Too many requests are waiting; the page tries again."""


@dataclass(eq=False)
class CachedTrace:
    id: str
    trace: Trace
    request: dict[str, Any]  # the request it answers, so that it can be repeated with something changed
    seconds: float
    size: int  # in bytes
    parts: dict[Any, bytes] = field(default_factory=dict)  # responses already computed
    lens: dict[int, Any] = field(default_factory=dict)  # the logit lens by position, as far as computed


class ComputeQueue:
    """Serialises the computations of concurrent requests."""

    def __init__(self) -> None:
        self._lock, self._waiting = threading.Lock(), threading.BoundedSemaphore(MAX_WAITING)
        self._traces: OrderedDict[str, CachedTrace] = OrderedDict()

    @contextmanager
    def slot(self) -> Iterator[None]:
        """Wait for a slot. Models share the CPU cores: two at once would each take twice as long."""
        if not self._waiting.acquire(blocking=False):
            raise BusyError("the studio is busy with earlier requests; try again in a moment")
        try:
            with self._lock:
                yield
        finally:
            self._waiting.release()

    def cache(self, trace: Trace, request: dict[str, Any], began: float) -> CachedTrace:
        """Cache a trace; the least recently used ones are evicted beyond the memory limit."""
        seconds = time.perf_counter() - began
        cached = CachedTrace(secrets.token_hex(8), trace, request, seconds, _bytes_of(trace))
        self._traces[cached.id] = cached
        while sum(c.size for c in self._traces.values()) > MAX_CACHED_BYTES and len(self._traces) > 1:
            self._traces.popitem(last=False)
        return cached

    def trace(self, id: str) -> CachedTrace:
        cached = self._traces.get(id)
        if cached is None:
            raise UnknownIdError(
                "this trace is no longer in memory: the studio was restarted, or newer traces replaced it"
            )
        self._traces.move_to_end(id)
        return cached


def _bytes_of(trace: Trace) -> int:
    calls = trace.record.calls.values()
    tensors = [t for call in calls for t in (call.q_BHQE, call.k_BHKE, call.v_BHKE)]
    tensors += [*trace.record.streams.values(), trace.answer]
    return sum(t.numel() * t.element_size() for t in tensors)
