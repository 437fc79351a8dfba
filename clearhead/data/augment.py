"""Augmentation: a text in, a text that means nearly the same out; a function of (seed, row, epoch).

No sentence is ever emptied. Segmented Chinese (我 非常 喜欢) is changed by words, as any text with spaces is.
Chinese without spaces is changed character by character; its synonyms may be words of any length.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import TypeVar

from ..errors import InputError
from .files import File
from .shuffling import generator_for

HAN = "\u3400-\u9fff\uf900-\ufaff"
WORD_PATTERN = re.compile(r"\S+")
CHARACTER_PATTERN = re.compile(
    rf"[{HAN}]|[^\s{HAN}]+"
)  # Chinese ones by themselves, words of other scripts whole
LONG_WORD = 4  # characters; Chinese words seldom have more, clauses do
Lexicon = Mapping[str, Sequence[str]]
Item = TypeVar("Item")


@dataclass(frozen=True, kw_only=True)
class Augment:
    """The probabilities that a word is changed, by kind of change. `Augment()` changes nothing."""

    delete: float = 0.0
    synonyms: float = 0.0
    swap: float = 0.0  # a word with the next
    letters: float = 0.0  # a typing error: two letters swapped, one lost, or one twice
    lexicon: Lexicon = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("delete", "synonyms", "swap", "letters"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"{name} is {getattr(self, name)}; expected a probability from 0 to 1")
        if self.synonyms and not self.lexicon:
            raise InputError(
                "synonyms need a lexicon: a JSON or TSV file with words and what may stand for them"
            )

    def __call__(self, text: str, *, seed: int, row: int, epoch: int) -> str:
        chance = generator_for(seed, "augment", row, epoch)
        # Decided once, for the whole text: later it may be a single word without a space.
        parts = WORD_PATTERN if is_segmented(text) else CHARACTER_PATTERN
        if self.synonyms:
            text = replace_synonyms(text, self.synonyms, chance, self.lexicon, parts)
        if self.delete:
            text = delete_words(text, self.delete, chance, parts)
        if self.swap:
            text = swap_words(text, self.swap, chance, parts)
        return mistype(text, self.letters, chance, parts) if self.letters else text

    def ids(
        self, ids: Sequence[int], *, seed: int, row: int, epoch: int, special: Collection[int] = ()
    ) -> list[int]:
        """The same for token ids: some are deleted, some swapped; `special` ones are never touched."""
        chance = generator_for(seed, "augment", row, epoch)
        free = [i for i, token in enumerate(ids) if token not in special]
        gone = {free[i] for i in _chosen(len(free), self.delete, chance)}
        left = [i for i in range(len(ids)) if i not in gone]
        free = [i for i in free if i not in gone]
        moved = dict(zip(free, _swapped(free, self.swap, chance), strict=True))
        return [ids[moved.get(i, i)] for i in left]


def is_segmented(text: str) -> bool:
    """Whether a Chinese text has spaces between its words; other texts have.

    A space beside a Latin word (用 Python 写) is no evidence, and neither is one between clauses.
    """
    runs = re.findall(rf"[{HAN}]+", text)
    if not runs:
        return True
    spaced = re.search(rf"[{HAN}][ \t\u3000]+[{HAN}]", text) is not None
    return spaced and sum(map(len, runs)) <= LONG_WORD * len(runs)


def delete_words(text: str, rate: float, chance: Random, parts: re.Pattern[str]) -> str:
    """Delete some words, never all of them."""
    words = list(parts.finditer(text))
    gone = [words[i] for i in _chosen(len(words), rate, chance)]
    for word in reversed(gone):
        text = text[: word.start()] + text[word.end() :]
    return " ".join(text.split()) if gone else text


def replace_synonyms(text: str, rate: float, chance: Random, lexicon: Lexicon, parts: re.Pattern[str]) -> str:
    """Replace some words by one of their synonyms, keeping the case."""
    known = sorted((word for word, others in lexicon.items() if others), key=len, reverse=True)
    if not known:
        return text
    words = "|".join(re.escape(word) for word in known)

    def other(match: re.Match[str]) -> str:
        if chance.random() >= rate:
            return match[0]
        choices = lexicon.get(match[0]) or lexicon.get(match[0].lower()) or [match[0]]
        chosen = choices[_below(len(choices), chance)]
        return chosen.capitalize() if match[0][:1].isupper() else chosen

    whole = rf"(?<!\w)(?:{words})(?!\w)"
    if parts is CHARACTER_PATTERN:  # A Latin word is whole; a Chinese one stands anywhere.
        whole = rf"(?<![^\W{HAN}])(?:{words})(?![^\W{HAN}])|(?=[{HAN}])(?:{words})"
    return re.sub(whole, other, text, flags=re.I)


def swap_words(text: str, rate: float, chance: Random, parts: re.Pattern[str]) -> str:
    """Swap some words with their neighbours."""
    matches = list(parts.finditer(text))
    if not matches:
        return text
    words = _swapped([word[0] for word in matches], rate, chance)
    gaps = [text[a.end() : b.start()] for a, b in pairwise(matches)]
    inside = "".join(word + gap for word, gap in zip(words, [*gaps, ""], strict=True))
    return text[: matches[0].start()] + inside + text[matches[-1].end() :]


def mistype(text: str, rate: float, chance: Random, parts: re.Pattern[str]) -> str:
    """Add a typing error to some words of two or more letters (or Chinese characters)."""

    def slip(match: re.Match[str]) -> str:
        word = match[0]
        if len(word) < 2 or chance.random() >= rate:
            return word
        i = _below(len(word) - 1, chance)
        return (
            word[:i]
            + (word[i + 1] + word[i], word[i + 1], word[i] * 2 + word[i + 1])[_below(3, chance)]
            + word[i + 2 :]
        )

    return parts.sub(slip, text)


def _chosen(count: int, rate: float, chance: Random) -> list[int]:
    """A random subset of range(count), in order, never all of it."""
    chosen = [i for i in range(count) if chance.random() < rate]
    if count and len(chosen) == count:
        chosen.pop(_below(count, chance))
    return chosen


def _swapped(items: Sequence[Item], rate: float, chance: Random) -> list[Item]:
    """Swap some items with their neighbours."""
    swapped, i = list(items), 0
    while i < len(swapped) - 1:
        if chance.random() < rate:
            swapped[i], swapped[i + 1] = swapped[i + 1], swapped[i]
            i += 1
        i += 1
    return swapped


def back_translate(
    targets: Sequence[str], translate: Callable[[Sequence[str]], Sequence[str]]
) -> list[dict[str, str]]:
    """New pairs from texts in the target language and a model of the reverse direction (Sennrich 2016).

    An empty translation gives no pair.
    """
    sources = translate(targets)
    if len(sources) != len(targets):
        raise InputError(f"translate gave {len(sources)} texts for {len(targets)}; expected as many")
    return [{"src": s, "tgt": t} for s, t in zip(sources, targets, strict=True) if s.strip() and t.strip()]


def read_lexicon(path: str | Path) -> dict[str, list[str]]:
    """A JSON object of words and lists, or lines of a word, a tab, and its synonyms (tabs or commas)."""
    file = File(Path(path))
    lines = [text for _, text in file.lines()]
    if Path(path).suffix.lower() == ".json":
        try:
            given = json.loads("\n".join(lines))
            lexicon = {
                word: [others] if isinstance(others, str) else list(others) for word, others in given.items()
            }
        except (ValueError, AttributeError, TypeError, RecursionError):
            raise InputError(
                f'{file.name} is not a lexicon; expected {{"word": ["synonym", ...], ...}}'
            ) from None
    else:
        cells = [re.split(r"[\t,]", line) for line in lines if line.strip()]
        lexicon = {
            word.strip(): [other.strip() for other in others if other.strip()] for word, *others in cells
        }
    if not any(lexicon.values()) or not all(
        isinstance(o, str) and o for others in lexicon.values() for o in others
    ):
        raise InputError(f"{file.name} is not a lexicon; expected words, each with synonyms after a tab")
    return lexicon


def _below(count: int, chance: Random) -> int:
    return int(chance.random() * count)
