"""Filters against the processors of `transformers`: the same numbers, and so the same kept sets."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from transformers import LogitsProcessorList
from transformers.generation import logits_process as theirs

from clearhead.errors import InputError
from clearhead.generate import filters
from clearhead.generate.filters import Filter
from clearhead.generate.results import TokenBuffer

VOCAB, START = 23, 4


def tokens(rows: int = 4, new: int = 5, seed: int = 0) -> TokenBuffer:
    """A prompt of four tokens and some new ones, with repetitions."""
    key = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, 7, (rows, START + new), generator=key)
    made = TokenBuffer(ids[:, :START], torch.ones(rows, START, dtype=torch.bool), torch.full((rows,), 8))
    for token in ids[:, START:].unbind(1):
        made.append(token, torch.zeros(rows))
    return made


def scores(rows: int = 4, seed: int = 0, spread: float = 3.0) -> Tensor:
    return torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(seed)) * spread


PAIRS: dict[str, tuple[Filter, Any]] = {
    "temperature": (filters.Temperature(0.7), theirs.TemperatureLogitsWarper(0.7)),
    "top-k": (filters.TopK(3), theirs.TopKLogitsWarper(3)),
    "top-k, more than there are": (filters.TopK(99), theirs.TopKLogitsWarper(99)),
    "top-k, at least": (filters.TopK(1, least=3), theirs.TopKLogitsWarper(1, min_tokens_to_keep=3)),
    "top-p": (filters.TopP(0.6), theirs.TopPLogitsWarper(0.6)),
    "top-p, tiny": (filters.TopP(0.01), theirs.TopPLogitsWarper(0.01)),
    "top-p, at least": (filters.TopP(0.1, least=4), theirs.TopPLogitsWarper(0.1, min_tokens_to_keep=4)),
    "min-p": (filters.MinP(0.2), theirs.MinPLogitsWarper(0.2)),
    "min-p, at least": (filters.MinP(0.9, least=3), theirs.MinPLogitsWarper(0.9, min_tokens_to_keep=3)),
    "typical": (filters.Typical(0.5), theirs.TypicalLogitsWarper(0.5)),
    "typical, at least": (
        filters.Typical(0.1, least=3), theirs.TypicalLogitsWarper(0.1, min_tokens_to_keep=3),
    ),
    "repetition": (filters.Repetition(1.7), theirs.RepetitionPenaltyLogitsProcessor(1.7)),
    "encouragement": (filters.Repetition(0.5), theirs.RepetitionPenaltyLogitsProcessor(0.5)),
    "no token twice": (filters.NoRepeatNgram(1), theirs.NoRepeatNGramLogitsProcessor(1)),
    "no pair twice": (filters.NoRepeatNgram(2), theirs.NoRepeatNGramLogitsProcessor(2)),
    "no triple twice": (filters.NoRepeatNgram(3), theirs.NoRepeatNGramLogitsProcessor(3)),
    "n-gram longer than the text": (filters.NoRepeatNgram(12), theirs.NoRepeatNGramLogitsProcessor(12)),
    "banned": (
        filters.Banned(((3,), (1, 5), (6, 2, 9), (0, 4), (0, 0, 5), (1, 1, 2, 7), tuple(range(12)))),
        theirs.NoBadWordsLogitsProcessor(
            [[3], [1, 5], [6, 2, 9], [0, 4], [0, 0, 5], [1, 1, 2, 7], list(range(12))]
        ),
    ),
    "suppressed": (filters.Suppressed((2, 9)), theirs.SuppressTokensLogitsProcessor([2, 9])),
    "suppressed at the beginning": (
        filters.Suppressed((2, 9), at=0), theirs.SuppressTokensAtBeginLogitsProcessor([2, 9], START),
    ),
    "at least, new": (
        filters.AtLeast((2, 3), count=4), theirs.MinNewTokensLengthLogitsProcessor(START, 4, [2, 3]),
    ),
    "at least, in all": (filters.AtLeast((2,), total=6), theirs.MinLengthLogitsProcessor(6, 2)),
    "at least, both": (
        filters.AtLeast((2,), count=3, total=6),
        LogitsProcessorList([
            theirs.MinNewTokensLengthLogitsProcessor(START, 3, 2), theirs.MinLengthLogitsProcessor(6, 2),
        ]),
    ),
    "forced first": (filters.Forced((5,), at=0), theirs.ForcedBOSTokenLogitsProcessor(5)),
    "forced last": (filters.ForcedEnd((2,)), theirs.ForcedEOSTokenLogitsProcessor(START + 8, 2)),
    "allowed": (
        filters.Allowed(lambda ids: [ids[-1], 7, len(ids)]),
        theirs.PrefixConstrainedLogitsProcessor(lambda _, ids: [int(ids[-1]), 7, len(ids)], 1),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PAIRS)
@given(seed=st.integers(0, 10**6), new=st.integers(0, 7), spread=st.sampled_from([0.1, 3.0, 20.0]))
def test_every_filter_is_the_reference_s(name: str, seed: int, new: int, spread: float) -> None:
    assert_as_reference(name, seed, new, spread)


@pytest.mark.parametrize("new", range(8))
@pytest.mark.parametrize("name", PAIRS)
def test_every_filter_is_the_reference_s_after_any_number_of_tokens(name: str, new: int) -> None:
    """Rules about lengths are wrong by one first; examples drawn at random may miss that very length."""
    assert_as_reference(name, seed=1, new=new, spread=3.0)


def assert_as_reference(name: str, seed: int, new: int, spread: float) -> None:
    ours, reference = PAIRS[name]
    before, now = scores(seed=seed, spread=spread), tokens(new=new, seed=seed)
    if name == "forced first":  # theirs means the first token of a decoder, whose start is one token
        now.start = now.length - new
        if new:
            assert torch.equal(ours(before, now), before)
            return
        expected = reference(now.ids_RT[:, :1], before.clone())
    else:
        expected = reference(now.ids_RT, before.clone())
    kept = before.clone()
    got = ours(before, now)
    assert torch.equal(before, kept), "a filter must leave what it is given alone"
    assert torch.equal(got.isneginf(), expected.isneginf())
    torch.testing.assert_close(got, expected, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("name", PAIRS)
@given(
    seed=st.integers(0, 10**6), real=st.integers(1, START), filler=st.integers(0, 6), new=st.integers(0, 4)
)
def test_a_padded_row_is_filtered_as_it_is_alone(
    name: str, seed: int, real: int, filler: int, new: int
) -> None:
    """Whatever token fills the row up: no rule counts it, and none sees a sequence that begins in it."""
    ours, before = PAIRS[name][0], scores(1, seed=seed)
    ids = torch.randint(0, 3, (1, START + new), generator=torch.Generator().manual_seed(seed))
    ids[:, : START - real] = filler
    flags = torch.arange(START)[None] >= START - real
    limits = torch.tensor([8])
    padded, alone = (
        TokenBuffer(ids[:, :START], flags, limits),
        TokenBuffer(ids[:, START - real : START], flags[:, -real:], limits),
    )
    for now in (padded, alone):
        for token in ids[:, START:].unbind(1):
            now.append(token, torch.zeros(1))
    assert torch.equal(ours(before, padded), ours(before, alone))


def test_every_filter_was_compared() -> None:
    assert set(Filter.__subclasses__()) - {type(ours) for ours, _ in PAIRS.values()} == {filters.Frequency}


def test_frequency_and_presence_are_openai_s() -> None:
    """mu - count * frequency - (count > 0) * presence, over the answer alone."""
    now, before = tokens(), scores()
    after = filters.Frequency(each=0.3, once=0.7)(before, now)
    for r in range(4):
        for v in range(VOCAB):
            count = now.new_RN[r].tolist().count(v)
            assert float(after[r, v]) == pytest.approx(
                float(before[r, v]) - 0.3 * count - 0.7 * (count > 0), abs=1e-5
            )


def test_padding_was_not_said() -> None:
    """Token 0 fills the row up; neither penalties nor n-grams may take it for text."""
    ids, real = torch.tensor([[0, 0, 5, 6]]), torch.tensor([[False, False, True, True]])
    now = TokenBuffer(ids, real, torch.tensor([4]))
    before = scores(1)
    assert filters.Repetition(2.0)(before, now)[0, 0] == before[0, 0]
    assert not filters.NoRepeatNgram(1)(before, now)[0, 0].isneginf()
    assert filters.NoRepeatNgram(1)(before, now)[0, 5].isneginf()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: filters.TopP(1.2), "top_p is 1.2, expected a number above 0 and at most 1"),
        (lambda: filters.TopP(0.0), "top_p is 0.0"),
        (lambda: filters.MinP(-1.0), "min_p is -1.0"),
        (lambda: filters.TopK(0), "top_k is 0, expected 1 or more"),
        (lambda: filters.Temperature(0.0), "temperature is 0.0, expected a number above 0"),
        (lambda: filters.Repetition(0.0), "repetition_penalty is 0.0"),
        (lambda: filters.NoRepeatNgram(0), "no_repeat_ngram_size is 0"),
        (lambda: filters.Banned(((),)), "a banned sequence must have at least one token"),
    ],
)
def test_a_filter_that_makes_no_sense_is_refused(wrong: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        wrong()
