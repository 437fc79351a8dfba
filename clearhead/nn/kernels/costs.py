"""The cost of softmax attention: torch's fused call, the plain formula, and blocks of either."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..cost import INDEX_BYTES, AttentionShape, PartCost, matmul_cost


@dataclass(frozen=True)
class Dense:
    """All pairs of queries and keys. `cap` and `sink` are what the fused call cannot do."""

    dropout: float = 0.0
    cap: bool = False
    sink: bool = False

    def cost(self, at: AttentionShape) -> PartCost:
        """Scores and weighted values, two products per head; backward, the fused call repeats the scores."""
        rows = at.batch * at.heads
        scores = matmul_cost(rows, at.queries, at.head_dim, at.keys)
        both = scores + matmul_cost(rows, at.queries, at.keys, at.value_dim)
        both += PartCost(parameters=at.heads if self.sink else 0)
        if not at.training:
            return both
        if self.is_fused(at):
            return both + PartCost(backward=scores.flops, saved=_kept_by_fused(at))
        return both + PartCost(saved=self._kept_by_plain(at))

    def is_fused(self, at: AttentionShape) -> bool:
        """Whether torch has one call for it; on the CPU not with dropout, nowhere with a learned bias."""
        dropped = self.dropout > 0 and at.device == "cpu"
        plain = self.cap or self.sink or _learns(at)
        return not plain and not dropped and at.value_dim == at.head_dim

    def _kept_by_plain(self, at: AttentionShape) -> int:
        """Scaled queries and keys, values, output; and per head (Q, K): weights, and dropout twice."""
        rows, pairs = at.batch * at.heads, at.queries * at.keys
        vectors = rows * (at.queries + at.keys) * (at.head_dim + at.value_dim)
        squares = 1 + 2 * (self.dropout > 0) + self.cap
        flags = 0
        if self.cap or self.sink:
            blocked = at.rule != "open"  # two flags per score, and the weights once more
            squares, flags = squares + blocked, 2 * blocked * pairs
        elif _learns(at) and at.rule != "open":
            flags = pairs  # the mask is written into the bias
        return at.number * (vectors + squares * rows * pairs) + flags


def _learns(at: AttentionShape) -> bool:
    return at.bias in ("learned", "content")


def _kept_by_fused(at: AttentionShape) -> int:
    """Queries, keys, values and output, one sum per query, and a rendered mask in the dtype of the scores."""
    asking = at.batch * at.heads * at.queries
    offered = at.batch * at.kv_heads * at.keys
    vectors = (asking + offered) * (at.head_dim + at.value_dim)
    mask = at.queries * at.keys if at.rule == "mask" and at.bias == "none" else 0
    again = asking * at.value_dim if at.joined else 0  # copied to the order of the hidden states
    return at.number * (vectors + mask + again) + 4 * asking


@dataclass(frozen=True)
class Sparse:
    """`blocks` blocks of queries and keys; `lists` of keys is 1, or one for every head."""

    blocks: int
    queries: int
    keys: int
    lists: int = 1
    into: bool = True  # whether the output is written into another one

    def cost(self, at: AttentionShape, dropout: float) -> PartCost:
        if self.blocks * self.queries == 0:
            return PartCost()
        rows = at.batch * self.blocks
        groups = max(at.kv_heads, self.lists)
        one = replace(at, batch=rows, kv_heads=groups, queries=self.queries, keys=self.keys, rule="open")
        one = replace(one, joined=False)
        return Dense(dropout).cost(one) + PartCost(saved=self._kept(at, rows, dropout) if at.training else 0)

    def _kept(self, at: AttentionShape, rows: int, dropout: float) -> int:
        """The mask as numbers, if the fused call is used; and the slots, of keys and again of values."""
        lists = self.lists if at.bias == "none" else at.heads
        pairs = rows * self.queries * self.keys * lists if Dense(dropout).is_fused(at) else 0
        answer = rows * at.heads * self.queries * at.value_dim if self.into else 0
        slots = self.blocks * (2 * self.queries + 2 * self.lists * self.keys)
        return at.number * (pairs + answer) + INDEX_BYTES * slots + self._kept_of_bias(at)

    def _kept_of_bias(self, at: AttentionShape) -> int:
        """For a learned bias: its rows for the queries, to gather from, and the mask as flags."""
        if not _learns(at):
            return 0
        rows, asking = at.batch if at.bias == "content" else 1, self.blocks * self.queries
        return at.number * rows * at.heads * asking * at.keys + asking * self.keys * self.lists


def output_copy(at: AttentionShape) -> PartCost:
    """The output copied once more, from block order to token order."""
    return PartCost(saved=at.number * at.batch * at.heads * at.queries * at.value_dim if at.training else 0)
