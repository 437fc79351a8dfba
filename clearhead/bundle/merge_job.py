"""One merge: the parameters of several models and a method in; one merged parameter after the other out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ..errors import InputError
from ..tune import ExactParameters, MergedTensor, MergeKey, MergeMethod
from .bundle import Bundle
from .tuning import model_names


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

    def deltas(self, name: str) -> list[Tensor]:
        """What each model adds to the parameter of the base, in float64."""
        assert self.origin is not None
        before = self.origin.exact(name)
        return [self._exact(i, name) - before for i in range(len(self.models))]

    def merged(self, name: str) -> MergedTensor:
        """The merged parameter, in float64."""
        if name in self.of_first:
            return MergedTensor(self._exact(0, name))
        key = self.key(name)
        if self.origin is None:
            return self.method.combine([self._exact(i, name) for i in range(len(self.models))], key)
        if not self.is_in_base(name):
            return MergedTensor(self._average(name, key))
        found = self.method.combine(self.deltas(name), key)
        return found._replace(tensor=found.tensor + self.origin.exact(name))

    def is_in_base(self, name: str) -> bool:
        """Whether the base has the parameter, and not only drawn at random, as a new head."""
        assert self.base is not None and self.origin is not None
        return name in self.origin.names and name not in self.base.report.fresh

    def _average(self, name: str, key: MergeKey) -> Tensor:
        """Of parameters that the base does not have: the weighted average of those that were trained."""
        shares = self.method.shares(len(self.models), key)
        own = [
            (share, i)
            for i, share in enumerate(shares)
            if name in self.sources[i].names and name not in self.models[i].report.fresh
        ]
        if not own:
            return self._exact(0, name)
        if any(share <= 0 for share, _ in own):  # to unlearn: there is nothing to subtract from
            return self._exact(own[0][1], name)
        whole = sum(share for share, _ in own)
        average = torch.zeros_like(self._exact(own[0][1], name))
        for share, i in own:
            average.add_(self._exact(i, name), alpha=share / whole)
        return average

    def _exact(self, i: int, name: str) -> Tensor:
        found = self.sources[i].exact(name)
        if not bool(found.isfinite().all()):
            raise InputError(
                f"{self.labels[i]} has numbers in {name} that are not finite; it cannot be merged"
            )
        return found
