"""The logit lens of the page: what it computes is what was asked for, and nothing is computed twice."""

import pytest
import torch
from served import Served

import clearhead as ch
from clearhead.serve.compute_queue import CachedTrace, ComputeQueue
from clearhead.serve.logit_lens import lens_cell, lens_window

LENGTH, VOCAB, LAYERS = 300, 997, 5


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> tuple[CachedTrace, list[int]]:
    """A trace of 300 tokens, and a list that tells how many rows reached the head at each call."""
    sizes = {"n_embd": 16, "n_layer": LAYERS, "n_head": 2, "n_positions": 512, "vocab_size": VOCAB}
    bundle = ch.build("gpt2", **sizes)
    trace = bundle.trace([i % VOCAB for i in range(LENGTH)])
    rows: list[int] = []
    head = bundle.model.head
    head.register_forward_hook(lambda module, given, answer: rows.append(answer.shape[-2]))
    return ComputeQueue().cache(trace, {}, 0.0), rows


def test_only_the_window_reaches_the_head_and_a_click_computes_nothing(
    held: tuple[CachedTrace, list[int]],
) -> None:
    trace, rows = held
    window = lens_window(trace, 24, 12)
    assert len(window["cells"]) == LAYERS + 1 and len(window["cells"][0]) == 12
    assert sum(rows) == (LAYERS + 1) * 12  # not 300 positions
    top = lens_cell(trace, 3, 30)
    assert len(top) == 10 and top[0] == window["cells"][3][6]
    lens_window(trace, 24, 12)
    assert sum(rows) == (LAYERS + 1) * 12
    lens_window(trace, 30, 12)  # half of it is known
    assert sum(rows) == (LAYERS + 1) * 18


def test_the_whole_lens_never_holds_more_than_a_few_rows_of_logits(
    held: tuple[CachedTrace, list[int]],
) -> None:
    trace, rows = held
    guesses = trace.trace.logit_lens(3)
    assert max(rows) <= 64 and sum(rows) == (LAYERS + 1) * LENGTH
    want = trace.trace.answer.softmax(-1).topk(3)
    assert torch.equal(guesses.ids[-1], want.indices)
    torch.testing.assert_close(guesses.probabilities[-1], want.values)


def test_a_window_has_the_numbers_of_the_whole(held: tuple[CachedTrace, list[int]]) -> None:
    trace, _ = held
    whole = trace.trace.logit_lens(10)
    window = lens_window(trace, 290, 12)
    assert window["from"] == 290 and len(window["cells"][0]) == 10  # the text ends there
    for layer in range(LAYERS + 1):
        assert [cell["id"] for cell in window["cells"][layer]] == whole.ids[layer, 290:, 0].tolist()


def test_a_model_that_labels_whole_texts_has_one_column(served: Served) -> None:
    bundle = ch.build("bert", task="labels", hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
                      intermediate_size=16, vocab_size=50, max_position_embeddings=64)  # fmt: skip
    held = ComputeQueue().cache(bundle.trace(list(range(20))), {}, 0.0)
    assert lens_window(held, 0, 12)["positions"] == 1
