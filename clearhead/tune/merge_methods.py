"""Ways of merging, as values: tensors of several models in, one tensor out; in float64, one after the other.

    WeightedAverage   sum of w x                               model soups (Wortsman 2022)
    Slerp             along the arc from one to the other      two models
    TaskArithmetic    base + sum of w (x - base)               Ilharco 2022
    Ties              the same over the largest differences that agree in sign                 Yadav 2023
    Dare              the same over differences drawn at random, enlarged to make up for it    Yu 2023
    DareTies          both

`combine` gets the differences where a method needs a base, and the parameters themselves where not. Of
adapters it always gets the differences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, ClassVar, Literal, NamedTuple, TypeVar

from torch import Tensor

from ..errors import InputError, quoted
from ..nn import generator
from ..patterns import NamePattern
from ..spec import Bounds, Rate, Spec
from .deltas import (
    Average,
    Majority,
    Rescale,
    count_conflicts,
    drop_at_random,
    keep_largest,
    rescaled,
    slerp_coefficients,
    sum_of_elected,
    weighted_sum,
)

V = TypeVar("V")

Factor = Annotated[float, Bounds(-1e30, 1e30, "finite numbers")]
DensityShare = Annotated[float, Bounds(1e-30, 1, "a number above 0, at most 1")]
Weights = tuple[Factor, ...]
Density = DensityShare | tuple[DensityShare, ...]
SMALLEST_SUM = 1e-9  # of weights that are divided by their sum, relative to the largest


@dataclass(frozen=True)
class MergeKey:
    """The parameter that is merged: what patterns of settings and random draws go by."""

    names: tuple[str, ...]  # its name here, and what checkpoints call it
    seed: int = 0


class MergedTensor(NamedTuple):
    tensor: Tensor
    conflicts: int = 0  # places where differences that are kept have different signs


@dataclass(frozen=True, kw_only=True)
class MergeMethod(Spec):
    """How several models become one. The subclasses are kinds."""

    needs_base: ClassVar[bool] = False  # whether it merges differences to a base
    fewest: ClassVar[int] = 2  # models
    most: ClassVar[int | None] = None

    def check_count(self, count: int) -> None:
        """Raise an error if the settings are not for this number of models."""
        kind = type(self).__name__
        if count < self.fewest:
            raise InputError(f"{kind} merges {self.fewest} models or more; given {count}")
        if self.most is not None and count > self.most:
            raise InputError(f"{kind} merges {self.most} models; given {count}")

    def shares(self, count: int, key: MergeKey) -> Sequence[float]:
        """How much each model contributes, for parameters that the base does not have."""
        raise NotImplementedError

    def coefficients(self, tensors: Sequence[Tensor], key: MergeKey) -> Sequence[float] | None:
        """The factors whose weighted sum is the result; None where it is no weighted sum."""
        return None

    def combine(self, tensors: Sequence[Tensor], key: MergeKey) -> MergedTensor:
        factors = self.coefficients(tensors, key)
        assert factors is not None
        return MergedTensor(weighted_sum(factors, tensors))


@dataclass(frozen=True, kw_only=True)
class WeightedMerge(MergeMethod):
    """What all methods with a weight for each model share."""

    weights: Weights | None = None  # one for each model (default: equal ones)
    weights_pattern: tuple[tuple[str, Weights], ...] = ()  # others, by pattern of parameters; the first wins

    def default_weight(self, count: int) -> float:
        return 1.0

    def weights_of(self, count: int, key: MergeKey) -> Weights:
        chosen = by_pattern(self.weights_pattern, key, self.weights)
        return (self.default_weight(count),) * count if chosen is None else chosen

    def shares(self, count: int, key: MergeKey) -> Sequence[float]:
        return self.weights_of(count, key)

    def check_count(self, count: int) -> None:
        super().check_count(count)
        for weights in (self.weights, *(value for _, value in self.weights_pattern)):
            if weights is None:
                continue
            if len(weights) != count:
                raise InputError(f"{len(weights)} weights for {count} models; give one for each")
            self.check_weights(weights)

    def check_weights(self, weights: Weights) -> None:
        if not any(weights):
            raise InputError(f"weights are {quoted(weights)}: nothing of any model is left")

    def check_sum(self, weights: Weights) -> None:
        """Raise an error for weights that cannot be divided by their sum."""
        if abs(sum(weights)) <= SMALLEST_SUM * max(map(abs, weights)):
            raise InputError(
                f"weights are {quoted(weights)}, which add up to 0, and they are divided by their sum; "
                f"normalize=False leaves them as they are"
            )


@dataclass(frozen=True, kw_only=True)
class WeightedAverage(WeightedMerge):
    """The weighted average of the parameters, also called linear merging or a model soup (Wortsman 2022)."""

    normalize: bool = True  # weights are divided by their sum

    def default_weight(self, count: int) -> float:
        return 1 / count

    def check_weights(self, weights: Weights) -> None:
        super().check_weights(weights)
        if self.normalize:
            self.check_sum(weights)

    def coefficients(self, tensors: Sequence[Tensor], key: MergeKey) -> Sequence[float]:
        return _normalized(self.weights_of(len(tensors), key), normalize=self.normalize)


@dataclass(frozen=True, kw_only=True)
class Slerp(MergeMethod):
    """Two models, on the arc from the first (t=0) to the second (t=1) instead of the straight line.

    Each parameter is a vector for itself. Nearly parallel ones are interpolated linearly.
    """

    most: ClassVar[int | None] = 2

    t: Rate = 0.5  # 0: the first model, 1: the second
    t_pattern: tuple[tuple[str, Rate], ...] = ()  # others, by pattern of parameters; the first wins

    def shares(self, count: int, key: MergeKey) -> Sequence[float]:
        t = by_pattern(self.t_pattern, key, self.t)
        return 1 - t, t

    def coefficients(self, tensors: Sequence[Tensor], key: MergeKey) -> Sequence[float]:
        one, two = tensors
        return slerp_coefficients(one, two, by_pattern(self.t_pattern, key, self.t))


@dataclass(frozen=True, kw_only=True)
class DeltaMerge(WeightedMerge):
    """What all methods over differences to a base share."""

    needs_base: ClassVar[bool] = True
    fewest: ClassVar[int] = 1

    scale: Factor = 1.0  # the sum of the differences is multiplied by it


@dataclass(frozen=True, kw_only=True)
class TaskArithmetic(DeltaMerge):
    """The weighted sum of the differences, added to the base (Ilharco 2022). Negative weights unlearn."""

    normalize: bool = False  # weights are divided by their sum

    def check_weights(self, weights: Weights) -> None:
        super().check_weights(weights)
        if self.normalize:
            self.check_sum(weights)

    def coefficients(self, tensors: Sequence[Tensor], key: MergeKey) -> Sequence[float]:
        weights = _normalized(self.weights_of(len(tensors), key), normalize=self.normalize)
        return [self.scale * weight for weight in weights]

    def combine(self, tensors: Sequence[Tensor], key: MergeKey) -> MergedTensor:
        return super().combine(tensors, key)._replace(conflicts=count_conflicts(tensors))


@dataclass(frozen=True, kw_only=True)
class SparseMerge(DeltaMerge):
    """What all methods that keep a part of the differences share."""

    density: Density = 0.5  # the share of the numbers that is kept; of all models, or of each
    density_pattern: tuple[tuple[str, Density], ...] = ()  # others, by pattern of parameters

    def densities_of(self, count: int, key: MergeKey) -> tuple[float, ...]:
        found = by_pattern(self.density_pattern, key, self.density)
        return found if isinstance(found, tuple) else (found,) * count

    def check_count(self, count: int) -> None:
        super().check_count(count)
        for density in (self.density, *(value for _, value in self.density_pattern)):
            if isinstance(density, tuple) and len(density) != count:
                raise InputError(f"{len(density)} densities for {count} models; give one for each, or one")

    def kept(self, deltas: Sequence[Tensor], key: MergeKey) -> list[Tensor]:
        """The differences with everything zero that is not kept."""
        raise NotImplementedError

    def join(self, kept: Sequence[Tensor], weights: Weights) -> Tensor:
        raise NotImplementedError

    def combine(self, tensors: Sequence[Tensor], key: MergeKey) -> MergedTensor:
        kept = self.kept(tensors, key)
        joined = self.join(kept, self.weights_of(len(tensors), key))
        return MergedTensor(self.scale * joined, count_conflicts(kept))


@dataclass(frozen=True, kw_only=True)
class SignElection(SparseMerge):
    """What the methods share that keep at each place the differences of one sign."""

    majority: Majority = "sum"  # the sign of the sum, or the one that most differences have
    # Whether differences vote with their weights, as in mergekit, or without them, as in PEFT.
    election: Literal["weighted", "unweighted"] = "weighted"
    # weights: divided by the sum of the weights of those that agree; count: by their number; none: a sum
    average: Average = "weights"

    def join(self, kept: Sequence[Tensor], weights: Weights) -> Tensor:
        return sum_of_elected(
            kept,
            weights,
            majority=self.majority,
            average=self.average,
            is_weighted=self.election == "weighted",
        )


@dataclass(frozen=True, kw_only=True)
class Ties(SignElection):
    """Of each difference the largest numbers, of these the ones with the elected sign (Yadav 2023)."""

    def kept(self, deltas: Sequence[Tensor], key: MergeKey) -> list[Tensor]:
        densities = self.densities_of(len(deltas), key)
        return [keep_largest(x, density) for x, density in zip(deltas, densities, strict=True)]


@dataclass(frozen=True, kw_only=True)
class Dare(SparseMerge):
    """Of each difference a part at random, enlarged to the same expected size (Yu 2023); then their sum."""

    rescale: Rescale = "density"  # divided by it, or to the same sum of sizes (l1, as in mergekit), or not
    normalize: bool = False  # weights are divided by their sum

    def check_weights(self, weights: Weights) -> None:
        super().check_weights(weights)
        if self.normalize:
            self.check_sum(weights)

    def kept(self, deltas: Sequence[Tensor], key: MergeKey) -> list[Tensor]:
        return kept_at_random(deltas, self.densities_of(len(deltas), key), self.rescale, key)

    def join(self, kept: Sequence[Tensor], weights: Weights) -> Tensor:
        return weighted_sum(_normalized(weights, normalize=self.normalize), kept)


@dataclass(frozen=True, kw_only=True)
class DareTies(SignElection):
    """As Dare, and at each place only the differences with the elected sign count, as in Ties."""

    rescale: Rescale = "density"  # divided by it, or to the same sum of sizes (l1, as in mergekit), or not

    def kept(self, deltas: Sequence[Tensor], key: MergeKey) -> list[Tensor]:
        return kept_at_random(deltas, self.densities_of(len(deltas), key), self.rescale, key)


def kept_at_random(
    deltas: Sequence[Tensor], densities: Sequence[float], rescale: Rescale, key: MergeKey
) -> list[Tensor]:
    """The draws follow from the seed, the number of the model and the name of the parameter alone."""
    found = []
    for i, (x, density) in enumerate(zip(deltas, densities, strict=True)):
        drawn = drop_at_random(x, density, generator(key.seed, "merge", i, key.names[0]))
        found.append(rescaled(drawn, x, density, rescale))
    return found


def by_pattern(patterns: Sequence[tuple[str, V]], key: MergeKey, default: V) -> V:
    """The value of the first pattern that matches a name of the parameter."""
    for pattern, value in patterns:
        if any(_compiled(pattern).matches(name) for name in key.names):
            return value
    return default


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> NamePattern:
    return NamePattern(pattern, anywhere=True)


def _normalized(weights: Weights, *, normalize: bool) -> Sequence[float]:
    return [weight / sum(weights) for weight in weights] if normalize else weights
