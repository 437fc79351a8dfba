"""Puzzles that need a long look: a seed in, rows of ids with a label out. Nothing is read from a file.

recall    somewhere in the last quarter of the text stands one of eight words, the rest is noise. Which one?
          The answer is given at the first token: it must come over three quarters of the length.
listops   a nested expression of lists, [MAX 4 7 [MIN 2 9 ] 5 ]. What does it amount to (Nangia 2018)?
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from ..tasks import LabelledExample

PAD_ID, START = 0, 1
FIRST = 4  # the first id that means something in a puzzle
RECALL_WORDS, NOISE = 8, 20  # words to recall, and kinds of noise
OPERATIONS: tuple[Callable[[list[int]], int], ...] = (
    max,
    min,
    lambda xs: sum(xs) % 10,
    lambda xs: sorted(xs)[len(xs) // 2],
)
DIGITS, CLOSE = FIRST, FIRST + 10
VOCAB = 40


def recall(draw: Random, length: int) -> LabelledExample:
    ids = [START] + [FIRST + RECALL_WORDS + draw.randrange(NOISE) for _ in range(length - 1)]
    word = draw.randrange(RECALL_WORDS)
    ids[draw.randrange(3 * length // 4, length)] = FIRST + word
    return LabelledExample(ids, word)


def listops(draw: Random, length: int) -> LabelledExample:
    """A random ListOps expression of at most `length` tokens; longer ones are drawn again."""
    while True:
        ids, value = _expression(draw, depth=3)
        if length // 3 < len(ids) < length:
            return LabelledExample([START, *ids], value)


def _expression(draw: Random, depth: int) -> tuple[list[int], int]:
    if depth == 0 or (depth < 3 and draw.random() < 0.5):
        digit = draw.randrange(10)
        return [DIGITS + digit], digit
    number = draw.randrange(len(OPERATIONS))
    parts = [_expression(draw, depth - 1) for _ in range(draw.randint(3, 6))]
    ids = [CLOSE + 1 + number, *(i for part, _ in parts for i in part), CLOSE]
    return ids, OPERATIONS[number]([value for _, value in parts])


Puzzle = Callable[[Random, int], LabelledExample]
PUZZLES: dict[str, tuple[Puzzle, int]] = {"recall": (recall, RECALL_WORDS), "listops": (listops, 10)}


def rows(name: str, split: str, count: int, length: int, seed: int) -> list[LabelledExample]:
    draw = Random(f"{seed}/{name}/{split}")
    return [PUZZLES[name][0](draw, length) for _ in range(count)]
