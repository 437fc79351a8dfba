"""Devices: the name of a device in, the name of one that this machine has out.

`auto` takes the first of cuda, mps and cpu that is there. torch is imported when a device is chosen.
"""

from __future__ import annotations

from .errors import InputError, nearest, quoted

DEVICES = ("auto", "cpu", "cuda", "mps", "meta")


def choose_device(name: str | None) -> str:
    """None is the CPU; a device that this machine does not have is an error."""
    if name is None:
        return "cpu"
    kind, colon, number = str(name).partition(":")
    if kind not in DEVICES:
        hint = "did you mean 'cuda'?" if kind.lower() == "gpu" else nearest(kind, DEVICES)
        raise InputError(f"device is {quoted(str(name))}; {hint}")
    if colon and not number.isdecimal():
        raise InputError(f"device is {quoted(str(name))}; the number of a device is written cuda:0")
    counts = _counts()
    if kind == "auto":
        return next(each for each in ("cuda", "mps", "cpu") if counts[each])
    if kind == "meta":  # shapes without numbers
        return "meta"
    if int(number or 0) >= counts[kind]:
        there = ", ".join(each for each, count in counts.items() if count)
        raise InputError(
            f"device is {name!r}, which this machine does not have; it has {there}: device='auto'"
        )
    return str(name)


def _counts() -> dict[str, int]:
    """How many devices of each kind torch can use here."""
    import torch

    return {
        "cuda": torch.cuda.device_count() if torch.cuda.is_available() else 0,
        "mps": int(torch.backends.mps.is_available()),
        "cpu": 1,
    }
