"""The largest numbers of a row, by blocks: what `topk` gives, wherever they stand."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clearhead.generate.search import BLOCK, largest


@given(st.integers(1, 5), st.integers(1, 3), st.integers(0, 2**31), st.integers(0, BLOCK))
def test_blocks_hide_nothing(rows: int, count: int, seed: int, more: int) -> None:
    key = torch.Generator().manual_seed(seed)
    scores = torch.randperm(rows * (64 * BLOCK + more), generator=key).float().view(rows, -1)
    found, wanted = largest(scores, count), scores.topk(count)
    assert torch.equal(found.values, wanted.values) and torch.equal(found.indices, wanted.indices)


@pytest.mark.parametrize("at", [[0, 1, 2], [64, 63, 65], [5000, 4999, 0], [4096, 4097, 4098]])
def test_neighbours_ends_and_the_rest(at: list[int]) -> None:
    scores = torch.full((1, 64 * BLOCK + 1000), float("-inf"))
    scores[0, at] = torch.tensor([3.0, 2.0, 1.0])
    assert largest(scores, 3).indices.tolist() == [at]
    assert largest(scores[:, :10], 2).values.shape == (1, 2)
