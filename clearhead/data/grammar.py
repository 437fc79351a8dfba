"""A grammar: a seed in, English sentences with their Chinese translation out.

Every sentence has two or three nouns of one kind, so the words alone do not determine its meaning. Their
order determines who does what to whom, which noun an adjective or a number belongs to, and whom a relative
clause is about. Chinese has another order: time and place come before the verb, a relative clause before its
noun.

    three clever dogs follow the old horse today    今天三只聪明的狗跟着那匹年老的马
    the cat that the child likes sees two dogs      那个孩子喜欢的那只猫看见两只狗
    the cat that likes the child sees two dogs      喜欢那个孩子的那只猫看见两只狗
    the doctor lends ten books and two red hats to this child    那位医生借给这个孩子十本书和两顶红色的帽子
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import permutations, product
from math import prod
from typing import Any

from . import grammar_words as words
from .documents import is_held_out
from .grammar_words import NO_WORD, Determiner, Noun, Verb, Word
from .shuffling import hashed_numbers

TRAIN_PAIRS, HELD_OUT_PAIRS = 24_000, 500


@dataclass(frozen=True)
class Phrase:
    """A noun with what belongs to it, in both languages."""

    english: str
    chinese: str
    plural: bool


def phrase(determiner: Determiner, adjective: Word, noun: Noun) -> Phrase:
    """the + old + cat: 那 + 只 + 年老的 + 猫"""
    name = noun.plural if determiner.plural else noun.singular
    measure = noun.measure if determiner.measured else ""
    chinese = determiner.chinese + measure + adjective[1] + noun.chinese
    return Phrase(_spaced(determiner.english, adjective[0], name), chinese, determiner.plural)


def relative(head: Phrase, role: str, verb: Verb, other: Phrase) -> Phrase:
    """A noun with a relative clause; there it is the subject (that likes X) or the object (that X likes)."""
    if role == "subject":
        english, chinese = f"that {_agreeing(verb, head)} {other.english}", verb.chinese + other.chinese
    else:
        english, chinese = f"that {other.english} {_agreeing(verb, other)}", other.chinese + verb.chinese
    return Phrase(f"{head.english} {english}", f"{chinese}的{head.chinese}", head.plural)


def statement(subject: Phrase, verb: Verb, obj: Phrase, place: Word = NO_WORD, time: Word = NO_WORD) -> Word:
    """Who, does, whom, where, when; in Chinese when, who, where, does, whom."""
    english = _spaced(subject.english, _agreeing(verb, subject), obj.english, place[0], time[0])
    return english, time[1] + subject.chinese + place[1] + verb.chinese + obj.chinese


def gift(giver: Phrase, verb: Verb, things: Iterable[Phrase], receiver: Phrase, time: Word) -> Word:
    """Who gives this and that to whom, when; in Chinese when, who, gives, whom, this and that."""
    one, two = things
    objects = f"{one.english} and {two.english} to {receiver.english}"
    english = _spaced(giver.english, _agreeing(verb, giver), objects, time[0])
    return english, f"{time[1]}{giver.chinese}{verb.chinese}{receiver.chinese}{one.chinese}和{two.chinese}"


def _agreeing(verb: Verb, subject: Phrase) -> str:
    return verb.plural if subject.plural else verb.singular


def _spaced(*parts: str) -> str:
    return " ".join(part for part in parts if part)


@dataclass(frozen=True)
class Pattern:
    """A kind of sentence: what there is to choose, and what makes a sentence of the choices."""

    slots: tuple[Sequence[Any], ...]
    write: Callable[..., Word]

    @property
    def size(self) -> int:
        return prod(map(len, self.slots))

    def sentence(self, number: int) -> Word:
        """Sentence 0 to size - 1: every slot takes a digit of the number."""
        chosen = []
        for slot in self.slots:
            number, place = divmod(number, len(slot))
            chosen.append(slot[place])
        return self.write(*chosen)


Nouns = tuple[Noun, ...]
Determiners = tuple[Determiner, ...]
Adjectives = tuple[Word, ...]


def _simple(
    nouns: Nouns, which: Determiners, kinds: Adjectives, happening: tuple[Verb, Word], time: Word
) -> Word:
    subject, obj = map(phrase, which, kinds, nouns)
    verb, place = happening
    return statement(subject, verb, obj, place, time)


def _described(
    nouns: Nouns, which: Determiners, kinds: Adjectives, verbs: tuple[Verb, Verb], head: str, role: str
) -> Word:
    one, two, inner = map(phrase, which, (*kinds, NO_WORD), nouns)
    described = relative(one, role, verbs[1], inner)
    subject, obj = (described, two) if head == "subject" else (two, described)
    return statement(subject, verbs[0], obj)


def _given(
    people: Nouns,
    which: Determiners,
    verb: Verb,
    things: Nouns,
    counts: Determiners,
    kinds: Adjectives,
    time: Word,
) -> Word:
    giver, receiver = map(phrase, which, (NO_WORD, NO_WORD), people)
    return gift(giver, verb, map(phrase, counts, kinds, things), receiver, time)


def _pairs(choices: Sequence[Any]) -> list[tuple[Any, Any]]:
    return list(product(choices, repeat=2))


BEINGS = words.PEOPLE + words.ANIMALS
DETERMINERS = words.DEFINITE + words.NUMERALS
HAPPENINGS = [*product(words.ACTIONS, words.PLACES), *product(words.FEELINGS, [NO_WORD])]
PATTERNS = (
    Pattern(
        (
            list(permutations(BEINGS, 2)),
            _pairs(DETERMINERS),
            _pairs(words.OF_BEINGS),
            HAPPENINGS,
            words.TIME_PHRASES,
        ),
        _simple,
    ),
    Pattern(
        (
            list(permutations(BEINGS, 3)),
            # Chinese puts the clause before 那 or 这, but after a number: only definite nouns have one here.
            list(product(words.DEFINITE, DETERMINERS, DETERMINERS)),
            _pairs(words.OF_BEINGS),
            _pairs(words.ACTIONS + words.FEELINGS),
            ("subject", "object"),
            ("subject", "object"),
        ),
        _described,
    ),
    Pattern(
        (
            list(permutations(words.PEOPLE, 2)),
            _pairs(DETERMINERS),
            words.GIVING,
            list(permutations(words.THINGS, 2)),
            _pairs(words.NUMERALS),
            _pairs(words.OF_THINGS),
            words.TIME_PHRASES,
        ),
        _given,
    ),
)
SENTENCES = sum(pattern.size for pattern in PATTERNS)


def translated_sentence(number: int) -> Word:
    """Sentence 0 to SENTENCES - 1, in both languages."""
    for pattern in PATTERNS:
        if number < pattern.size:
            return pattern.sentence(number)
        number -= pattern.size
    raise IndexError(f"there are {SENTENCES:,} sentences")


_STEMS = {noun.plural: noun.singular for noun in (*BEINGS, *words.THINGS)}
_STEMS |= {verb.singular: verb.plural for verb in (*words.ACTIONS, *words.FEELINGS, *words.GIVING)}


def combination(english: str) -> str:
    """The words of a sentence without their order and endings: the same for it and for its mirror images."""
    return " ".join(sorted(_STEMS.get(word, word) for word in english.split()))


def make(seed: int) -> dict[str, list[dict[str, str]]]:
    """Distinct sentences, as many of each pattern. Held out are whole combinations, the same for any seed."""
    splits: dict[str, dict[str, str]] = {"train": {}, "valid": {}}
    sizes = {"train": TRAIN_PAIRS, "valid": HELD_OUT_PAIRS}
    for number in hashed_numbers(seed, "grammar", count=2 * (TRAIN_PAIRS + HELD_OUT_PAIRS)).tolist():
        number, kind = divmod(number, len(PATTERNS))
        pattern = PATTERNS[kind]
        english, chinese = pattern.sentence(number % pattern.size)
        split = "valid" if is_held_out(combination(english), one_in=20) else "train"
        if len(splits[split]) < sizes[split]:
            splits[split][english] = chinese
        elif all(len(splits[name]) == size for name, size in sizes.items()):
            break
    return {name: [{"src": e, "tgt": c} for e, c in pairs.items()] for name, pairs in splits.items()}
