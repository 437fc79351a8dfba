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

import torch

from ..engine import layout
from ..errors import InputError
from ..lens import SUBLAYERS, parse_part
from ..nn import TransformerModel
from ..tune import Tuning, attach_tuning, fewer_targets, pair_models, switch_off
from .parts import BundleParts
from .tuning import model_names

B = TypeVar("B", bound=BundleParts)
PART_WORD = re.compile(r"(?:\w+\.)?(?:head|attn|cross|mlp|layer)(?::[\d.]+)?")
LAYER_WORD = re.compile(r"(?:(?P<side>\w+)\.)?layer:(?P<number>\d+)")


def without_tuning(bundle: B, off: str | Sequence[str], keep: str | Sequence[str] = ()) -> B:
    """The bundle with parts of its tuning switched off, but for those in `keep`.

    Without whole layers or sub-layers of LoRA or bottlenecks it is a tuned bundle again, with a smaller
    adapter that can be saved and trained further; otherwise it is a model to look at.
    """
    if bundle.base is None or bundle.tuning is None:
        raise InputError(
            "this bundle is not tuned: no tuning can be switched off; without('head:3.7') ablates a head"
        )
    if not off:
        raise InputError("keep is for tuning='all' or other parts that are switched off; name these, too")
    paired = pair_models(bundle.base.model, bundle.model)
    named = paired.find(part_patterns(bundle.model, off))
    kept = paired.find(part_patterns(bundle.model, keep)) if keep else []
    # A layer with a part that is kept is switched off piece by piece.
    left = [part for part in named if not any(part.is_in(other) or other.is_in(part) for other in kept)]
    # A target in a layer that several share is in all of them.
    shared = any(
        len(set(stack.weights_of_layers)) < len(stack.blocks) for stack in bundle.model.stacks.values()
    )
    smaller = None if shared else fewer_targets(bundle.tuning, left)
    if smaller is not None:
        return _tuned_again(bundle, bundle.base, smaller)
    switched = switch_off(paired, left)
    return replace(
        bundle, model=switched.model, spec=switched.spec, tuning=None, base=None, adapter_kept=None
    )


def _tuned_again(bundle: B, base: BundleParts, tuning: Tuning) -> B:
    """The same base with a tuning of fewer layers, and copies of what was learned for these."""
    assert bundle.tuning is not None
    own = {name for name, _ in base.model.named_parameters()}
    learn = [name for name in bundle.tuning.trained if name in own]
    tuned = attach_tuning(base.model, tuning, names=model_names(base), learn=learn)
    before = dict(bundle.model.named_parameters())
    with torch.no_grad():
        for name in tuned.tuning.trained:
            tuned.model.get_parameter(name).copy_(before[name])
    tuned.model.train(bundle.model.training)
    layout.for_inference(tuned.model, only_trained=True)
    return replace(bundle, model=tuned.model, spec=tuned.spec, tuning=tuned.tuning, adapter_kept=None)


def part_patterns(model: TransformerModel, words: str | Sequence[str]) -> list[str]:
    """The patterns of addresses that these words stand for."""
    given = [words] if isinstance(words, str) else list(words)
    return [pattern for word in given for pattern in _patterns(model, word)]


def _patterns(model: TransformerModel, word: str) -> list[str]:
    if word == "all":
        return ["*"]
    if found := LAYER_WORD.fullmatch(word):
        return [f"{side}.blocks.{found['number']}" for side in _sides(model, word, found["side"])]
    if not PART_WORD.fullmatch(word) or word in (
        "head",
        "layer",
    ):  # `head` is also the address of the output head
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
