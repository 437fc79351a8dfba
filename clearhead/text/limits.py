"""Limits of a tokenizer.json: the parts of a tokenizer in, an error message for what would never finish out.

A normaliser may replace a letter by ten, and nine of these in a row make a gigabyte of a word; a template may
repeat a text a hundred thousand times. What real tokenizers do is far below these limits.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tokenizers import Tokenizer as Engine

from ..errors import LoadError

MAX_GROWTH = 64  # how many times longer a text may become before it is cut into tokens
MAX_PARTS = 64  # of a template, and of a sequence of normalisers


def check_limits(engine: Engine) -> None:
    for name in ("normalizer", "pre_tokenizer", "decoder"):
        growth = 1.0
        for count, part in enumerate(_parts(getattr(engine, name)), 1):
            growth *= _growth(part)
            if growth > MAX_GROWTH or count > MAX_PARTS:
                raise LoadError(
                    f"tokenizer.json: its {name} makes texts more than {MAX_GROWTH} times as long"
                )
    for part in _parts(engine.post_processor):
        longest = max((len(part.get(side) or []) for side in ("single", "pair")), default=0)
        if longest > MAX_PARTS:
            raise LoadError(f"tokenizer.json: its post_processor has a template of {longest:,} parts")


def _parts(component: Any) -> Iterator[dict[str, Any]]:
    """A component of the library as data, a sequence as its parts."""
    if component is None:
        return
    pending = [json.loads(component.__getstate__())]
    while pending:
        part = pending.pop(0)
        inner = next((part[key] for key in SEQUENCE_KEYS if isinstance(part.get(key), list)), None)
        if inner is None:
            yield part
        else:
            pending += inner


SEQUENCE_KEYS = ("normalizers", "pretokenizers", "decoders", "processors")  # where a Sequence keeps its parts


def _growth(part: dict[str, Any]) -> float:
    """How many times longer this part can make a text; for what is put in front, how many letters."""
    if part.get("type") == "Prepend":
        return max(1.0, len(part.get("prepend", "")) / 8)
    if part.get("type") != "Replace":
        return 1.0
    pattern = part.get("pattern") or {}
    shortest = len(pattern["String"]) if isinstance(pattern.get("String"), str) else 1
    return max(1.0, len(part.get("content", "")) / max(shortest, 1))
