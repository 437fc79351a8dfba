"""Sentence vectors: the order of the texts and the company they keep change nothing; padding is rare."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tolerance import assert_close

import clearhead as ch
from clearhead.bundle import Bundle
from clearhead.bundle.batching import TOKENS, length_batches
from clearhead.text.training import train_tokenizer

TEXTS = [f"{'the cat sat on a mat and ' * n}the dog ran" for n in (0, 7, 3, 0, 1, 5, 2, 40, 3)]


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    tokenizer = train_tokenizer(TEXTS, kind="wordpiece", vocab=80, frame="cls-sep")
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    made = ch.build("bert", task="hidden", vocab_size=tokenizer.vocab, **sizes)
    made.tokenizer = tokenizer
    return made


@given(st.lists(st.integers(1, 300), max_size=80))
def test_every_row_comes_once_in_batches_that_fit(lengths: list[int]) -> None:
    made = list(length_batches(lengths, tokens=256))
    assert sorted(i for batch in made for i in batch) == list(range(len(lengths)))
    for batch in made:
        assert len(batch) == 1 or len(batch) * max(lengths[i] for i in batch) <= 256


def test_little_is_padded() -> None:
    key = torch.Generator().manual_seed(0)
    lengths = (torch.randn(5000, generator=key) * 4 + 12).clamp(3, 40).long().tolist()
    padded = sum(len(batch) * max(lengths[i] for i in batch) for batch in length_batches(lengths))
    assert padded / sum(lengths) < 1.03 and TOKENS >= 256


@pytest.mark.parametrize("modes", [["mean"], ["cls"], ["max", "mean"], ["lasttoken"]])
def test_a_text_has_one_vector_whatever_stands_beside_it(bundle: Bundle, modes: list[str]) -> None:
    bundle.pooling = {"modes": modes, "normalize": "max" not in modes}
    together = bundle.embed(TEXTS)
    assert together.shape == (len(TEXTS), 32 * len(modes)) and not together.is_inference()
    alone = torch.cat([bundle.embed([text]) for text in TEXTS])
    assert_close(together, alone)
    assert_close(bundle.embed(TEXTS[::-1]), together.flip(0))
    assert bundle.embed([]).shape == (0, 32 * len(modes))
