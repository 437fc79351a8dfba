"""Frozen parameters: patterns of names in; the parameters that keep their values, and those that learn, out.

A pattern is a glob over our parameter names, with braces: `tower.embed.*`, `tower.blocks.{0,1}.*`. It also
matches the names of the checkpoint: `bert.embeddings.*`, `encoder.layer.[0-3].*`. The name of a module stands
for everything in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ..bundle import Bundle
from ..errors import InputError, TrainError, nearest, quoted
from ..patterns import NamePattern
from ..weights import their_names


@dataclass(frozen=True)
class Frozen:
    """Which parameters are frozen, and how many numbers learn of how many."""

    names: tuple[str, ...]
    trainable: int
    total: int

    def __str__(self) -> str:
        share = 100 * self.trainable / max(self.total, 1)
        return f"{self.trainable:,} of {self.total:,} parameters are trained ({share:.3g} %)"


def frozen_parameters(bundle: Bundle, patterns: Sequence[str]) -> Frozen:
    """What these patterns freeze. A pattern that matches nothing is an error, and so is freezing all."""
    own = dict(bundle.model.named_parameters())
    stored = _stored_names(bundle, own)
    names = {name for pattern in patterns for name in _matches(pattern, own, stored)}
    learning = [p for name, p in own.items() if name not in names and p.requires_grad]
    if names and not learning:
        raise TrainError(
            f"freeze {quoted(list(patterns))} leaves no parameter to train; leave out a pattern, such as "
            f"that of the head"
        )
    total = sum(p.numel() for p in own.values())
    ordered = tuple(name for name in own if name in names)
    return Frozen(ordered, sum(p.numel() for p in learning), total)


@contextmanager
def frozen(bundle: Bundle, patterns: Sequence[str]) -> Iterator[Frozen]:
    """The bundle with these parameters frozen; afterwards they may be trained again."""
    found = frozen_parameters(bundle, patterns)
    own = dict(bundle.model.named_parameters())
    changed = [own[name] for name in found.names if own[name].requires_grad]
    for parameter in changed:
        parameter.requires_grad = False
    try:
        yield found
    finally:
        for parameter in changed:
            parameter.requires_grad = True


def _matches(pattern: str, own: Mapping[str, object], stored: Mapping[str, Sequence[str]]) -> set[str]:
    """Our names that a pattern matches, under their own names or those of the checkpoint."""
    try:
        wanted = NamePattern(pattern)
    except InputError as error:
        raise TrainError(f"freeze: {error}") from None
    found = set(wanted.among(own))
    for theirs in wanted.among(stored):
        found |= set(stored[theirs])
    if not found:
        raise TrainError(f"freeze {quoted(pattern)} matches no parameter; {nearest(pattern, own)}")
    return found


def _stored_names(bundle: Bundle, own: Mapping[str, object]) -> dict[str, tuple[str, ...]]:
    """The names of the checkpoint, with and without the prefix of the family, each with our names."""
    family = bundle.family
    if family is None:
        return {}
    read = [*bundle.report.used, *bundle.report.aliases]
    table = family.weights(family.config(bundle.config, stored=read), bundle.task)
    names = their_names(own, table)
    names |= {family.stored_name(theirs, bundle.task): ours for theirs, ours in names.items()}
    return names | {theirs.removeprefix(family.prefix): ours for theirs, ours in names.items()}
