"""Parts of a tuning switched off: a tuned bundle and names of parts in; a bundle with these as before, out.

head:3.7    attn:3    cross:3    mlp:3    layer:3    as in `Bundle.without`; decoder.layer:3 of one tower
tower.blocks.{3,4}    *.heads.7    tower.embed    patterns of addresses
all                   everything in which the two models differ
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from ..errors import InputError
from ..lens import SUBLAYERS, parse_part
from ..nn import TransformerModel
from ..tune import pair_models, switch_off
from .parts import BundleParts

B = TypeVar("B", bound=BundleParts)
WORD = re.compile(r"(?:\w+\.)?(?:head|attn|cross|mlp|layer)(?::[\d.]+)?")
LAYER = re.compile(r"(?:(?P<side>\w+)\.)?layer:(?P<number>\d+)")


def without_tuning(bundle: B, off: str | Sequence[str], keep: str | Sequence[str] = ()) -> B:
    """The bundle with parts of its tuning switched off, but for those in `keep`."""
    if bundle.base is None:
        raise InputError(
            "this bundle is not tuned: no tuning can be switched off; without('head:3.7') ablates"
        )
    if not off:
        raise InputError("keep is for tuning='all' or other parts that are switched off; name these, too")
    paired = pair_models(bundle.base.model, bundle.model)
    named = paired.find(part_patterns(bundle.model, off))
    kept = paired.find(part_patterns(bundle.model, keep)) if keep else []
    # A layer with a part that is kept is switched off piece by piece.
    left = [part for part in named if not any(part.is_in(other) or other.is_in(part) for other in kept)]
    switched = switch_off(paired, left)
    return replace(
        bundle, model=switched.model, spec=switched.spec, tuning=None, base=None, adapter_kept=None
    )


def part_patterns(model: TransformerModel, words: str | Sequence[str]) -> list[str]:
    """The patterns of addresses that these words stand for."""
    given = [words] if isinstance(words, str) else list(words)
    return [pattern for word in given for pattern in _patterns(model, word)]


def _patterns(model: TransformerModel, word: str) -> list[str]:
    if word == "all":
        return ["*"]
    if found := LAYER.fullmatch(word):
        return [f"{side}.blocks.{found['number']}" for side in _sides(model, word, found["side"])]
    if not WORD.fullmatch(word) or word in ("head", "layer"):  # `head` is also the address of the output head
        return [word]
    part = parse_part(model, word)
    layers = ["*"] if part.layers is None else part.layers
    step = part.part if part.what == "head" else SUBLAYERS[part.what]
    end = step if part.head is None else f"{step}.heads.{part.head}"
    return [f"{side}.blocks.{layer}.{end}" for side in part.sides for layer in layers]


def _sides(model: TransformerModel, word: str, side: str | None) -> list[str]:
    towers = list(model.stacks)
    if side is None and len(towers) > 1:
        choices = ", ".join(f"{tower}.{word}" for tower in towers)
        raise InputError(f"{word!r}: this model has {' and '.join(towers)}; use one of {choices}")
    if side is not None and side not in towers:
        raise InputError(f"{word!r}: this model has no {side}; it has {' and '.join(towers)}")
    return towers if side is None else [side]
