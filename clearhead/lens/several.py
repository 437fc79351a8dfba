"""Several taps as one: each sees what the one before it left."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ..nn.kernels.kernel import RecordedCall
from ..nn.tap import OFF, Tap


def several(*taps: Tap) -> Tap:
    there = [tap for tap in taps if tap is not OFF]
    return there[0] if len(there) == 1 else _Several(there) if there else OFF


class _Several(Tap):
    def __init__(self, taps: Sequence[Tap]) -> None:
        super().__init__("", lambda _, x: x)
        self._taps = taps

    def at(self, name: str | int) -> Tap:
        return _Several([tap.at(name) for tap in self._taps])

    def wants(self, site: str) -> bool:
        return any(tap.wants(site) for tap in self._taps)

    def __call__(self, site: str, x: Tensor) -> Tensor:
        for tap in self._taps:
            x = tap(site, x)
        return x

    def hears(self, call: RecordedCall) -> None:
        for tap in self._taps:
            tap.hears(call)
