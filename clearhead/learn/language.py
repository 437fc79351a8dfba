"""Which language a learner reads: as requested, else from the environment, else English."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Literal, TypeVar

Lang = Literal["en", "zh"]
T = TypeVar("T")


def language(chosen: Lang | None = None, environment: Mapping[str, str] = os.environ) -> Lang:
    """`--lang`, then CLEARHEAD_LANG, then the locale: LC_ALL, LC_MESSAGES, LANG, the first that is set."""
    if chosen is not None:
        return chosen
    names = ("CLEARHEAD_LANG", "LC_ALL", "LC_MESSAGES", "LANG")
    locale = next((environment[name] for name in names if environment.get(name)), "en")
    return "zh" if locale.lower().startswith("zh") else "en"


def pick(lang: Lang, en: T, zh: T) -> T:
    return zh if lang == "zh" else en
