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
        self.name: str | None = None  # SIGINT or SIGTERM, once received
        self._save = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():  # only there may handlers be set
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._stop_requested)
            if SAVE_SIGNAL is not None:
                self._before[SAVE_SIGNAL] = signal.signal(SAVE_SIGNAL, self._save_requested)
        return self

    def wants_checkpoint(self) -> bool:
        """Whether a checkpoint was asked for since the last call."""
        wanted, self._save = self._save, False
        return wanted

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _save_requested(self, number: int, frame: FrameType | None) -> None:
        self._save = True

    def _stop_requested(self, number: int, frame: FrameType | None) -> None:
        if self.name is not None:
            raise KeyboardInterrupt(f"{signal.Signals(number).name} came a second time")
        self.name = signal.Signals(number).name
