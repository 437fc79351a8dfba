"""Checks of single settings: a name and a value in, one line about what is wrong with it out, or nothing."""

from __future__ import annotations

from typing import Any

from ..errors import InputError

COUNTS = {  # whole numbers, and the least that makes sense
    "max_new_tokens": 1, "max_length": 1, "min_new_tokens": 0, "min_length": 0, "num_beams": 1,
    "num_beam_groups": 1, "num_return_sequences": 1, "top_k": 0, "no_repeat_ngram_size": 0,
    "num_assistant_tokens": 1, "pad_token_id": 0, "forced_bos_token_id": 0,
}  # fmt: skip
NUMBERS = {  # from, to
    "temperature": (0, None), "top_p": (0, 1), "min_p": (0, 1), "typical_p": (0, 1), "penalty_alpha": (0, 1),
    "repetition_penalty": (0, None), "frequency_penalty": (None, None), "presence_penalty": (None, None),
    "length_penalty": (None, None), "diversity_penalty": (0, None),
}  # fmt: skip


def check(name: str, value: Any, where: str) -> None:
    """Refuse a value of the wrong kind or size; `where` says which file it stands in."""
    if name in COUNTS and (not _whole(value) or value < COUNTS[name]):
        raise InputError(f"{where}{name} is {value!r}, expected a whole number from {COUNTS[name]}")
    if name in NUMBERS:
        low, high = NUMBERS[name]
        number = _whole(value) or isinstance(value, float)
        if not number or (low is not None and value < low) or (high is not None and value > high):
            span = "" if low is None else f" from {low}" + ("" if high is None else f" to {high}")
            raise InputError(f"{where}{name} is {value!r}, expected a number{span}")
    if name.endswith("_token_id") and name not in COUNTS:
        ids = [value] if isinstance(value, int) else value
        if not isinstance(ids, list | tuple) or not all(_whole(i) and i >= 0 for i in ids):
            raise InputError(f"{where}{name} is {str(value)[:60]!r}, expected a token id or several")
    if name == "seed" and not (
        _whole(value) or (isinstance(value, list | tuple) and all(map(_whole, value)))
    ):
        raise InputError(f"{where}seed is {value!r}, expected a whole number, or one for each request")


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
