"""Metrics: the figures people compare with, for Chinese as well."""

import math

import pytest
import sklearn.metrics

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
