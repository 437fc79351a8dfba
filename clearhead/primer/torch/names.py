"""What the primer's modules share: arguments that textbooks spell in several ways, rates and seeds."""

from __future__ import annotations

from typing import Any, TypeVar

import torch

from ...errors import InputError, SpecError

T = TypeVar("T")


def one_of(default: T | None = None, **spellings: T | None) -> T:
    """The value of an argument with several spellings: `one_of(num_heads=None, n_heads=8)` is 8."""
    given = {name: value for name, value in spellings.items() if value is not None}
    if len({id(value) if isinstance(value, torch.Tensor) else value for value in given.values()}) > 1:
        conflict = ", ".join(
            name if isinstance(value, torch.Tensor) else f"{name}={value}" for name, value in given.items()
        )
        raise InputError(f"{conflict} are spellings of one argument; give one of them")
    value = next(iter(given.values()), default)
    if value is None:
        raise InputError(f"{next(iter(spellings))} is missing (also spelt {', '.join(list(spellings)[1:])})")
    return value


def spelled(name: str, value: T | None, others: dict[str, Any], *names: str) -> T | None:
    """An argument that may have come under one of the other `names`, which are taken out of `others`."""
    given = {name: value, **{other: others.pop(other, None) for other in names}}
    return None if all(each is None for each in given.values()) else one_of(**given)


def no_more(others: dict[str, Any], function: str) -> None:
    """Arguments left over after `spelled` raise the same error as in Python."""
    if others:
        raise TypeError(f"{function} got an unexpected keyword argument {next(iter(others))!r}")


def share(dropout: float, name: str = "dropout") -> float:
    """A rate, such as that of dropout."""
    if not 0 <= dropout < 1:
        raise SpecError(f"{name} is {dropout}; expected 0 or more and less than 1")
    return float(dropout)


def seed_or_draw(seed: int | None) -> int:
    """Without a seed, torch's generator gives one, as in torch's own modules: `torch.manual_seed` applies."""
    return int(torch.randint(2**31, ())) if seed is None else seed
