"""Metrics: the figures people compare with, for Chinese as well."""

import math
import re
import string
from collections import Counter

import pytest
import sklearn.metrics
from hypothesis import example, given
from hypothesis import strategies as st

from clearhead.tasks.metrics import answer_scores, bleu_signature, label_scores, tag_scores, text_scores

CHINESE = ["今天我们在公园里找到旧的苹果", "她想要新的书"]


def test_a_perfect_chinese_translation_scores_100() -> None:
    scores = text_scores(CHINESE, CHINESE, "zh")
    for name in ("bleu", "chrf", "rougeL", "exact"):
        assert math.isclose(scores[name], 100, rel_tol=1e-6), name
    assert text_scores(CHINESE, CHINESE, "en")["bleu"] < 100  # the default tokenizer sees one word a sentence
    assert "tok:zh" in bleu_signature(CHINESE, CHINESE, "zh")
    assert "tok:13a" in bleu_signature(["a b c d"], ["a b c d"], "en")


def test_a_wrong_translation_scores_less() -> None:
    scores = text_scores(["the cat sat on a mat", "x"], ["the cat sat on the mat", "y"], "en")
    assert 0 < scores["bleu"] < 100 and scores["exact"] == 0 and 0 < scores["rougeL"] < 100


def test_labels_against_scikit_learn() -> None:
    said, wanted = [0, 1, 1, 2, 0, 0], [0, 1, 2, 2, 1, 0]
    scores = label_scores(said, wanted)
    assert math.isclose(scores["accuracy"], 100 * sklearn.metrics.accuracy_score(wanted, said))
    assert math.isclose(scores["f1"], 100 * sklearn.metrics.f1_score(wanted, said, average="macro"))


def test_an_entity_must_be_right_as_a_whole() -> None:
    wanted = [["B-PER", "I-PER", "O", "B-LOC"]]
    assert tag_scores(wanted, wanted)["f1"] == 100
    assert tag_scores([["B-PER", "O", "O", "B-LOC"]], wanted)["f1"] == 50
    assert tag_scores([["O", "O", "O", "O"]], wanted)["f1"] == 0


@pytest.mark.parametrize(
    ("said", "wanted", "exact", "f1"),
    [
        (
            "the Broncos",
            ["Denver Broncos", "Broncos"],
            100,
            100,
        ),  # articles do not count; the best answer does
        ("Denver", ["Denver Broncos"], 0, 200 / 3),
        ("", ["Denver"], 0, 0),
        ("北京大学", ["北京"], 0, 200 / 3),
    ],
)
def test_answers_as_squad_counts_them(said: str, wanted: list[str], exact: float, f1: float) -> None:
    scores = answer_scores([said], [wanted])
    assert scores["exact"] == exact and math.isclose(scores["f1"], f1)


# --- the official script of SQuAD 2.0 (evaluate-v2.0.py), its three functions as they stand there ---


def normalize_answer(s: str) -> str:
    def remove_articles(text: str) -> str:
        return re.sub(re.compile(r"\b(a|an|the)\b", re.UNICODE), " ", text)

    def white_space_fix(text: str) -> str:
        return " ".join(text.split())

    def remove_punc(text: str) -> str:
        exclude = set(string.punctuation)
        return "".join(ch for ch in text if ch not in exclude)

    return white_space_fix(remove_articles(remove_punc(s.lower())))


def compute_exact(a_gold: str, a_pred: str) -> int:
    return int(normalize_answer(a_gold) == normalize_answer(a_pred))


def compute_f1(a_gold: str, a_pred: str) -> float:
    gold_toks, pred_toks = normalize_answer(a_gold).split(), normalize_answer(a_pred).split()
    num_same = sum((Counter(gold_toks) & Counter(pred_toks)).values())
    if len(gold_toks) == 0 or len(pred_toks) == 0:
        return int(gold_toks == pred_toks)
    if num_same == 0:
        return 0
    precision, recall = num_same / len(pred_toks), num_same / len(gold_toks)
    return (2 * precision * recall) / (precision + recall)


# Words that are nearly articles, marks inside and around words, and plain characters.
ENGLISH = st.lists(
    st.sampled_from(
        ["a", "an", "the", "An", "THE", "ant", "than", "cat", "U.S.", "well-known", "'s", ",", "7"]
    )
    | st.text(string.ascii_letters + string.digits + string.punctuation + " ", max_size=4),
    max_size=5,
).map(" ".join)


@given(said=ENGLISH, wanted=st.lists(ENGLISH, min_size=1, max_size=3))
@example(said="an apple", wanted=["apple"])
@example(said="a cat", wanted=["the cat"])
@example(said="the U.S. army", wanted=["US army"])
@example(said="well-known", wanted=["well known"])
@example(said="the", wanted=["an"])
def test_english_answers_are_scored_as_the_squad_script_scores_them(said: str, wanted: list[str]) -> None:
    scores = answer_scores([said], [wanted])
    assert scores["exact"] == 100 * max(compute_exact(one, said) for one in wanted)
    assert math.isclose(scores["f1"], 100 * max(compute_f1(one, said) for one in wanted), abs_tol=1e-9)
