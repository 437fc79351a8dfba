"""Signals: Ctrl-C, SIGTERM and SIGUSR1 in; what to do between two batches out."""

from __future__ import annotations

import signal
import threading
from contextlib import AbstractContextManager
from types import FrameType
from typing import Any

SAVE_SIGNAL: signal.Signals | None = getattr(signal, "SIGUSR1", None)  # not on Windows


class StopSignals(AbstractContextManager["StopSignals"]):
    """SIGINT and SIGTERM: the first is remembered, so that the run can save and stop; a second stops at once.

    SIGUSR1 requests a checkpoint after the current step; the run continues.
    """

    def __init__(self) -> None:
        self.received: str | None = None  # SIGINT or SIGTERM, once received
        self._save = False
        self._previous_handlers: dict[int, Any] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():  # only there may handlers be set
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous_handlers[number] = signal.signal(number, self._on_stop)
            if SAVE_SIGNAL is not None:
                self._previous_handlers[SAVE_SIGNAL] = signal.signal(SAVE_SIGNAL, self._on_save)
        return self

    def take_save_request(self) -> bool:
        """Whether a checkpoint was requested since the last call; clears the request."""
        requested, self._save = self._save, False
        return requested

    def __exit__(self, *error: object) -> None:
        for number, handler in self._previous_handlers.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _on_save(self, number: int, frame: FrameType | None) -> None:
        self._save = True

    def _on_stop(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:
            raise KeyboardInterrupt(f"{signal.Signals(number).name} came a second time")
        self.received = signal.Signals(number).name
