"""`largest`, a `topk` that goes block by block, gives what `topk` gives, wherever the winners stand."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clearhead.generate.search import BLOCK, FEW, fast_topk

GPT2 = 50257  # its last 17 tokens fill no block, and the end token is the very last one


def assert_as_topk(scores: torch.Tensor, count: int) -> None:
    found, wanted = fast_topk(scores, count), scores.topk(count)
    assert torch.equal(found.values, wanted.values) and torch.equal(found.indices, wanted.indices)


@given(st.integers(1, 5), st.integers(1, 3), st.integers(0, 2**31), st.integers(0, BLOCK))
def test_blocks_hide_nothing(rows: int, count: int, seed: int, more: int) -> None:
    key = torch.Generator().manual_seed(seed)
    scores = torch.randperm(rows * (64 * BLOCK + more), generator=key).float().view(rows, -1)
    assert_as_topk(scores, count)


@given(count=st.integers(1, 3), more=st.integers(0, BLOCK - 1), data=st.data())
def test_winners_are_found_in_any_block_and_in_the_tail_that_fills_none(
    count: int, more: int, data: st.DataObject
) -> None:
    """Random winners are almost never in the tail, so every row has its own drawn there as often as not."""
    rows, blocks = 16, 64
    length = blocks * BLOCK + more
    assert length >= 16 * BLOCK * count and rows * length >= FEW, "otherwise `topk` itself is called"
    tail = st.integers(blocks * BLOCK, length - 1) if more else st.integers(0, length - 1)
    place = st.one_of(tail, st.integers(0, length - 1))
    places = data.draw(st.lists(st.lists(place, min_size=count, max_size=count, unique=True),
                                min_size=1, max_size=rows))  # fmt: skip
    scores = torch.arange(length).expand(rows, -1) / -1e6
    scores = scores.clone()
    for row, at in enumerate(places):
        scores[row, at] = torch.arange(count, 0, -1).float()
    assert_as_topk(scores, count)
    for row, at in enumerate(places):
        assert fast_topk(scores, count).indices[row].tolist() == at


@pytest.mark.parametrize("count", [1, 2, 8])
@pytest.mark.parametrize("winner", [0, GPT2 - 18, GPT2 - 17, GPT2 - 1], ids=["first", "block", "tail", "end"])
def test_the_end_token_of_gpt2_can_win(winner: int, count: int) -> None:
    scores = torch.linspace(0, 1, GPT2).flip(0).repeat(2, 1)
    scores[1, winner] = 2.0
    assert fast_topk(scores, count).indices[1, 0] == winner
    assert_as_topk(scores, count)


@pytest.mark.parametrize(
    "at", [[0, 1, 2], [64, 63, 65], [5055, 4999, 0], [5056, 5055, 0], [5095, 5094, 5093]]
)
def test_neighbours_ends_and_the_rest(at: list[int]) -> None:
    """The whole blocks of a row of this length end at 5056; what stands behind is in none of them."""
    scores = torch.full((1, 64 * BLOCK + 1000), float("-inf"))
    scores[0, at] = torch.tensor([3.0, 2.0, 1.0])
    assert fast_topk(scores, 3).indices.tolist() == [at]
    assert fast_topk(scores[:, :10], 2).values.shape == (1, 2)
