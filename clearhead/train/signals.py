"""Signals: Ctrl-C and SIGTERM in, a word to ask for between two batches out."""

from __future__ import annotations

import signal
import threading
from contextlib import AbstractContextManager
from types import FrameType
from typing import Any


class Interruption(AbstractContextManager["Interruption"]):
    """The first signal is remembered, so that the run can save and stop; a second one stops at once."""

    def __init__(self) -> None:
        self.name: str | None = None  # SIGINT or SIGTERM, once it came
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():  # only there may handlers be set
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._heard)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        if self.name is not None:
            raise KeyboardInterrupt(f"{signal.Signals(number).name} came a second time")
        self.name = signal.Signals(number).name
