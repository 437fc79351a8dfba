"""Attention to near tokens and to summaries of blocks (LongT5): one softmax over both.

    queries of a tile ──▶ the tokens within the window of any of them   near, S keys
                      └─▶ the summaries of all blocks of the text       far, N keys

Keys and values of tokens and of summaries come in, weighted values go out. Queries are computed in tiles of
neighbours, which share most of their keys, so n tokens with a window of w and blocks of b tokens cost
n * (w + n / b) pairs. Every text is a row of its own, as in `per_sequence`: blocks are counted from its first
token, whatever stands before it.
Shape suffixes: B batch, R texts, T tokens, L tokens of the longest text, H heads, C tiles, W queries of a
tile, S keys of a tile, N blocks of the longest text, E head width, D width.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ..distance_scores import DistanceScores
from ..layers import apply_dropout
from ..norm import widen
from ..tap import Tap
from ..view import View
from .kernel import AttentionCall, Kernel, Need, apply_weights, raise_unsupported
from .sequences import Sequences, sequences

SMALLEST_TILE = 64  # queries of a tile, at least: small products cost more than the pairs they save


@dataclass(frozen=True, eq=False)
class TextBlocks:
    """The texts of a call cut into blocks of `size` tokens.

    Tokens behind the last full block belong to it; a text shorter than a block has none.
    """

    texts: Sequences | None  # None: every row of the batch is one text from end to end
    block_RL: Tensor  # the block of each token; below zero: its text has none. One row, if alike in all
    count_R1: Tensor  # full blocks of each text
    most: int  # of all texts

    @classmethod
    def of(cls, view: View, size: int) -> TextBlocks:
        texts, device = sequences(view), view.k_pos.device
        if texts is None:
            length_R1, longest = torch.full((1, 1), view.keys, device=device), view.keys
        else:
            length_R1, longest = texts.keys.length_S[:, None], texts.keys.at_SL.shape[1]
        count_R1 = length_R1 // size
        block_RL = torch.minimum(torch.arange(longest, device=device) // size, count_R1 - 1)
        return cls(texts, block_RL, count_R1, longest // size)

    def take(self, x_BT: Tensor) -> Tensor:
        """(B, T, ...) -> (R, L, ...), zeros behind the end of a text."""
        return x_BT if self.texts is None else self.texts.keys.take(x_BT)

    def put(self, x_RL: Tensor) -> Tensor:
        """(R, L, ...) -> (B, T, ...), zeros where no text is."""
        return x_RL if self.texts is None else self.texts.keys.put(x_RL)

    def sums(self, x_BTD: Tensor) -> Tensor:
        """(R, N, D): the sum of the vectors of each block."""
        x_RLD = self.take(x_BTD)
        rows, _, width = x_RLD.shape
        # One place more, for tokens of no block.
        place_RL = self.block_RL.remainder(self.most + 1)
        row_R1 = torch.arange(rows, device=x_RLD.device)[:, None]
        place = (place_RL + row_R1 * (self.most + 1)).flatten()
        empty = widen(x_RLD).new_zeros(rows * (self.most + 1), width)
        sums = empty.index_add(0, place, widen(x_RLD).flatten(0, 1))
        return sums.reshape(rows, self.most + 1, width)[:, : self.most].type_as(x_BTD)


@dataclass(frozen=True, eq=False)
class Summaries:
    """Keys and values of the summaries of each text, and what positions add to all scores."""

    blocks: TextBlocks
    k_RHNE: Tensor
    v_RHNE: Tensor
    distances: DistanceScores | None = None


@dataclass(frozen=True)
class Tiles:
    """A text of `length` tokens as tiles of `width` queries, with `left` and `right` more keys around."""

    length: int
    count: int
    width: int
    left: int
    right: int
    window: tuple[int, int]

    @classmethod
    def of(cls, length: int, window: tuple[int, int] | None) -> Tiles:
        window = (length, length) if window is None else window
        some = max(length, 1)  # a batch of padding alone has no token, and one tile
        width = min(max(sum(window), SMALLEST_TILE), some)
        count = -(-some // width)
        # With one tile nothing is around it, with two no more than the other.
        around = (count - 1) * width
        return cls(length, count, width, min(window[0], around), min(window[1], around), window)

    @property
    def keys(self) -> int:
        return self.left + self.width + self.right

    def of_queries(self, x_RHLE: Tensor) -> Tensor:
        """(R, H, L, E) -> (R, H, C, W, E)."""
        missing = self.count * self.width - self.length
        filled = F.pad(x_RHLE, (0, 0, 0, missing)) if missing else x_RHLE  # without any it would still copy
        return filled.reshape(*filled.shape[:2], self.count, self.width, filled.shape[-1])

    def of_keys(self, x_RHLE: Tensor) -> Tensor:
        """(R, H, L, E) -> (R, H, C, E, S)."""
        behind = self.count * self.width - self.length + self.right
        return F.pad(x_RHLE, (0, 0, self.left, behind)).unfold(2, self.keys, self.width)

    def joined(self, x_RHCWE: Tensor) -> Tensor:
        """(R, H, C, W, E) -> (R, H, L, E)."""
        return x_RHCWE.flatten(2, 3)[:, :, : self.length]

    def allowed(self, real_RL: Tensor) -> Tensor:
        """(1 or R, C, W, S): the pairs within the window whose key is a token of the text."""
        at = real_RL.device
        ahead_WS = (
            torch.arange(self.keys, device=at) - torch.arange(self.width, device=at)[:, None] - self.left
        )
        near_WS = (ahead_WS >= -self.window[0]) & (ahead_WS <= self.window[1])
        real_RCS = self.of_keys(real_RL[:, None, :, None])[:, 0, :, 0]
        return near_WS & real_RCS[:, :, None]


class BlockSummariesKernel(Kernel):
    """`pattern` has the weights on tokens, `summary_pattern` those on summaries: together they sum to one."""

    supports = frozenset({"padding", "documents", "window", "pattern"})
    reasons: ClassVar[dict[Need, str]] = {"causal": "a summary would show later tokens"}
    is_normalised = False  # by the weights on tokens alone

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = dropout

    def require(self, needs: AbstractSet[Need]) -> None:
        unmet = needs - self.supports
        raise_unsupported(
            "attention with BlockSummaries", unmet, self.reasons, "leave Attention.project unset"
        )

    def attend(self, call: AttentionCall, tap: Tap) -> Tensor:
        call = _repeat_kv(call)
        dropout = self.dropout if self.training else 0.0
        if tap.wants("pattern") or tap.wants("summary_pattern"):
            near_BHQK, far_BHQN = _weights(call)
            shown = tap("pattern", near_BHQK), tap("summary_pattern", far_BHQN)
            if shown[0] is not near_BHQK or shown[1] is not far_BHQN:
                near = apply_weights(shown[0], call.v_BHKE, dropout)
                return near + _apply_to_summaries(shown[1], call, dropout)
        return _attend(call, dropout)


def _summaries(call: AttentionCall) -> Summaries:
    assert call.summaries is not None
    return call.summaries


def _repeat_kv(call: AttentionCall) -> AttentionCall:
    """The same call with one key/value head for each query head, of tokens and of summaries."""
    if call.heads_per_kv == 1:
        return call
    given = _summaries(call)
    k, v = (x.repeat_interleave(call.heads_per_kv, dim=1) for x in (given.k_RHNE, given.v_RHNE))
    return replace(call.repeat_kv(), summaries=replace(given, k_RHNE=k, v_RHNE=v))


def _weights(call: AttentionCall) -> tuple[Tensor, Tensor]:
    """(B, H, Q, K) and (B, H, Q, N): the weights on tokens, and on the summaries of the token's own text.

    The output is linear in the values: with the rows of one identity matrix as values, it is the weights.
    """
    given, tokens = _summaries(call), call.view.keys
    most = given.blocks.most
    unit = torch.eye(tokens + most, dtype=call.v_BHKE.dtype, device=call.v_BHKE.device)
    v = unit[:tokens].expand(*call.v_BHKE.shape[:2], -1, -1)
    far = unit[tokens:].expand(*given.v_RHNE.shape[:2], -1, -1)
    both = _attend(replace(call, v_BHKE=v, summaries=replace(given, v_RHNE=far)))
    return both[..., :tokens], both[..., tokens:]


def _apply_to_summaries(weights_BHQN: Tensor, call: AttentionCall, dropout: float) -> Tensor:
    given = _summaries(call)
    weights_RHLN = given.blocks.take(weights_BHQN.transpose(1, 2)).transpose(1, 2)
    mixed_RHLE = apply_weights(weights_RHLN, given.v_RHNE, dropout)
    return given.blocks.put(mixed_RHLE.transpose(1, 2)).transpose(1, 2)


def _attend(call: AttentionCall, dropout: float = 0.0) -> Tensor:
    given = _summaries(call)
    blocks = given.blocks
    q, k, v = (
        blocks.take(widen(x).transpose(1, 2)).transpose(1, 2).contiguous()
        for x in (call.q_BHQE * call.scale, call.k_BHKE, call.v_BHKE)
    )
    tiles = Tiles.of(q.shape[2], call.view.outline.window)
    near_RHCWS = _near_scores(q, k, tiles, given)
    far_RHCWN = tiles.of_queries(_far_scores(q, given))
    weights = apply_dropout(torch.cat([near_RHCWS, far_RHCWN], dim=-1).softmax(dim=-1), dropout)
    near_RHCWS, far_RHCWN = weights[..., : tiles.keys], weights[..., tiles.keys :]
    mixed_RHLE = tiles.joined(near_RHCWS @ tiles.of_keys(v).mT)
    mixed_RHLE = mixed_RHLE + tiles.joined(far_RHCWN) @ widen(given.v_RHNE)
    return blocks.put(mixed_RHLE.transpose(1, 2)).transpose(1, 2).type_as(call.v_BHKE)


def _near_scores(q_RHLE: Tensor, k_RHLE: Tensor, tiles: Tiles, given: Summaries) -> Tensor:
    """(R, H, C, W, S)."""
    scores = tiles.of_queries(q_RHLE) @ tiles.of_keys(k_RHLE)
    if given.distances is not None:
        by_distance = given.distances.by_offset(
            given.distances.tokens_HA, -tiles.left, tiles.width, tiles.keys
        )
        scores = scores + by_distance[:, None].type_as(scores)
    texts = given.blocks.texts
    real_RL = texts.keys.real_SL if texts else q_RHLE.new_ones(1, tiles.length, dtype=torch.bool)
    return _blocked(scores, tiles.allowed(real_RL)[:, None])


def _far_scores(q_RHLE: Tensor, given: Summaries) -> Tensor:
    """(R, H, L, N)."""
    scores, blocks = q_RHLE @ widen(given.k_RHNE).mT, given.blocks
    if given.distances is not None and blocks.most:
        by_block_HNN = given.distances.by_offset(given.distances.blocks_HA, 0, blocks.most, blocks.most)
        by_distance = by_block_HNN[:, blocks.block_RL.clamp(min=0)].transpose(0, 1)
        scores = scores + by_distance.type_as(scores)
    if blocks.texts is None:  # all texts have as many
        return scores
    there_RN = torch.arange(blocks.most, device=scores.device) < blocks.count_R1
    return _blocked(scores, there_RN[:, None, None])


def _blocked(scores: Tensor, allowed: Tensor) -> Tensor:
    return scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)
