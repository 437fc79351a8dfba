"""Small tasks of every kind over the same forty texts, each with a tiny model for it."""

from dataclasses import replace
from itertools import pairwise

from zoo import VOCAB, pair, single

from clearhead import nn as cn
from clearhead.data.next_sentence import SentencePair
from clearhead.data.packing import IGNORE_INDEX
from clearhead.tasks.causal import CausalLM
from clearhead.tasks.classification import (
    LabelledExample,
    TaggedExample,
    TextClassification,
    TokenClassification,
)
from clearhead.tasks.masked import BertPretraining, MaskedLM, TokenMasking
from clearhead.tasks.question_answering import QAExample, QuestionAnswering
from clearhead.tasks.text_to_text import SpecialIds, TextPair, TextToText

TEXTS = [[5 + (i * j) % 20 for j in range(1, 3 + i % 7)] for i in range(1, 40)]
IDS = SpecialIds(pad=0, start=1, end=2)


def causal(**more: object) -> CausalLM:
    return CausalLM(
        {"train": TEXTS, "valid": TEXTS[:9]}, **{"length": 12, "rows": 3, "pad": 0, "seed": 1} | more
    )


def translate(**more: object) -> TextToText:
    pairs = [TextPair([*text, 2], text[::-1]) for text in TEXTS]
    return TextToText({"train": pairs, "valid": pairs[:9]}, **{"ids": IDS, "tokens": 60, "seed": 1} | more)


HIDE = TokenMasking(mask=4, vocab=VOCAB, special=frozenset(range(5)), seed=1)


def masked(hide: TokenMasking = HIDE, **more: object) -> MaskedLM:
    return MaskedLM({"train": TEXTS, "valid": TEXTS[:9]}, hide=hide, pad=0, tokens=60, seed=1, **more)


def pretrain(**more: object) -> BertPretraining:
    rows = [SentencePair(a, b, len(a) % 2 == 0) for a, b in pairwise(TEXTS)]
    ids = {"pad": 0, "start": 1, "end": 2}
    return BertPretraining({"train": rows, "valid": rows[:9]}, hide=HIDE, tokens=60, seed=1, **ids, **more)


def classify(**more: object) -> TextClassification:
    rows = [LabelledExample(text, len(text) % 3) for text in TEXTS]
    return TextClassification({"train": rows, "valid": rows[:9]}, pad=0, tokens=60, seed=1, **more)


def tag(**more: object) -> TokenClassification:
    rows = [TaggedExample(text, [IGNORE_INDEX, *(t % 3 for t in text[1:])]) for text in TEXTS]
    names = ["O", "B-A", "I-A"]
    return TokenClassification(
        {"train": rows, "valid": rows[:9]}, names=names, pad=0, tokens=60, seed=1, **more
    )


def answer(**more: object) -> QuestionAnswering:
    """Question and context are the two halves of a text; the answer is the last token."""
    rows = [
        QAExample(text, None, [(i, i + 1) if 2 * i >= len(text) else None for i in range(len(text))],
              "x" * len(text), ["x"], len(text) - 1, len(text) - 1)
        for text in TEXTS
    ]  # fmt: skip
    return QuestionAnswering({"train": rows, "valid": rows[:9]}, pad=0, tokens=60, seed=1, **more)


MODELS = {
    "causal": (causal, single(causal=True)),
    "translate": (translate, pair()),
    "masked": (masked, single()),
    "pretrain": (pretrain, replace(single(embed=cn.Tokens(vocab=VOCAB, types=2)), second=cn.Labels(count=2))),
    "classify": (classify, single(cn.Labels(count=3))),
    "tag": (tag, single(cn.Tags(count=3))),
    "answer": (answer, single(cn.Span())),
}
