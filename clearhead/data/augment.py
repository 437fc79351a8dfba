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
)  # Chinese ones by themselves, words of other scripts whole_word
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
            raise InputError("synonyms need a lexicon: a JSON or TSV file with words and their synonyms")

    def __call__(self, text: str, *, seed: int, row: int, epoch: int) -> str:
        rng = generator_for(seed, "augment", row, epoch)
        # Decided once, for the whole_word text: later it may be a single word without a space.
        pattern = WORD_PATTERN if is_segmented(text) else CHARACTER_PATTERN
        if self.synonyms:
            text = replace_synonyms(text, self.synonyms, rng, self.lexicon, pattern)
        if self.delete:
            text = delete_words(text, self.delete, rng, pattern)
        if self.swap:
            text = swap_words(text, self.swap, rng, pattern)
        return mistype(text, self.letters, rng, pattern) if self.letters else text

    def ids(
        self, ids: Sequence[int], *, seed: int, row: int, epoch: int, special: Collection[int] = ()
    ) -> list[int]:
        """The same for token ids: some are deleted, some swapped; `special` ones are never touched."""
        rng = generator_for(seed, "augment", row, epoch)
        ordinary = [i for i, token in enumerate(ids) if token not in special]
        deleted = {ordinary[i] for i in _random_subset(len(ordinary), self.delete, rng)}
        remaining = [i for i in range(len(ids)) if i not in deleted]
        ordinary = [i for i in ordinary if i not in deleted]
        moved = dict(zip(ordinary, _swap_neighbours(ordinary, self.swap, rng), strict=True))
        return [ids[moved.get(i, i)] for i in remaining]


def is_segmented(text: str) -> bool:
    """Whether a Chinese text has spaces between its words; other texts have.

    A space beside a Latin word (用 Python 写) is no evidence, and neither is one between clauses.
    """
    chinese_runs = re.findall(rf"[{HAN}]+", text)
    if not chinese_runs:
        return True
    spaced = re.search(rf"[{HAN}][ \t\u3000]+[{HAN}]", text) is not None
    return spaced and sum(map(len, chinese_runs)) <= LONG_WORD * len(chinese_runs)


def delete_words(text: str, rate: float, rng: Random, pattern: re.Pattern[str]) -> str:
    """Delete some words, never all of them."""
    words = list(pattern.finditer(text))
    deleted = [words[i] for i in _random_subset(len(words), rate, rng)]
    for word in reversed(deleted):
        text = text[: word.start()] + text[word.end() :]
    return " ".join(text.split()) if deleted else text


def replace_synonyms(text: str, rate: float, rng: Random, lexicon: Lexicon, pattern: re.Pattern[str]) -> str:
    """Replace some words by one of their synonyms, keeping the case."""
    known = sorted((word for word, others in lexicon.items() if others), key=len, reverse=True)
    if not known:
        return text
    words = "|".join(re.escape(word) for word in known)

    def synonym(match: re.Match[str]) -> str:
        if rng.random() >= rate:
            return match[0]
        choices = lexicon.get(match[0]) or lexicon.get(match[0].lower()) or [match[0]]
        chosen = choices[_random_index(len(choices), rng)]
        return chosen.capitalize() if match[0][:1].isupper() else chosen

    whole_word = rf"(?<!\w)(?:{words})(?!\w)"
    if pattern is CHARACTER_PATTERN:  # A Latin word is whole_word; a Chinese one stands anywhere.
        whole_word = rf"(?<![^\W{HAN}])(?:{words})(?![^\W{HAN}])|(?=[{HAN}])(?:{words})"
    return re.sub(whole_word, synonym, text, flags=re.I)


def swap_words(text: str, rate: float, rng: Random, pattern: re.Pattern[str]) -> str:
    """Swap some words with their neighbours."""
    matches = list(pattern.finditer(text))
    if not matches:
        return text
    words = _swap_neighbours([word[0] for word in matches], rate, rng)
    gaps = [text[a.end() : b.start()] for a, b in pairwise(matches)]
    swapped = "".join(word + gap for word, gap in zip(words, [*gaps, ""], strict=True))
    return text[: matches[0].start()] + swapped + text[matches[-1].end() :]


def mistype(text: str, rate: float, rng: Random, pattern: re.Pattern[str]) -> str:
    """Add a typing error to some words of two or more letters (or Chinese characters)."""

    def add_typo(match: re.Match[str]) -> str:
        word = match[0]
        if len(word) < 2 or rng.random() >= rate:
            return word
        i = _random_index(len(word) - 1, rng)
        return (
            word[:i]
            + (word[i + 1] + word[i], word[i + 1], word[i] * 2 + word[i + 1])[_random_index(3, rng)]
            + word[i + 2 :]
        )

    return pattern.sub(add_typo, text)


def _random_subset(count: int, rate: float, rng: Random) -> list[int]:
    """A random subset of range(count), in order, never all of it."""
    chosen = [i for i in range(count) if rng.random() < rate]
    if count and len(chosen) == count:
        chosen.pop(_random_index(count, rng))
    return chosen


def _swap_neighbours(items: Sequence[Item], rate: float, rng: Random) -> list[Item]:
    """Swap some items with their neighbours."""
    swapped, i = list(items), 0
    while i < len(swapped) - 1:
        if rng.random() < rate:
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
            content = json.loads("\n".join(lines))
            lexicon = {
                word: [others] if isinstance(others, str) else list(others)
                for word, others in content.items()
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


def _random_index(count: int, rng: Random) -> int:
    return int(rng.random() * count)
