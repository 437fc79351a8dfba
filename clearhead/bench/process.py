"""A peer in a separate process: a function that opens a decoder in; calls of that decoder, timed there, out.

Libraries bring threads of their own, which slow down everything else in their process: once CTranslate2's
have run, all other computation beside them takes 50 % longer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any, TypeVar

from .task import Decoder, DecodeTask


@dataclass(frozen=True)
class TimedRows:
    """The new ids of each row, and the seconds it took."""

    rows: list[list[int]]
    seconds: float


T = TypeVar("T")
TimedDecoder = Callable[[Sequence[list[int]], DecodeTask], TimedRows]


def timed(decode: Decoder, ids: Sequence[list[int]], task: DecodeTask) -> TimedRows:
    start = time.perf_counter()
    rows = decode(ids, task)
    return TimedRows(rows, time.perf_counter() - start)


def run_apart(function: Callable[..., T], *arguments: Any) -> T:
    """The result of a function, called in a process of its own."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


class PeerProcess:
    """Decodes in another process, which opens the model once: when the context is entered."""

    def __init__(self, opening: Callable[..., Decoder], *arguments: Any) -> None:
        self._pool = ProcessPoolExecutor(1, get_context("spawn"))
        self._opening, self._arguments = opening, arguments

    def __enter__(self) -> TimedDecoder:
        try:
            self._pool.submit(_open, self._opening, self._arguments).result()
        except BaseException:
            self._pool.shutdown()
            raise
        return lambda ids, task: self._pool.submit(_decode, ids, task).result()

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()


_opened: list[Decoder] = []  # in the other process: the decoder that `_open` created


def _open(opening: Callable[..., Decoder], arguments: tuple[Any, ...]) -> None:
    _opened.append(opening(*arguments))


def _decode(ids: Sequence[list[int]], task: DecodeTask) -> TimedRows:
    return timed(_opened[0], ids, task)
