"""Position schemes: how the model knows the position of a token. The interface of all.

A scheme may act in three places: `add` changes the embeddings; `bind` prepares it for the positions of one
call, where `rotate_q` / `rotate_k` change queries and keys and `bias` is added to the attention scores.
Shape suffixes: B batch, H heads, T tokens, Q queries, K keys, D width, E head width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

from torch import Tensor, nn

from ..spec import Dims, Spec
from .cost import HiddenShape, PositionCost
from .counting import count_position_cost
from .distance_scores import DistanceScores
from .view import View


class Projections(Protocol):
    """The projections of a layer of attention to queries and keys."""

    def queries(self, x_BTD: Tensor) -> Tensor: ...

    def keys(self, x_BTD: Tensor) -> Tensor: ...


class BoundPositions:
    """A position scheme bound to the positions of one call: computed once here, used by every layer."""

    distances: DistanceScores | None = None  # where the bias depends on distances alone, and there are blocks

    def rotate_q(self, q_BHQE: Tensor) -> Tensor:
        return q_BHQE

    def rotate_k(self, k_BHTE: Tensor) -> Tensor:
        return k_BHTE

    def in_layer(self, attention: Projections) -> BoundPositions:
        """These positions for one layer: a scheme may use its projections instead of others of its own."""
        return self

    def bias(self, layer: int, q_BHQE: Tensor, k_BHKE: Tensor) -> Tensor | None:
        """(1 or B, H, Q, K) to add to the scores of this layer; it may depend on queries and keys."""
        return None


class PositionScheme(nn.Module):
    """The module of a `Positions` spec."""

    def add(self, x_BTD: Tensor, pos_BT: Tensor) -> Tensor:
        return x_BTD

    def bind(self, view: View) -> BoundPositions:
        return BoundPositions()


class Positions(Spec):
    """The spec of a position scheme. `dims` are the tower's; `width` is that of the embeddings."""

    types: int = 0  # how many segment types it distinguishes
    relative: ClassVar[bool] = False  # only distances matter, so that states may be read in a later segment

    @property
    def max_length(self) -> int | None:
        """The longest sequence it has positions for; None: no limit."""
        return None

    def build(self, dims: Dims, width: int) -> PositionScheme:
        raise NotImplementedError

    def cost(self, shape: HiddenShape, dims: Dims) -> PositionCost:
        """`shape` is that of the embeddings, `dims` are the tower's. Without a formula it is counted.

        Keys may be more than tokens: `shape.keys`.
        """
        return count_position_cost(self, shape, dims)


@dataclass(frozen=True, kw_only=True)
class NoPositions(Positions):
    """None: the model sees a set of tokens, or learns order from the causal mask alone."""

    relative: ClassVar[bool] = True

    def build(self, dims: Dims, width: int) -> PositionScheme:
        return PositionScheme()

    def cost(self, shape: HiddenShape, dims: Dims) -> PositionCost:
        return PositionCost()
