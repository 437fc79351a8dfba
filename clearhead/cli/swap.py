"""`--set Attention.kernel='Window(left=256)'` and `--quantize`: for every command that loads a model."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from ..errors import InputError

Set = Annotated[
    list[str] | None,
    Parameter(
        name="--set", negative="", help="replace a field of the spec: Attention.kernel='Window(left=256)'"
    ),
]
Quantize = Annotated[
    str | None,
    Parameter(help="int8: a quarter of the memory, faster; int8-fine: less fast, quality of float32"),
]

Edits = dict[str, str]


def is_edit(word: str) -> bool:
    """Attention.kernel=Linear edits the spec, tower.blocks.0.ff.out=0 an activation of one call."""
    kind = word.partition("=")[0].split(".")[-2:-1]
    return bool(kind) and kind[0][:1].isupper()


def edits(words: list[str] | None) -> Edits:
    """What the user set, by place; `bundle.edits` reads the values."""
    found: Edits = {}
    for word in words or ():
        place, sign, value = word.partition("=")
        if not sign or not place.strip() or not value.strip():
            raise InputError(f"--set takes Kind.field=value, such as Attention.kernel=Linear; given {word!r}")
        found[place.strip()] = value.strip()
    return found
