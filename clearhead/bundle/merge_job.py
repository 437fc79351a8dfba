"""One merge: the parameters of several models and a method in; merged parameters, piece by piece, out.

A piece is some rows of a parameter: of a table of half a gigabyte never more than that is in memory in
float64, however many models are merged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ..errors import InputError
from ..tune import ExactParameters, MergedTensor, MergeKey, MergeMethod, Pieces, weighted_sum
from .bundle import Bundle
from .tuning import model_names

PIECE_NUMBERS = 2**20  # of a piece; what is drawn in it depends on that


@dataclass
class MergeJob:
    """What is merged. Everything is computed when it is asked for, so that no second model is in memory."""

    models: Sequence[Bundle]
    labels: Sequence[str]  # what the models are called in messages
    method: MergeMethod
    base: Bundle | None  # adapters have one; whole models where differences to it are merged
    seed: int
    of_first: frozenset[str]  # parameters that the result has from the first model alone

    @property
    def are_adapters(self) -> bool:
        return all(bundle.tuning is not None for bundle in self.models)

    @property
    def plain(self) -> Bundle:
        """The model whose tree of modules the result has: the base of adapters, or the first model."""
        first = self.base if self.are_adapters else self.models[0]
        assert first is not None
        base = first.base
        return base if isinstance(base, Bundle) else first

    @cached_property
    def sources(self) -> list[ExactParameters]:
        return [ExactParameters(bundle.model, bundle.tuning) for bundle in self.models]

    @cached_property
    def origin(self) -> ExactParameters | None:
        """What differences are taken to."""
        return None if self.base is None else ExactParameters(self.base.model)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The parameters that may change."""
        if not self.are_adapters:
            return self.sources[0].names
        changed = {name for source in self.sources for name in source.changed}
        return tuple(name for name in self.before.names if name in changed)

    @property
    def unchanged(self) -> list[str]:
        """The other parameters of the base of adapters."""
        known = set(self.names) if self.are_adapters else set(self.before.names)
        return [name for name in self.before.names if name not in known]

    @cached_property
    def before(self) -> ExactParameters:
        """What the result is compared with: the base, or the first model where there is none."""
        return ExactParameters(self.plain.model) if self.origin is None else self.origin

    @cached_property
    def all_names(self) -> dict[str, tuple[str, ...]]:
        """Every parameter with all names that it goes by."""
        names = model_names(self.plain)
        found: dict[str, list[str]] = {name: [name] for name in names.parameters}
        for theirs, ours in names.tensors.items():
            for name in ours:
                found.setdefault(name, [name]).append(theirs)
        return {name: tuple(every) for name, every in found.items()}

    def key(self, name: str) -> MergeKey:
        return MergeKey(self.all_names.get(name, (name,)), self.seed)

    def stored(self, name: str) -> Tensor:
        """The parameter before: of the base, or of the first model where the base does not have it."""
        where = self.before if name in self.before.names else self.sources[0]
        return where.stored(name)

    def dtype(self, name: str) -> torch.dtype:
        """The widest number format of the parameter."""
        if self.are_adapters:
            return self.stored(name).dtype
        found = [source.stored(name).dtype for source in self.sources if name in source.names]
        widest = found[0]
        for each in found[1:]:
            widest = torch.promote_types(widest, each)
        return widest

    def is_in_base(self, name: str) -> bool:
        """Whether the base has the parameter, and not only drawn at random, as a new head."""
        if self.base is None or self.origin is None:
            return False
        return name in self.origin.names and name not in self.base.report.fresh

    def deltas(self, name: str) -> Pieces:
        """What each model adds to a parameter of the base, in pieces."""
        assert self.origin is not None
        origin, every = self.origin, range(len(self.models))

        def pieces() -> Iterator[Sequence[Tensor]]:
            for rows in row_slices(self.stored(name)):
                before = origin.exact(name, rows)
                yield [self._exact(i, name, rows) - before for i in every]

        return pieces

    def _values(self, name: str, models: Sequence[int]) -> Pieces:
        """A parameter of some models, in pieces."""
        slices = row_slices(self.stored(name))
        return lambda: ([self._exact(i, name, rows) for i in models] for rows in slices)

    def merged(self, name: str) -> Iterator[MergedTensor]:
        """The merged parameter, in float64, piece by piece."""
        count, key = len(self.models), self.key(name)
        if name in self.of_first:
            return (MergedTensor(x) for (x,) in self._values(name, [0])())
        if self.origin is None:
            values = self._values(name, range(count))
            return map(self.method.plan(values, count, key), values())
        if self.is_in_base(name):
            return self._added(name, key)
        shares = self._shares(name, key)
        values = self._values(name, list(shares))
        return (MergedTensor(weighted_sum(list(shares.values()), piece)) for piece in values())

    def _added(self, name: str, key: MergeKey) -> Iterator[MergedTensor]:
        """The merged differences and the base."""
        assert self.origin is not None
        deltas = self.deltas(name)
        merge_piece = self.method.plan(deltas, len(self.models), key)
        for rows, piece in zip(row_slices(self.stored(name)), deltas(), strict=True):
            found = merge_piece(piece)
            yield found._replace(tensor=found.tensor + self.origin.exact(name, rows))

    def _shares(self, name: str, key: MergeKey) -> dict[int, float]:
        """Of parameters that the base does not have: the models that were trained with them, and weights."""
        shares = self.method.shares(len(self.models), key)
        own = {
            i: share
            for i, share in enumerate(shares)
            if name in self.sources[i].names and name not in self.models[i].report.fresh
        }
        if not own or any(share <= 0 for share in own.values()):  # to unlearn: nothing to subtract from
            return {next(iter(own), 0): 1.0}
        return {i: share / sum(own.values()) for i, share in own.items()}

    def _exact(self, i: int, name: str, rows: slice) -> Tensor:
        found = self.sources[i].exact(name, rows)
        if not bool(found.isfinite().all()):
            raise InputError(
                f"{self.labels[i]} has numbers in {name} that are not finite; it cannot be merged"
            )
        return found


def row_slices(x: Tensor) -> list[slice]:
    """Slices of the first dimension, each of about as many numbers."""
    if not x.ndim or not x.numel():
        return [slice(None)]
    step = max(1, PIECE_NUMBERS // (x.numel() // len(x)))
    return [slice(start, start + step) for start in range(0, len(x), step)]
