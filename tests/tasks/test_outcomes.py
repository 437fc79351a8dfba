"""Outcomes example by example: they add up to the scores, and are what libraries of others compute."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from second_device import second_device
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support
from small_tasks import HIDE, IDS, MODELS, TEXTS, causal, classify
from zoo import pair, single

from clearhead import nn as cn
from clearhead.tasks import (
    ChoiceExample,
    MultiLabelClassification,
    MultiLabelExample,
    MultipleChoice,
    Regression,
    ScoredExample,
    SimilarityExample,
    TextClassification,
    TextPair,
    TextSimilarity,
    TextToText,
)
from clearhead.tasks.metrics import rouge, sentence_chrf, text_scores

NAMES = ["red", "green", "blue"]


def split(rows: list[Any]) -> dict[str, list[Any]]:
    return {"train": rows, "valid": rows[:9]}


def several() -> MultiLabelClassification:
    rows = [MultiLabelExample(text, [i for i in range(3) if text[0] >> i & 1]) for text in TEXTS]
    return MultiLabelClassification(split(rows), names=NAMES, pad=0, tokens=60)


def regress() -> Regression:
    return Regression(split([ScoredExample(text, len(text) / 3) for text in TEXTS]), pad=0, tokens=60)


def choose() -> MultipleChoice:
    rows = [ChoiceExample([text, text[::-1], text[:2]][: 2 + i % 2], i % 2) for i, text in enumerate(TEXTS)]
    return MultipleChoice(split(rows), pad=0, tokens=90)


def similar() -> TextSimilarity:
    rows = [SimilarityExample([text, text[::-1]], (i % 5) / 4) for i, text in enumerate(TEXTS)]
    return TextSimilarity(split(rows), pad=0, tokens=90)


def decoding() -> TextToText:
    """A decoder that gives the source back, with its first token twice."""

    def decode(model: Any, source: torch.Tensor, mask: torch.Tensor, limit: int) -> list[list[int]]:
        kept = [row[row_mask.bool()].tolist() for row, row_mask in zip(source, mask, strict=True)]
        return [[ids[0], *ids] for ids in kept]

    pairs = [TextPair(text, text[::-1], " ".join(map(str, text[::-1]))) for text in TEXTS]
    return TextToText(
        split(pairs), ids=IDS, tokens=60, text=lambda ids: " ".join(map(str, ids)), decode=decode
    )


Case = tuple[Callable[..., Any], cn.Model]
CASES: dict[str, Case] = {
    **{name: MODELS[name] for name in ("translate", "masked", "pretrain", "classify", "tag", "answer")},
    "several": (several, single(cn.Labels(count=3))),
    "regress": (regress, single(cn.Labels(count=1))),
    "choose": (choose, single(cn.Labels(count=1))),
    "similar": (similar, single()),
    "decoding": (decoding, pair()),
}


@pytest.mark.parametrize("name", CASES)
def test_outcomes_add_up_to_the_scores(name: str) -> None:
    make, spec = CASES[name]
    task, model = make(), spec.build().eval()
    evaluation = task.evaluate(model, "train")
    wanted = task.score(model, "train")
    assert evaluation.scores.keys() == wanted.keys()
    for metric, value in wanted.items():
        assert evaluation.scores[metric] == pytest.approx(value, rel=1e-5, abs=1e-5), metric
    if name == "pretrain":  # two losses in one: no outcomes
        return
    assert [o.example for o in evaluation.outcomes] == list(range(len(task.splits["train"])))
    losses = sum(o.loss for o in evaluation.outcomes) / sum(o.targets for o in evaluation.outcomes)
    assert losses == pytest.approx(wanted["loss"], rel=1e-5)
    worst = evaluation.worst(3)
    errors = sorted((o.error for o in evaluation.outcomes), reverse=True)
    assert [o.error for o in worst] == errors[:3]


@pytest.mark.parametrize("name", [*(name for name in CASES if name != "decoding"), "causal"])
def test_outcomes_are_the_same_on_a_second_device(name: str) -> None:
    make, spec = MODELS[name] if name == "causal" else CASES[name]
    task, model = make(), spec.build().eval()
    here = task.evaluate(model, "valid")
    with second_device() as device:
        there = task.evaluate(model.to(device), "valid")
    assert there.scores == pytest.approx(here.scores, rel=1e-5)
    for one, two in zip(here.outcomes, there.outcomes, strict=True):
        assert one.loss == pytest.approx(two.loss, rel=1e-4)
        if name in ("regress", "similar"):
            assert float(one.prediction) == pytest.approx(float(two.prediction), abs=1e-5)
        else:
            assert one.prediction == two.prediction


def test_confusion_and_classes_are_those_of_scikit_learn() -> None:
    rows = classify().splits["train"]
    task = TextClassification({"train": rows}, names=NAMES, pad=0, tokens=60)
    model = single(cn.Labels(count=3)).build(seed=3).eval()
    evaluation = task.evaluate(model, "train")
    with torch.no_grad():
        guesses = [NAMES[int(model(torch.tensor([row.ids])).argmax())] for row in rows]
    truths = [NAMES[row.label] for row in rows]
    assert [o.prediction for o in evaluation.outcomes] == guesses
    assert np.array_equal(evaluation.confusion(), confusion_matrix(truths, guesses, labels=NAMES))
    theirs = precision_recall_fscore_support(truths, guesses, labels=NAMES, zero_division=0)
    for i, name in enumerate(NAMES):
        ours = evaluation.per_class[name]
        assert (ours.precision, ours.recall, ours.f1, ours.support) == pytest.approx(
            (100 * theirs[0][i], 100 * theirs[1][i], 100 * theirs[2][i], theirs[3][i])
        )


def test_several_labels_have_classes_but_no_confusion_matrix() -> None:
    task, model = several(), single(cn.Labels(count=3)).build(seed=2).eval()
    evaluation = task.evaluate(model, "train")
    truths = [[int(i in row.labels) for i in range(3)] for row in task.splits["train"]]
    with torch.no_grad():
        guesses = [(model(torch.tensor([row.ids]))[0] > 0).int().tolist() for row in task.splits["train"]]
    theirs = precision_recall_fscore_support(truths, guesses, zero_division=0)
    for i, name in enumerate(NAMES):
        if name in evaluation.per_class:
            assert evaluation.per_class[name].f1 == pytest.approx(100 * theirs[2][i])
    assert evaluation.confusion() is None
    assert {o.reference for o in evaluation.outcomes} >= {"(none)", "red"}


def test_each_text_has_the_loss_it_has_alone() -> None:
    """Texts longer than a row are cut at its end; nothing else is, whatever else shares a batch."""
    task, model = causal(length=5), single(causal=True).build(seed=1).eval()
    evaluation = task.evaluate(model, "train")
    by_example = {o.example: o for o in evaluation.outcomes}
    for i, text in enumerate(TEXTS):
        total = 0.0
        for at in range(0, len(text), 5):
            piece, labels = text[at : at + 5], text[at + 1 : at + 6]
            with torch.no_grad():
                logits = model(torch.tensor([piece]))[0, : len(labels)]
            if labels:
                total += float(F.cross_entropy(logits, torch.tensor(labels), reduction="sum"))
        assert by_example[i].loss == pytest.approx(total, rel=1e-4)
        assert by_example[i].targets == len(text) - 1
    assert evaluation.scores["perplexity"] == pytest.approx(math.exp(evaluation.scores["loss"]))


def test_only_completions_count() -> None:
    flags = {
        name: [[0, 0, *[1] * (len(text) - 2)] for text in texts] for name, texts in causal().splits.items()
    }
    evaluation = causal(trained=flags).evaluate(single(causal=True).build().eval(), "valid")
    assert [o.targets for o in evaluation.outcomes] == [len(t) - 2 for t in TEXTS[:9] if len(t) > 2]


def test_the_masks_of_an_evaluation_are_always_the_same() -> None:
    make, spec = MODELS["masked"]
    model = spec.build().eval()
    one, two = (make(HIDE).evaluate(model, "valid") for _ in range(2))
    assert one.scores == two.scores and one.outcomes == two.outcomes


def test_rouge_is_that_of_rouge_score() -> None:
    from rouge_score.rouge_scorer import RougeScorer

    predictions = ["the cat sat on the mat", "a dog", "nothing in common"]
    references = ["on a mat lay the cat", "a dog ran", "quite different words"]
    scorer = RougeScorer(["rouge1", "rouge2", "rougeL"])
    ours = rouge(predictions, references, "en")
    for kind in ("rouge1", "rouge2", "rougeL"):
        each = [
            scorer.score(two, one)[kind].fmeasure for one, two in zip(predictions, references, strict=True)
        ]
        assert ours[kind] == pytest.approx(100 * sum(each) / 3)
    assert ours["rouge1"] > ours["rougeL"] > ours["rouge2"] > 0
    scores = text_scores(["我们找到苹果"], ["我们找到旧苹果"], "zh")
    assert 0 < scores["rouge2"] < scores["rouge1"] < 100


def test_sentence_chrf_is_that_of_sacrebleu() -> None:
    from sacrebleu import sentence_chrf as theirs

    assert sentence_chrf("the cat sat", "the cat lay") == pytest.approx(
        theirs("the cat sat", ["the cat lay"]).score
    )
