"""Corruption: what BERT, T5 and BART do to a text, exactly as told, and from the given generator only."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from clearhead.data.corrupt import IGNORE_INDEX, NOISES, drop_spans, mask_words

texts = st.lists(st.integers(5, 99), min_size=1, max_size=60)
SENTINELS = range(199, 99, -1)


def test_masking_shares() -> None:
    ids, hidden, changed, asked = list(range(10, 90)) * 50, 0, 0, 0
    masked = mask_words([1, *ids, 2], Random(0), mask=4, vocab=100, special=frozenset(range(5)))
    for was, now, label in zip([1, *ids, 2], masked.ids, masked.labels, strict=True):
        if label == IGNORE_INDEX:
            assert now == was
            continue
        assert label == was and now not in (0, 1, 2, 3)
        asked, hidden, changed = asked + 1, hidden + (now == 4), changed + (now not in (4, was))
    assert asked == round(0.15 * len(ids))
    assert abs(hidden / asked - 0.8) < 0.05 and abs(changed / asked - 0.1) < 0.04
    assert masked.labels[0] == masked.labels[-1] == IGNORE_INDEX  # special tokens are never asked for


@given(text=texts, seed=st.integers(0, 99))
def test_masking_always_asks_something(text: list[int], seed: int) -> None:
    masked = mask_words(text, Random(seed), mask=4, vocab=100, special=frozenset(range(5)))
    assert any(label != IGNORE_INDEX for label in masked.labels) and len(masked.ids) == len(text)


@given(text=st.lists(st.integers(200, 299), min_size=1, max_size=60), seed=st.integers(0, 99))
def test_spans_put_back_give_the_text(text: list[int], seed: int) -> None:
    source, target = drop_spans(text, Random(seed), sentinels=SENTINELS)
    spans: dict[int, list[int]] = {}
    last: list[int] = []
    for token in target:
        if token in SENTINELS:
            last = spans.setdefault(token, [])
        else:
            last.append(token)
    rebuilt = [t for token in source for t in (spans[token] if token in SENTINELS else [token])]
    assert rebuilt == text
    assert [t for t in source if t in SENTINELS] == [t for t in target if t in SENTINELS][:-1]


def test_spans_are_of_the_share_and_size_told() -> None:
    source, target = drop_spans(list(range(1000, 2000)), Random(1), sentinels=SENTINELS)
    dropped = sum(token >= 1000 for token in target)
    assert dropped == 150 and sum(token < 1000 for token in source) == 50  # three tokens a span


@given(text=texts, seed=st.integers(0, 99))
def test_noises_keep_what_they_should(text: list[int], seed: int) -> None:
    made = {name: noise(text, Random(seed), 4, 0.3) for name, noise in NOISES.items()}
    assert len(made["mask"]) == len(text)
    assert all(a in (b, 4) for a, b in zip(made["mask"], text, strict=True))
    assert made["delete"] and _inside(made["delete"], text)
    assert _inside([token for token in made["infill"] if token != 4], text)
    assert sorted(made["permute"]) == sorted(made["rotate"]) == sorted(text)
    doubled = text + text
    assert any(doubled[i : i + len(text)] == made["rotate"] for i in range(len(text)))
    assert made == {name: noise(text, Random(seed), 4, 0.3) for name, noise in NOISES.items()}


def _inside(part: list[int], whole: list[int]) -> bool:
    rest = iter(whole)
    return all(token in rest for token in part)
