"""Checks of single settings: a name and a value in; an error of one line if the value is invalid.

Values come from a caller, or from a generation_config.json that somebody else wrote. Both are checked for
their type, and for bounds beyond which no model makes sense and no machine has the memory.
"""

from __future__ import annotations

import math
from typing import Any

from ..errors import InputError, quoted

LARGEST = 2**31 - 1  # of a count or a token id
COUNTS = {  # whole numbers: from, to
    "max_new_tokens": (1, 2**20), "max_length": (1, 2**20), "min_new_tokens": (0, 2**20),
    "min_length": (0, 2**20), "num_beams": (1, 2**10), "num_beam_groups": (1, 2**10),
    "num_return_sequences": (1, 2**10), "top_k": (0, LARGEST), "no_repeat_ngram_size": (0, LARGEST),
    "num_assistant_tokens": (1, 2**16), "pad_token_id": (0, LARGEST), "forced_bos_token_id": (0, LARGEST),
}  # fmt: skip
NUMBERS = {  # from, to; a length of 2**20 to the power of 32 is still a float
    "temperature": (0, 1e6), "top_p": (0, 1), "min_p": (0, 1), "typical_p": (0, 1), "penalty_alpha": (0, 1),
    "repetition_penalty": (0, 1e6), "frequency_penalty": (-1e6, 1e6), "presence_penalty": (-1e6, 1e6),
    "length_penalty": (-32, 32), "diversity_penalty": (0, 1e6),
}  # fmt: skip
IDS = ("suppress_tokens", "begin_suppress_tokens", "begin")


def check_setting(name: str, value: Any, where: str) -> None:
    """Raise an error for a value of the wrong type or size; `where` names the file it comes from."""
    expected = _expected(name, value)
    if expected is not None:
        raise InputError(f"{where}{name} is {quoted(value)}, expected {expected}")


def _expected(name: str, value: Any) -> str | None:  # noqa: C901 - a table of kinds, one line each
    """What was expected; None if the value is valid."""
    # The order matters: names with a range of their own come before the general patterns.
    if name in COUNTS:
        low, high = COUNTS[name]
        return None if _whole(value) and low <= value <= high else f"a whole number from {low} to {high:,}"
    if name in NUMBERS:
        least, most = NUMBERS[name]
        return None if _number(value) and least <= value <= most else f"a number from {least:g} to {most:g}"
    if name.endswith("_token_id"):
        return None if _id(value) or _ids(value) else "a token id or several"
    if name in IDS:
        return None if _ids(value) else "a list of token ids"
    if name == "bad_words_ids":
        return None if _list(value) and all(map(_ids, value)) else "a list of lists of token ids"
    if name == "stop":
        texts = [value] if isinstance(value, str) else value
        fits = _list(texts) and all(isinstance(text, str) and text for text in texts)
        return None if fits else "a text or several, none of them empty"
    if name == "tools":
        fits = _list(value) and all(isinstance(tool, dict) for tool in value)
        return None if fits else "a list of {'type': 'function', 'function': {'name': ..., ...}}"
    if name == "seed":
        fits = _whole(value) or (_list(value) and all(map(_whole, value)))
        return None if fits else "a whole number, or one for each request"
    if name in ("do_sample", "truncate_source"):
        return None if isinstance(value, bool) else "true or false"
    if name == "early_stopping":
        return None if isinstance(value, bool) or value == "never" else "true, false or 'never'"
    if name == "allowed":
        return None if callable(value) else "a function from the ids so far to those that may follow"
    return None


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(value: Any) -> bool:
    """Finite, and if it is an int, one that a float can hold."""
    return (_whole(value) and abs(value) < 2**63) or (isinstance(value, float) and math.isfinite(value))


def _list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _id(value: Any) -> bool:
    return _whole(value) and 0 <= value <= LARGEST


def _ids(value: Any) -> bool:
    """The -1 in some files stands for no token and is dropped later."""
    return _list(value) and all(_whole(i) and -1 <= i <= LARGEST for i in value)
