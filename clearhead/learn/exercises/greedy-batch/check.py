"""Checks of the fixed file. A failure explains itself in English and Chinese; titles: exercise.yaml."""

import torch

SAID = [[5, 2, 7, 7, 7], [5, 6, 7, 2, 7], [8, 8, 8, 8, 8]]


def _step(ids):
    """A model that generates SAID, token by token."""
    logits = torch.zeros(3, 10)
    for row in range(3):
        logits[row, SAID[row][min(ids.shape[1] - 1, 4)]] = 1
    return logits


def each_sentence_ends_by_itself(user):
    said = [list(row) for row in user.greedy(_step, 3, start=1, end=2, limit=5)]
    assert said == [[5], [5, 6, 7], [8, 8, 8, 8, 8]], (f"got {said}", f"得到 {said}")


def it_stops_when_all_have_ended(user):
    calls = []

    def step(ids):
        calls.append(ids.shape[1])
        return _step(ids)[:2]

    user.greedy(step, 2, start=1, end=2, limit=50)
    assert len(calls) == 4, (
        f"{len(calls)} steps for sentences of 2 and 4 words",
        f"两句分别为 2 个和 4 个 token，却解码了 {len(calls)} 步",
    )
