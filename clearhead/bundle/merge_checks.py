"""What can be merged: bundles in; an error that names the first difference, or remarks, out."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import InputError, UnsupportedError, quoted
from ..lens import differences
from .adapters import fingerprint
from .heads import HEAD, WITH_LABELS, stored_labels
from .parts import BundleParts

# Fields of a spec that may differ: they change no meaning of a weight, and the result has those of the first.
TOLERATED = {"dropout", "eps", "theta", "stretch", "window", "length", "init"}


def check_float(quantized: str | None) -> None:
    """Raise an error for a precision whose weights are whole numbers."""
    if quantized is not None:
        raise UnsupportedError(
            f"{quantized} weights cannot be merged: rounding would erase what is added; merge the float "
            f"models and quantize the result, or use an adapter beside the {quantized} weights as it is"
        )


def check_alike(first: BundleParts, other: BundleParts, names: tuple[str, str], *, heads: bool) -> list[str]:
    """Raise an error for models of different shapes; remarks on what differs and does no harm.

    `heads` says that the heads are merged, too, and must be of one shape.
    """
    one, two = names
    families = [each.family.title if each.family else "no family" for each in (first, other)]
    if families[0] != families[1]:
        raise InputError(
            f"{two} is of the family {families[1]}, {one} of {families[0]}; only models of one family can be "
            f"merged"
        )
    notes = []
    for change in () if first.spec == other.spec else differences(first.spec, other.spec):
        place = change.places[0]
        if not heads and is_of_head(f"{place}."):
            continue
        what = f"{place} is {quoted(change.before)} in {one} and {quoted(change.after)} in {two}"
        if place.endswith("embed.vocab"):
            raise InputError(f"{what}: with another vocabulary rows of the tables mean other tokens")
        if place.rpartition(".")[2] not in TOLERATED:
            raise InputError(f"{what}; only models of one shape can be merged")
        if not place.endswith("dropout"):
            notes.append(f"{what}: the result is as {one}")
    if first.edits != other.edits:
        raise InputError(f"{one} has the edits {quoted(first.edits)}, {two} {quoted(other.edits)}")
    tokenizers = [each.tokenizer.fingerprint if each.tokenizer else None for each in (first, other)]
    if None not in tokenizers and tokenizers[0] != tokenizers[1]:
        notes.append(f"the tokenizers of {one} and {two} differ: that of {one} is kept")
    return notes


def head_difference(first: BundleParts, other: BundleParts) -> str | None:
    """Why the heads of two models cannot be merged; None if they can."""
    if first.task != other.task:
        return f"one is for {first.task}, the other for {other.task}"
    labels = [stored_labels(each.config) for each in (first, other)]
    if first.task in WITH_LABELS and all(labels) and labels[0] != labels[1]:
        return f"one has the labels {quoted(labels[0])}, the other {quoted(labels[1])}"
    shapes = [
        {name: tuple(p.shape) for name, p in each.model.named_parameters() if is_of_head(name)}
        for each in (first, other)
    ]
    common = shapes[0].keys() & shapes[1].keys()
    unlike = next((name for name in common if shapes[0][name] != shapes[1][name]), None)
    return None if unlike is None else f"{unlike} is {shapes[0][unlike]} and {shapes[1][unlike]}"


def is_of_head(name: str) -> bool:
    return name.startswith(HEAD)


def check_bases(bases: Sequence[BundleParts], names: Sequence[str]) -> None:
    """Raise an error if adapters are not over the same weights."""
    first = fingerprint(bases[0])
    for base, name in zip(bases[1:], names[1:], strict=True):
        if base is not bases[0] and fingerprint(base) != first:
            over = [base.loaded_from for base in (bases[0], base)]
            raise InputError(
                f"{names[0]} is over other weights than {name} ({quoted(over[0])} and {quoted(over[1])}); "
                f"only adapters over one base can be merged"
            )
