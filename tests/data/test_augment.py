"""Augmentation: never an empty sentence, and the same change for the same (seed, row, epoch)."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.data import Augment, back_translate, read_lexicon
from clearhead.data.augment import is_segmented
from clearhead.errors import ClearheadError

LEXICON = {"old": ["ancient", "aged"], "苹果": ["果子"], "new": []}
WORDS = st.lists(
    st.sampled_from(["we", "Old", "apples", "旧的苹果", "今天", ",", "a"]), min_size=1, max_size=12
)
RATES = st.sampled_from([0.0, 0.1, 0.5, 1.0])


@given(
    words=WORDS,
    seed=st.integers(),
    row=st.integers(0, 99),
    epoch=st.integers(0, 9),
    rates=st.tuples(*[RATES] * 4),
)
def test_never_empty_and_the_same_every_time(words, seed, row, epoch, rates) -> None:
    delete, synonyms, swap, letters = rates
    augment = Augment(delete=delete, synonyms=synonyms, swap=swap, letters=letters, lexicon=LEXICON)
    text = " ".join(words)
    changed = augment(text, seed=seed, row=row, epoch=epoch)
    assert changed.strip()
    assert changed == augment(text, seed=seed, row=row, epoch=epoch)
    if not any(rates):
        assert changed == text


def test_rows_and_epochs_are_changed_differently() -> None:
    augment, text = Augment(delete=0.3), "one two three four five six seven eight nine ten"
    assert len({augment(text, seed=0, row=r, epoch=e) for r in range(4) for e in range(4)}) > 12


def test_deleting_takes_words_and_leaves_the_rest_in_order() -> None:
    text = "one two three four five six"
    left = Augment(delete=0.4)(text, seed=1, row=0, epoch=0).split()
    assert 0 < len(left) < 6 and [word for word in text.split() if word in left] == left
    assert len(Augment(delete=1.0)("我们找到苹果", seed=0, row=0, epoch=0)) == 1


def test_synonyms_are_whole_words_in_their_case_and_chinese_words_anywhere() -> None:
    augment = Augment(synonyms=1.0, lexicon=LEXICON)
    changed = augment("Old gold is old, new too", seed=0, row=0, epoch=0)
    first, gold, rest = changed.split(" ", 2)
    assert first in ("Ancient", "Aged") and gold == "gold" and "old" not in rest and "new too" in rest
    assert augment("我们找到苹果树", seed=0, row=0, epoch=0) == "我们找到果子树"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("我 非常 喜歡 萬聖節", True),
        ("我们\u3000喜欢 Python 编程 。", True),
        ("we find old apples", True),
        ("我们找到苹果", False),
        ("我喜欢用 Python 写程序", False),  # the spaces belong to the Latin word
        ("今天的天气真的很好 我们一起去公园", False),  # clauses
        ("床前明月光\n疑是地上霜", False),  # lines
    ],
)
def test_spaces_between_chinese_words_are_seen(text: str, words: bool) -> None:
    assert is_segmented(text) == words
    swapped = Augment(swap=1.0)(text, seed=0, row=0, epoch=0)
    assert (set(swapped.split()) == set(text.split())) == words and swapped != text


def test_segmented_text_is_changed_by_words() -> None:
    text = "我 喜欢 苹果 苹果树"
    assert Augment(swap=1.0)(text, seed=0, row=0, epoch=0) == "喜欢 我 苹果树 苹果"
    assert Augment(synonyms=1.0, lexicon=LEXICON)(text, seed=0, row=0, epoch=0) == "我 喜欢 果子 苹果树"
    # What is left after a deletion may be one word; it is still a word.
    for row in range(30):
        left = Augment(delete=0.9, swap=1.0)("喜欢 苹果", seed=0, row=row, epoch=0)
        assert set(left.split()) <= {"喜欢", "苹果"}
    typed = {Augment(letters=1.0)("苹果 我", seed=0, row=row, epoch=0) for row in range(30)}
    assert typed == {"果苹 我", "果 我", "苹苹果 我"}


def test_ids_are_deleted_and_swapped_but_not_the_special_ones() -> None:
    ids = [1, 5, 6, 7, 8, 2, 0, 0]
    more = {"seed": 0, "row": 0, "epoch": 0, "special": (0, 1, 2)}
    assert Augment(swap=1.0).ids(ids, **more) == [1, 6, 5, 8, 7, 2, 0, 0]
    left = Augment(delete=1.0).ids(ids, **more)
    assert len(left) == 5 and [i for i in left if i < 3] == [1, 2, 0, 0]
    assert Augment().ids(ids, **more) == ids and Augment(delete=1.0).ids([], **more) == []


def test_swapping_and_mistyping_keep_the_letters() -> None:
    text = "we find old apples"
    swapped = Augment(swap=1.0)(text, seed=0, row=0, epoch=0)
    assert swapped == "find we apples old"
    wrong = Augment(letters=1.0)(text, seed=0, row=0, epoch=0)
    assert wrong != text and len(wrong.split()) == 4


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x.json", json.dumps({"old": ["ancient", "aged"], "bad": "poor"})),
        ("x.tsv", "old\tancient\taged\nbad\tpoor\n"),
        ("x.tsv", "old\tancient, aged\n\nbad\tpoor\n"),
    ],
)
def test_lexicons(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert read_lexicon(tmp_path / name) == {"old": ["ancient", "aged"], "bad": ["poor"]}


@pytest.mark.parametrize(
    ("name", "text"), [("x.json", "[1]"), ("x.json", "{"), ("x.json", '{"a": 3}'), ("x.tsv", "one\ntwo\n")]
)
def test_bad_lexicons_and_rates_are_one_line(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ClearheadError, match="is not a lexicon; expected") as caught:
        read_lexicon(tmp_path / name)
    assert "\n" not in str(caught.value)
    with pytest.raises(ClearheadError, match="delete is 2; expected a probability"):
        Augment(delete=2)
    with pytest.raises(ClearheadError, match="need a lexicon"):
        Augment(synonyms=0.1)


def test_back_translation_is_a_door() -> None:
    pairs = back_translate(["是", "不", "x"], lambda texts: ["yes", "no", " "])
    assert pairs == [{"src": "yes", "tgt": "是"}, {"src": "no", "tgt": "不"}]
    with pytest.raises(ClearheadError, match="gave 1 texts for 2"):
        back_translate(["a", "b"], lambda texts: ["x"])
