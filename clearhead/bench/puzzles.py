"""Long-range classification tasks: a seed in; generated rows of ids with a label out.

recall    one of eight words is in the last quarter of the text, the rest is noise; the label is that word.
          It is predicted at the first token, at least three quarters of the length away.
listops   a nested expression such as [MAX 4 7 [MIN 2 9 ] 5 ]; the label is its value (Nangia 2018).
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from ..tasks import LabelledExample

PAD_ID, START = 0, 1
FIRST = 4  # the first id of the puzzles; lower ones are special
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
    """Noise with one of eight words in the last quarter."""
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
    """The ids and the value of a random expression, nested at most `depth` deep."""
    if depth == 0 or (depth < 3 and draw.random() < 0.5):
        digit = draw.randrange(10)
        return [DIGITS + digit], digit
    number = draw.randrange(len(OPERATIONS))
    parts = [_expression(draw, depth - 1) for _ in range(draw.randint(3, 6))]
    ids = [CLOSE + 1 + number, *(i for part, _ in parts for i in part), CLOSE]
    return ids, OPERATIONS[number]([value for _, value in parts])


Puzzle = Callable[[Random, int], LabelledExample]
# Each puzzle with its number of labels.
PUZZLES: dict[str, tuple[Puzzle, int]] = {"recall": (recall, RECALL_WORDS), "listops": (listops, 10)}


def rows(name: str, split: str, count: int, length: int, seed: int) -> list[LabelledExample]:
    """Examples of a puzzle; the same seed and split always give the same ones."""
    draw = Random(f"{seed}/{name}/{split}")
    return [PUZZLES[name][0](draw, length) for _ in range(count)]
