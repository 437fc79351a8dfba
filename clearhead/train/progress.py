"""Progress: the records of a run in, a bar on a terminal or plain lines elsewhere out, on stderr."""

from __future__ import annotations

import logging
import sys
import time
from typing import Protocol, TextIO

from rich.console import Console
from rich.progress import BarColumn, TaskProgressColumn, TextColumn
from rich.progress import Progress as RichProgress

from .log import Record


class Progress(Protocol):
    """Shows a run while it trains."""

    def start(self, step: int, steps: int) -> None: ...
    def step(self, record: Record) -> None: ...
    def write(self, line: str) -> None:
        """A score or a sample: one line."""

    def warn(self, line: str) -> None:
        """A warning; the run continues."""

    def close(self) -> None: ...


class QuietProgress:
    """Shows nothing; lines go to the logger `clearhead.train`, which prints warnings by default."""

    def start(self, step: int, steps: int) -> None: ...
    def step(self, record: Record) -> None: ...
    def close(self) -> None: ...
    def write(self, line: str) -> None:
        logging.getLogger("clearhead.train").info(line)

    def warn(self, line: str) -> None:
        logging.getLogger("clearhead.train").warning(line)


class LineProgress:
    """A plain line every `every` steps (default: twenty per run), and at the first and the last."""

    def __init__(self, stream: TextIO | None = None, every: int | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._every = every
        self._clock = EtaClock(0, 1)

    def start(self, step: int, steps: int) -> None:
        self._clock = EtaClock(step, steps)

    def step(self, record: Record) -> None:
        step, steps = record["step"], self._clock.steps
        every = self._every or max(steps // 20, 1)
        if step % every == 0 or step in (self._clock.first + 1, steps):
            self.write(self._clock.line(record))

    def write(self, line: str) -> None:
        self._stream.write(line + "\n")
        self._stream.flush()

    def warn(self, line: str) -> None:
        self.write(f"warning: {line}")

    def close(self) -> None: ...


class BarProgress:
    """A progress bar at the bottom of the terminal; lines are printed above it."""

    def __init__(self, console: Console | None = None) -> None:
        columns = (BarColumn(bar_width=24), TaskProgressColumn(), TextColumn("{task.description}"))
        console = Console(stderr=True, highlight=False) if console is None else console
        self._bar = RichProgress(*columns, console=console)
        self._task = self._bar.add_task("")
        self._clock = EtaClock(0, 1)

    def start(self, step: int, steps: int) -> None:
        self._clock = EtaClock(step, steps)
        self._bar.update(self._task, total=steps, completed=step)
        self._bar.start()

    def step(self, record: Record) -> None:
        self._bar.update(self._task, completed=record["step"], description=self._clock.line(record))

    def write(self, line: str) -> None:
        self._bar.console.print(line, markup=False, highlight=False)

    def warn(self, line: str) -> None:
        self.write(f"warning: {line}")

    def close(self) -> None:
        self._bar.stop()


def default_progress() -> Progress:
    """A bar on a terminal, plain lines otherwise."""
    return BarProgress() if sys.stderr.isatty() else LineProgress()


class EtaClock:
    """Estimates the remaining time from the steps of this session."""

    def __init__(self, first: int, steps: int) -> None:
        self.first, self.steps, self._began = first, steps, time.monotonic()

    def line(self, record: Record) -> str:
        """`step 200/400 loss 0.41 lr 3.0e-4 |g| 0.8 tok/s 9,100 eta 0:21`"""
        step = record["step"]
        seconds_per_step = (time.monotonic() - self._began) / max(step - self.first, 1)
        # A classifier has one target per text: input tokens are comparable over tasks. Older logs lack them.
        speed = record["speed"].get("input_tokens_per_second", record["speed"]["tokens_per_second"])
        eta = _duration(seconds_per_step * (self.steps - step))
        experts = f"router aux {record['router_aux_loss']:.3g} " if "router_aux_loss" in record else ""
        return (
            f"step {step}/{self.steps} loss {record['loss']:.3g} {experts}lr {_short_rate(record['lr'])} "
            f"|g| {record['grad_norm']:.2g} tok/s {speed:,.0f} eta {eta}"
        )


def _short_rate(rate: float) -> str:
    """3.0e-4 rather than 3.0e-04."""
    digits, _, power = f"{rate:.1e}".partition("e")
    return f"{digits}e{int(power)}"


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
