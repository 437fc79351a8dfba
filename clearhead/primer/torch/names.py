"""What all doors share: one name for an argument that the notes spell in several ways, and a seed."""

from __future__ import annotations

from typing import TypeVar

import torch

from ...errors import InputError, SpecError

T = TypeVar("T")


def one_of(default: T | None = None, **spellings: T | None) -> T:
    """The value of an argument with several spellings: `one_of(num_heads=None, n_heads=8)` is 8."""
    given = {name: value for name, value in spellings.items() if value is not None}
    if len(set(given.values())) > 1:
        told = ", ".join(f"{name}={value}" for name, value in given.items())
        raise InputError(f"{told} are spellings of one argument; give one of them")
    value = next(iter(given.values()), default)
    if value is None:
        raise InputError(f"{next(iter(spellings))} is missing (also spelt {', '.join(list(spellings)[1:])})")
    return value


def share(dropout: float) -> float:
    """A dropout rate. A whole number is a width that came to the wrong place."""
    if not 0 <= dropout < 1:
        raise SpecError(f"dropout is {dropout}; expected 0 or more and less than 1 (d_k and d_v go by name)")
    return float(dropout)


def seed_or_draw(seed: int | None) -> int:
    """A module made without a seed draws one as torch's own modules do, so `torch.manual_seed` governs it."""
    return int(torch.randint(2**31, ())) if seed is None else seed
