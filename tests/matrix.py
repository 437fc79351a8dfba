"""Large tables of combinations: a part of them in every run, the whole in `make proof`.

A product of two registries grows faster than both. In every run each member of either one is met, in as many
combinations as `in_every_run` allows; the others are proofs.
"""

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def combinations(
    cases: Iterable[tuple[Any, ...]],
    name: Callable[..., str],
    in_every_run: Callable[..., bool],
) -> list[Any]:
    """The cases as parameters of a test; those that are not in every run are marked as proofs."""
    return [
        pytest.param(*case, id=name(*case), marks=() if in_every_run(*case) else pytest.mark.proof)
        for case in cases
    ]
