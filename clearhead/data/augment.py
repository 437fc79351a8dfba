"""Augmentation: a text in, a text that means nearly the same out; a function of (seed, row, epoch).

No sentence is ever emptied. Chinese, which has no spaces, is changed character by character; its synonyms may
be words of any length.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random

from ..errors import InputError
from .files import File
from .order import draws

HAN = "\u3400-\u9fff\uf900-\ufaff"
PARTS = re.compile(rf"[{HAN}]|[^\s{HAN}]+")
Lexicon = Mapping[str, Sequence[str]]


@dataclass(frozen=True, kw_only=True)
class Augment:
    """How much of what: each number is the chance of a word to be changed. `Augment()` changes nothing."""

    delete: float = 0.0
    synonyms: float = 0.0
    swap: float = 0.0  # a word with the next
    letters: float = 0.0  # a typing error: two letters swapped, one lost, or one twice
    lexicon: Lexicon = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("delete", "synonyms", "swap", "letters"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"{name} is {getattr(self, name)}; expected a chance from 0 to 1")
        if self.synonyms and not self.lexicon:
            raise InputError(
                "synonyms need a lexicon: a JSON or TSV file with words and what may stand for them"
            )

    def __call__(self, text: str, *, seed: int, row: int, epoch: int) -> str:
        chance = draws(seed, "augment", row, epoch)
        for change, rate in (
            (lambda t, r, c: replace_synonyms(t, r, c, self.lexicon), self.synonyms),
            (delete_words, self.delete),
            (swap_words, self.swap),
            (mistype, self.letters),
        ):
            if rate:
                text = change(text, rate, chance)
        return text


def delete_words(text: str, rate: float, chance: Random) -> str:
    """Without some of its words; if all of them were to go, one stays."""
    parts = list(PARTS.finditer(text))
    gone = [part for part in parts if chance.random() < rate]
    if parts and len(gone) == len(parts):
        gone.pop(_below(len(gone), chance))
    for part in reversed(gone):
        text = text[: part.start()] + text[part.end() :]
    return " ".join(text.split()) if gone else text


def replace_synonyms(text: str, rate: float, chance: Random, lexicon: Lexicon) -> str:
    """With some words exchanged for one of their synonyms, in the case they are written in."""
    known = sorted((word for word, others in lexicon.items() if others), key=len, reverse=True)
    if not known:
        return text
    words = "|".join(re.escape(word) for word in known)

    def other(found: re.Match[str]) -> str:
        if chance.random() >= rate:
            return found[0]
        choices = lexicon.get(found[0]) or lexicon.get(found[0].lower()) or [found[0]]
        chosen = choices[_below(len(choices), chance)]
        return chosen.capitalize() if found[0][:1].isupper() else chosen

    # A Latin word is whole; a Chinese one stands anywhere.
    return re.sub(
        rf"(?<![^\W{HAN}])(?:{words})(?![^\W{HAN}])|(?=[{HAN}])(?:{words})", other, text, flags=re.I
    )


def swap_words(text: str, rate: float, chance: Random) -> str:
    """With some words in the place of their neighbours."""
    parts = list(PARTS.finditer(text))
    words, i = [part[0] for part in parts], 0
    while i < len(words) - 1:
        if chance.random() < rate:
            words[i], words[i + 1] = words[i + 1], words[i]
            i += 1
        i += 1
    gaps = [text[a.end() : b.start()] for a, b in pairwise(parts)]
    inside = "".join(word + gap for word, gap in zip(words, [*gaps, ""], strict=True))
    return text[: parts[0].start()] + inside + text[parts[-1].end() :] if parts else text


def mistype(text: str, rate: float, chance: Random) -> str:
    """With a slip of the finger in some words of two letters and more."""

    def slip(found: re.Match[str]) -> str:
        word = found[0]
        if len(word) < 2 or chance.random() >= rate:
            return word
        i = _below(len(word) - 1, chance)
        return (
            word[:i]
            + (word[i + 1] + word[i], word[i + 1], word[i] * 2 + word[i + 1])[_below(3, chance)]
            + word[i + 2 :]
        )

    return PARTS.sub(slip, text)


def back_translate(
    targets: Sequence[str], translate: Callable[[Sequence[str]], Sequence[str]]
) -> list[dict[str, str]]:
    """New pairs out of texts in the target language and a model of the reverse direction (Sennrich 2016).

    Where the model says nothing there is no pair.
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
                f'{file.name} is no lexicon; expected {{"word": ["synonym", ...], ...}}'
            ) from None
    else:
        cells = [re.split(r"[\t,]", line) for line in lines if line.strip()]
        lexicon = {
            word.strip(): [other.strip() for other in others if other.strip()] for word, *others in cells
        }
    if not any(lexicon.values()) or not all(
        isinstance(o, str) and o for others in lexicon.values() for o in others
    ):
        raise InputError(f"{file.name} is no lexicon; expected words, each with synonyms after a tab")
    return lexicon


def _below(count: int, chance: Random) -> int:
    return int(chance.random() * count)
