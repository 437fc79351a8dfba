"""The ordering game: steps in a shuffled order in, the first step that is too early out.

Some steps may change places (a mask and a scale, say), so an answer is judged by what each step needs,
and not by comparison with one list.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from random import Random

import yaml

from ..errors import InputError, nearest
from .language import Lang


@dataclass(frozen=True)
class PuzzleStep:
    name: str
    text: Mapping[Lang, str]
    needs: tuple[str, ...]
    why: Mapping[Lang, str]  # shown when it is too early


@dataclass(frozen=True)
class OrderPuzzle:
    name: str
    title: Mapping[Lang, str]
    steps: tuple[PuzzleStep, ...]  # in a right order

    def shuffled(self, seed: int) -> tuple[PuzzleStep, ...]:
        """As it is shown: never in a right order, so that 1 2 3 ... is never right."""
        shown, random = list(self.steps), Random(seed)
        while first_fault(shown) is None:
            random.shuffle(shown)
        return tuple(shown)


@lru_cache(1)
def puzzles() -> dict[str, OrderPuzzle]:
    text = (files("clearhead.learn") / "orders.yaml").read_text(encoding="utf-8")
    return {
        name: OrderPuzzle(
            name,
            puzzle["title"],
            tuple(
                PuzzleStep(step, {"en": facts["en"], "zh": facts["zh"]}, tuple(facts["needs"]), facts["why"])
                for step, facts in puzzle["steps"].items()
            ),
        )
        for name, puzzle in yaml.safe_load(text).items()
    }


def find_puzzle(name: str) -> OrderPuzzle:
    if name not in puzzles():
        raise InputError(f"there is no puzzle {name!r}; {nearest(name, puzzles())}")
    return puzzles()[name]


def parse_order(answer: str, count: int) -> list[int]:
    """ "3 1 2" or "3, 1, 2" -> [2, 0, 1]: every number of the list once."""
    words = re.split(r"[\s,，、]+", answer.strip())
    expected = f"expected each of the numbers 1 to {count} once, such as {example(count)!r}"
    if not all(re.fullmatch("[0-9]{1,3}", word) for word in words):
        raise InputError(f"{answer.strip()!r} is not an order; {expected}")
    numbers = [int(word) for word in words]
    if sorted(numbers) != list(range(1, count + 1)):
        raise InputError(f"{answer.strip()!r} is not an order of {count} steps; {expected}")
    return [number - 1 for number in numbers]


def example(count: int) -> str:
    return " ".join(map(str, range(count, 0, -1)))


def first_fault(order: Sequence[PuzzleStep]) -> int | None:
    """The index of the first step that precedes something it needs; None if there is none."""
    placed: set[str] = set()
    for place, step in enumerate(order):
        if not placed.issuperset(step.needs):
            return place
        placed.add(step.name)
    return None
