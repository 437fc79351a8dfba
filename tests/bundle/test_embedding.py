"""Sentence vectors: the order of the texts and the company they keep change nothing; padding is rare."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sentence_transformers.util import cos_sim
from tolerance import assert_close

import clearhead as ch
from clearhead.bundle import Bundle, count_cut
from clearhead.bundle.batching import TOKENS, length_batches
from clearhead.errors import InputError
from clearhead.text.training import train_tokenizer

TEXTS = [f"{'the cat sat on a mat and ' * n}the dog ran" for n in (0, 7, 3, 0, 1, 5, 2, 40, 3)]
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    tokenizer = train_tokenizer(TEXTS, kind="wordpiece", vocab=80, frame="cls-sep")
    made = ch.build("bert", task="hidden", vocab_size=tokenizer.vocab, **SIZES)
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


def test_one_text_gives_one_vector(bundle: Bundle) -> None:
    bundle.pooling = None
    assert bundle.embed(TEXTS[1]).shape == (32,)
    assert_close(bundle.embed(TEXTS[1]), bundle.embed(TEXTS)[1])


@pytest.mark.parametrize("size", [1, 2, 100])
def test_the_size_of_a_batch_changes_nothing(bundle: Bundle, size: int) -> None:
    bundle.pooling = None
    assert_close(bundle.embed(TEXTS, batch_size=size), bundle.embed(TEXTS))
    assert [len(batch) for batch in length_batches([3, 9, 4], 2)] == [2, 1]
    with pytest.raises(InputError, match="batch_size is 0"):
        bundle.embed(TEXTS, batch_size=0)


def test_similarity_is_that_of_sentence_transformers(bundle: Bundle) -> None:
    bundle.pooling = {"modes": ["max"], "normalize": False}
    vectors = bundle.embed(TEXTS)
    want = cos_sim(vectors[:4], vectors[4:])
    assert_close(bundle.similarity(TEXTS[:4], TEXTS[4:]), want)
    assert_close(bundle.similarity(vectors[:4], TEXTS[4:]), want)
    assert_close(bundle.similarity(TEXTS[0], TEXTS[4]), want[:1, :1])
    with pytest.raises(InputError, match="vectors of 32 and of 3 numbers"):
        bundle.similarity(vectors, torch.ones(3))


def test_a_text_is_read_up_to_the_last_position(bundle: Bundle) -> None:
    """As sentence-transformers does for a checkpoint that names no limit of its own."""
    short = ch.build("bert", task="hidden", vocab_size=80, max_position_embeddings=20, **SIZES)
    short.tokenizer, short.pooling = bundle.tokenizer, None
    assert short.tokenizer is not None
    ids = short.tokenizer.encode(TEXTS[7], max_length=20).ids
    want = short.model.hidden(torch.tensor([ids])).mean(1)
    assert_close(short.embed(TEXTS[7]), torch.nn.functional.normalize(want)[0])
    lengths = [len(each) for each in short.tokenizer.encode_batch(TEXTS)]
    assert count_cut(short, TEXTS) == (sum(length > 20 for length in lengths), 20)
    short.pooling = {"modes": ["mean"], "normalize": True, "max_seq_length": 9}
    assert count_cut(short, TEXTS)[1] == 9
