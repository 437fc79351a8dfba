"""Flash cards: a question and an answer in each language, kept in cards.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from random import Random

import yaml

from .language import Lang


@dataclass(frozen=True)
class Card:
    question: Mapping[Lang, str]
    answer: Mapping[Lang, str]


@lru_cache(1)
def all_cards() -> tuple[Card, ...]:
    text = (files("clearhead.learn") / "cards.yaml").read_text(encoding="utf-8")
    return tuple(Card(**card) for card in yaml.safe_load(text))


def draw_cards(count: int | None, seed: int | None) -> list[Card]:
    """All in their order, or shuffled by a seed, and no more than `count` of them."""
    chosen = list(all_cards())
    if seed is not None:
        Random(seed).shuffle(chosen)
    return chosen[:count]
