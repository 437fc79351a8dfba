"""Metrics: predictions and references in, scores out, by the libraries that published numbers come from."""

from __future__ import annotations

import math
import string
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import MissingError

# sacreBLEU's tokenizer by target language; its default scores a perfect Chinese translation 0.
BLEU_TOKENIZER = {"zh": "zh", "ja": "char", "ko": "char", "th": "char"}
ROUGE_KINDS = ("rouge1", "rouge2", "rougeL")
SPAN_PREFIXES = {"B-", "I-", "E-", "S-", "L-", "U-"}
Numbers = NDArray[np.float64]
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def text_scores(predictions: Sequence[str], references: Sequence[str], language: str) -> dict[str, float]:
    """Corpus BLEU and chrF, ROUGE-1, ROUGE-2, ROUGE-L and exact match, each of 100."""
    exact = sum(one.strip() == two.strip() for one, two in zip(predictions, references, strict=True))
    bleu, chrf = _sacre(language)
    return {
        "bleu": bleu.corpus_score(list(predictions), [list(references)]).score,
        "chrf": chrf.corpus_score(list(predictions), [list(references)]).score,
        **rouge(predictions, references, language),
        "exact": 100 * exact / len(references),
    }


def bleu_signature(predictions: Sequence[str], references: Sequence[str], language: str) -> str:
    """sacreBLEU's signature: the settings behind the BLEU score."""
    bleu, _ = _sacre(language)
    bleu.corpus_score(list(predictions), [list(references)])
    return str(bleu.get_signature())


def rouge(predictions: Sequence[str], references: Sequence[str], language: str) -> dict[str, float]:
    """The mean F-measure of shared words, of shared pairs of words, and of the longest common subsequence."""
    try:
        from rouge_score.rouge_scorer import RougeScorer
    except ImportError:
        raise MissingError("rouge-score", "ROUGE") from None
    by_character = language in BLEU_TOKENIZER  # its own tokenizer drops everything that is not a-z
    scorer = RougeScorer(list(ROUGE_KINDS), tokenizer=_Characters() if by_character else None)
    scores = [scorer.score(two, one) for one, two in zip(predictions, references, strict=True)]
    return {
        kind: 100 * float(sum(score[kind].fmeasure for score in scores)) / len(scores) for kind in ROUGE_KINDS
    }


def sentence_chrf(prediction: str, reference: str) -> float:
    """chrF of one text, of 100."""
    _, chrf = _sacre("en")  # chrF has no tokenizer
    return float(chrf.sentence_score(prediction, [reference]).score)


def label_scores(predictions: Sequence[Hashable], references: Sequence[Hashable]) -> dict[str, float]:
    """Accuracy, and F1 averaged over the classes that occur."""
    right = sum(one == two for one, two in zip(predictions, references, strict=True))
    classes = set(references)
    f1 = sum(_f1(predictions, references, kind) for kind in classes) / len(classes)
    return {"accuracy": 100 * right / len(references), "f1": 100 * f1}


def multi_label_scores(
    predictions: Sequence[Sequence[int]], references: Sequence[Sequence[int]]
) -> dict[str, float]:
    """F1 over all decisions (micro), its mean over the classes (macro), and texts with exactly their labels.

    Rows hold 0 or 1 for every class. A class that is neither predicted nor there counts 0, as in
    scikit-learn.
    """
    columns = [
        (list(one), list(two))
        for one, two in zip(zip(*predictions, strict=True), zip(*references, strict=True), strict=True)
    ]
    flat = [value for row in predictions for value in row], [value for row in references for value in row]
    macro = sum(_f1(*column, 1) for column in columns) / len(columns)
    exact = sum(list(one) == list(two) for one, two in zip(predictions, references, strict=True))
    return {"f1": 100 * _f1(*flat, 1), "macro_f1": 100 * macro, "exact": 100 * exact / len(references)}


def correlation_scores(predictions: Sequence[float], references: Sequence[float]) -> dict[str, float]:
    """Spearman's and Pearson's correlation, of 100, and the mean squared error."""
    one, two = np.asarray(predictions, dtype=np.float64), np.asarray(references, dtype=np.float64)
    return {
        "spearman": 100 * _correlation(_ranks(one), _ranks(two)),
        "pearson": 100 * _correlation(one, two),
        "mse": float(((one - two) ** 2).mean()),
    }


def _correlation(one: Numbers, two: Numbers) -> float:
    """0 if one side is constant: nothing can be said about its order."""
    one, two = one - one.mean(), two - two.mean()
    scale = math.sqrt(float((one @ one) * (two @ two)))
    return float(one @ two) / scale if scale > 0 else 0.0


def _ranks(values: Numbers) -> Numbers:
    """From 1; equal values share the mean of their ranks."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last: Numbers = np.cumsum(counts).astype(np.float64)
    ranks: Numbers = (last - (counts - 1) / 2)[inverse]
    return ranks


def tag_scores(predictions: Sequence[Sequence[str]], references: Sequence[Sequence[str]]) -> dict[str, float]:
    """Entity F1 as seqeval counts it: a span and its kind must both be right.

    Tags that mark no spans (parts of speech, numbers) have accuracy and the mean F1 of their classes.
    """
    if not _mark_spans(references):
        flat = [[tag for tags in side for tag in tags] for side in (predictions, references)]
        names = {name: i for i, name in enumerate(sorted({*flat[0], *flat[1]}))}
        return label_scores(*([names[tag] for tag in side] for side in flat))
    try:
        from seqeval.metrics import f1_score, precision_score, recall_score
    except ImportError:
        raise MissingError("seqeval", "entity F1") from None
    sides = [list(map(list, references)), list(map(list, predictions))]
    named = {"f1": f1_score, "precision": precision_score, "recall": recall_score}
    return {name: 100 * float(score(*sides, zero_division=0)) for name, score in named.items()}


def _mark_spans(references: Sequence[Sequence[str]]) -> bool:
    """Whether tags begin as those of entities do: B-PER, I-PER, ... and O."""
    return all(tag == "O" or tag[:2] in SPAN_PREFIXES for tags in references for tag in tags)


def entity_scores(
    predictions: Sequence[Sequence[str]], references: Sequence[Sequence[str]]
) -> dict[str, tuple[float, float, float, int]]:
    """Precision, recall and F1 of each kind of entity, of 100, and how many there are."""
    try:
        from seqeval.metrics import classification_report
    except ImportError:
        raise MissingError("seqeval", "entity F1") from None
    sides = list(map(list, references)), list(map(list, predictions))
    if not _mark_spans(references) or not any(tag != "O" for side in sides for tags in side for tag in tags):
        return {}
    report = classification_report(*sides, output_dict=True, zero_division=0)
    kinds = {name: row for name, row in report.items() if not name.endswith(" avg")}
    keys = ("precision", "recall", "f1-score")
    return {
        name: (*(100 * float(row[key]) for key in keys), int(row["support"]))  # type: ignore[misc]
        for name, row in kinds.items()
    }


def answer_scores(predictions: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, float]:
    """Exact match and word F1 against the best of the accepted answers (Rajpurkar 2016)."""
    exact = [
        max(float(_plain(one) == _plain(two)) for two in many)
        for one, many in zip(predictions, references, strict=True)
    ]
    overlap = [
        max(_overlap(one, two) for two in many) for one, many in zip(predictions, references, strict=True)
    ]
    return {"exact": 100 * sum(exact) / len(exact), "f1": 100 * sum(overlap) / len(overlap)}


def _f1(predictions: Sequence[Hashable], references: Sequence[Hashable], kind: Hashable) -> float:
    both = sum(one == two == kind for one, two in zip(predictions, references, strict=True))
    total = Counter(predictions)[kind] + Counter(references)[kind]
    return 2 * both / total if total else 0.0


def _plain(text: str) -> str:
    """Lower case, without punctuation and articles, one space between words.

    ASCII marks vanish, as in SQuAD's script: "U.S." is "us". It keeps all others; here they part words, as
    Chinese ones do.
    """
    ascii_free = text.lower().translate(_NO_PUNCTUATION)
    kept = "".join(c if c.isalnum() or c.isspace() else " " for c in ascii_free)
    return " ".join(word for word in kept.split() if word not in {"a", "an", "the"})


def _overlap(one: str, two: str) -> float:
    predictions, references = _words(one), _words(two)
    shared = sum((Counter(predictions) & Counter(references)).values())
    if not predictions or not references:
        return float(predictions == references)
    return 2 * shared / (len(predictions) + len(references))


def _words(text: str) -> list[str]:
    """Words; a Chinese character is a word of its own."""
    spaced = "".join(f" {c} " if "\u2e80" <= c <= "\u9fff" else c for c in _plain(text))
    return spaced.split()


def _sacre(language: str) -> tuple[Any, Any]:
    try:
        from sacrebleu.metrics.bleu import BLEU
        from sacrebleu.metrics.chrf import CHRF
    except ImportError:
        raise MissingError("sacrebleu", "BLEU and chrF") from None
    return BLEU(tokenize=BLEU_TOKENIZER.get(language, "13a")), CHRF()


class _Characters:
    def tokenize(self, text: str) -> list[str]:
        return [c for c in text if not c.isspace()]
