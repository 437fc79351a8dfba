"""Ways of merging, as values: tensors of several models in, one tensor out; in float64, piece by piece.

    WeightedAverage   sum of w x                               model soups (Wortsman 2022)
    Slerp             along the arc from one to the other      two models
    TaskArithmetic    base + sum of w (x - base)               Ilharco 2022
    Ties              the same over the largest differences that agree in sign                 Yadav 2023
    Dare              the same over differences drawn at random, enlarged to make up for it    Yu 2023
    DareTies          both

`plan` looks at all pieces of a parameter where a method must know the whole (the largest numbers, a length)
and gives what merges one piece after the other. It gets the differences to the base where a method needs one,
and the parameters themselves where not; of adapters always the differences.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, ClassVar, Literal, NamedTuple, TypeVar

from torch import Tensor

from ..errors import InputError, quoted
from ..patterns import NamePattern
from ..spec import Bounds, Rate, Spec
from .deltas import (
    Average,
    Majority,
    Pieces,
    count_conflicts,
    slerp_coefficients,
    sum_of_elected,
    weighted_sum,
)
from .sparse_deltas import Rescale, Sparsify, keep_at_random, keep_largest

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


MergePiece = Callable[[Sequence[Tensor]], MergedTensor]  # a piece of every model in


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

    def coefficients(self, pieces: Pieces, count: int, key: MergeKey) -> Sequence[float] | None:
        """The factors whose weighted sum is the result; None where it is no weighted sum."""
        return None

    def plan(self, pieces: Pieces, count: int, key: MergeKey) -> MergePiece:
        """What merges the pieces of a parameter of `count` models, called with one after the other."""
        factors = self.coefficients(pieces, count, key)
        assert factors is not None
        return lambda tensors: MergedTensor(weighted_sum(factors, tensors))

    def combine(self, tensors: Sequence[Tensor], key: MergeKey) -> MergedTensor:
        """The same for a parameter in one piece."""
        return self.plan(lambda: iter([tensors]), len(tensors), key)(tensors)


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

    def coefficients(self, pieces: Pieces, count: int, key: MergeKey) -> Sequence[float]:
        return _normalized(self.weights_of(count, key), normalize=self.normalize)


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

    def coefficients(self, pieces: Pieces, count: int, key: MergeKey) -> Sequence[float]:
        return slerp_coefficients(pieces, by_pattern(self.t_pattern, key, self.t))


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

    def coefficients(self, pieces: Pieces, count: int, key: MergeKey) -> Sequence[float]:
        weights = _normalized(self.weights_of(count, key), normalize=self.normalize)
        return [self.scale * weight for weight in weights]

    def plan(self, pieces: Pieces, count: int, key: MergeKey) -> MergePiece:
        factors = self.coefficients(pieces, count, key)
        return lambda deltas: MergedTensor(weighted_sum(factors, deltas), count_conflicts(deltas))


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

    def keepers(self, pieces: Pieces, count: int, key: MergeKey) -> Sequence[Sparsify]:
        """For each model what sets to zero what is not kept, called with one piece after the other."""
        raise NotImplementedError

    def join(self, kept: Sequence[Tensor], weights: Weights) -> Tensor:
        raise NotImplementedError

    def plan(self, pieces: Pieces, count: int, key: MergeKey) -> MergePiece:
        keepers, weights = self.keepers(pieces, count, key), self.weights_of(count, key)

        def merge_piece(deltas: Sequence[Tensor]) -> MergedTensor:
            kept = [keep(x) for keep, x in zip(keepers, deltas, strict=True)]
            return MergedTensor(self.scale * self.join(kept, weights), count_conflicts(kept))

        return merge_piece


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

    def keepers(self, pieces: Pieces, count: int, key: MergeKey) -> Sequence[Sparsify]:
        return keep_largest(pieces, self.densities_of(count, key))


@dataclass(frozen=True, kw_only=True)
class Dare(SparseMerge):
    """Of each difference a part at random, enlarged to the same expected size (Yu 2023); then their sum."""

    rescale: Rescale = "density"  # divided by it, or to the same sum of sizes (l1, as in mergekit), or not
    normalize: bool = False  # weights are divided by their sum

    def check_weights(self, weights: Weights) -> None:
        super().check_weights(weights)
        if self.normalize:
            self.check_sum(weights)

    def keepers(self, pieces: Pieces, count: int, key: MergeKey) -> Sequence[Sparsify]:
        densities = self.densities_of(count, key)
        return keep_at_random(pieces, densities, self.rescale, key.seed, key.names[0])

    def join(self, kept: Sequence[Tensor], weights: Weights) -> Tensor:
        return weighted_sum(_normalized(weights, normalize=self.normalize), kept)


@dataclass(frozen=True, kw_only=True)
class DareTies(SignElection):
    """As Dare, and at each place only the differences with the elected sign count, as in Ties."""

    rescale: Rescale = "density"  # divided by it, or to the same sum of sizes (l1, as in mergekit), or not

    def keepers(self, pieces: Pieces, count: int, key: MergeKey) -> Sequence[Sparsify]:
        densities = self.densities_of(count, key)
        return keep_at_random(pieces, densities, self.rescale, key.seed, key.names[0])


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
