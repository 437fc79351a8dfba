"""Which language a learner reads: as requested, else from the environment, else English."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Literal, TypeVar

Lang = Literal["en", "zh"]
T = TypeVar("T")


def language(asked: Lang | None = None, environment: Mapping[str, str] = os.environ) -> Lang:
    """`--lang`, then CLEARHEAD_LANG, then the locale: LC_ALL, LC_MESSAGES, LANG, the first that is set."""
    if asked is not None:
        return asked
    names = ("CLEARHEAD_LANG", "LC_ALL", "LC_MESSAGES", "LANG")
    said = next((environment[name] for name in names if environment.get(name)), "en")
    return "zh" if said.lower().startswith("zh") else "en"


def pick(lang: Lang, en: T, zh: T) -> T:
    return zh if lang == "zh" else en
