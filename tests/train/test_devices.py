"""Training elsewhere than on the CPU, shown on a second device that mixes with nothing by itself."""

import dataclasses
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from second_device import SECOND, calls, second_device
from tolerance import assert_close
from torch import Tensor
from zoo import VOCAB, pair, single

import clearhead
from clearhead import nn as cn
from clearhead.data.next_sentence import SentencePair
from clearhead.data.packing import IGNORE_INDEX
from clearhead.generate import EndTokens, Prompt, Sample, generate
from clearhead.tasks import (
    BertPretraining,
    CausalLM,
    ChoiceExample,
    LabelledExample,
    MaskedLM,
    MultiLabelClassification,
    MultiLabelExample,
    MultipleChoice,
    QAExample,
    QuestionAnswering,
    Regression,
    ScoredExample,
    SimilarityExample,
    SpecialIds,
    TaggedExample,
    Task,
    TextClassification,
    TextPair,
    TextSimilarity,
    TextToText,
    TokenClassification,
    TokenMasking,
)
from clearhead.train import Trainer, Training, optim, read_log, setup, without_timing

TEXTS = [[5 + (i * j) % 20 for j in range(1, 3 + i % 7)] for i in range(1, 40)]
COMMON = {"pad": 0, "tokens": 60, "seed": 1}


def split(rows: Sequence[Any]) -> dict[str, Sequence[Any]]:
    return {"train": rows, "valid": rows[:9]}


def continue_text(model: cn.TransformerModel, ids: list[int]) -> str:
    run = generate(model, Prompt(torch.tensor([ids[:3]])), strategy=Sample(), limit=5)
    return str(run.finish()[0][0].text_ids)


def decode(model: cn.TransformerModel, source: Tensor, mask: Tensor, limit: int) -> list[list[int]]:
    start = source.new_full((len(source), 1), 1)
    run = generate(model, Prompt(source, mask, start), stops=(EndTokens((2,)),), limit=min(limit, 12))
    return [answers[0].text_ids for answers in run.finish()]


def causal() -> CausalLM:
    return CausalLM(split(TEXTS), length=12, rows=3, pad=0, seed=1, continue_text=continue_text)


def translate() -> TextToText:
    pairs = [TextPair(text, text[::-1]) for text in TEXTS]
    spell: Callable[[Sequence[int]], str] = lambda ids: " ".join(map(str, ids))  # noqa: E731
    ids = SpecialIds(pad=0, start=1, end=2)
    return TextToText(split(pairs), ids=ids, tokens=60, seed=1, text=spell, decode=decode, smoothing=0.1)


HIDE = TokenMasking(mask=4, vocab=VOCAB, special=frozenset(range(5)), seed=1)


def pretrain() -> BertPretraining:
    rows = [SentencePair(a, b, len(a) % 2 == 0) for a, b in pairwise(TEXTS)]
    return BertPretraining(split(rows), hide=HIDE, start=1, end=2, **COMMON)


def tag() -> TokenClassification:
    rows = [TaggedExample(text, [IGNORE_INDEX, *(t % 3 for t in text[1:])]) for text in TEXTS]
    return TokenClassification(split(rows), names=["O", "B-A", "I-A"], **COMMON)


def answer() -> QuestionAnswering:
    rows = [
        QAExample(text, [i % 2 for i in range(len(text))], [(i, i + 1) for i in range(len(text))],
                  "x" * len(text), ["x"], len(text) - 1, len(text) - 1)
        for text in TEXTS
    ]  # fmt: skip
    return QuestionAnswering(split(rows), **COMMON)


def choose() -> MultipleChoice:
    rows = [ChoiceExample([text, text[::-1], text[:2]][: 2 + len(text) % 2], len(text) % 2) for text in TEXTS]
    return MultipleChoice(split(rows), **COMMON)


def labelled(make: Callable[[list[int]], Any], kind: type[Any], **more: Any) -> Callable[[], Task[Any]]:
    return lambda: kind(split([make(text) for text in TEXTS]), **COMMON, **more)


def similar(*, scored: bool) -> Callable[[], TextSimilarity]:
    rows = [SimilarityExample([a, b], (len(a) % 5) / 5 if scored else None) for a, b in pairwise(TEXTS)]
    return lambda: TextSimilarity(split(rows), pool=("mean", "first") if scored else ("mean",), **COMMON)


TYPED = cn.Tokens(vocab=VOCAB, types=2, dropout=0.1)
TASKS: dict[str, tuple[Callable[[], Any], cn.Model]] = {
    "causal": (causal, single(causal=True)),
    "translate": (translate, pair()),
    "masked": (lambda: MaskedLM(split(TEXTS), hide=HIDE, **COMMON), single()),
    "pretrain": (pretrain, dataclasses.replace(single(embed=TYPED), second=cn.Labels(count=2))),
    "classify": (
        labelled(lambda t: LabelledExample(t, len(t) % 3), TextClassification, smoothing=0.1),
        single(cn.Labels(count=3)),
    ),
    "several labels": (
        labelled(
            lambda t: MultiLabelExample(t, [len(t) % 3]), MultiLabelClassification, names=["a", "b", "c"]
        ),
        single(cn.Labels(count=3)),
    ),
    "regress": (
        labelled(lambda t: ScoredExample(t, len(t) / 7), Regression),
        single(cn.Labels(count=1)),
    ),
    "tag": (tag, single(cn.Tags(count=3))),
    "answer": (answer, single(cn.Span(), embed=TYPED)),
    "choose": (choose, single(cn.Labels(count=1))),
    "embed by scores": (similar(scored=True), single()),
    "embed by pairs": (similar(scored=False), single()),
}
SETTINGS = {"lr": 1e-2, "valid_every": 2, "save_every": 1, "ema": 0.5, "micro": 2, "device": str(SECOND)}


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> None:
    """`device` may name the second device, and both sides step with the optimizer that it has."""
    monkeypatch.setattr(setup, "choose_device", lambda name: name)
    monkeypatch.setattr(optim, "_fused", lambda model: False)


def train(name: str, folder: Path, steps: int, **changes: Any) -> clearhead.Bundle:
    make, spec = TASKS[name]
    bundle = clearhead.build(spec, dtype=torch.float64)
    Trainer(bundle, make(), Training(steps=steps, **SETTINGS | changes), folder).run()
    return bundle


def assert_logs_close(one: Path, two: Path) -> None:
    for ours, theirs in zip(read_log(one), read_log(two), strict=True):
        ours, theirs = without_timing(ours), without_timing(theirs)
        assert ours.keys() == theirs.keys()
        for key in ours.keys() - {"scores"}:
            exact = type(ours[key]) is not float
            assert ours[key] == (theirs[key] if exact else pytest.approx(theirs[key], rel=1e-6))
        assert ours.get("scores", {}) == pytest.approx(theirs.get("scores", {}), rel=1e-5, nan_ok=True)


@pytest.mark.usefixtures("there")
@pytest.mark.parametrize("name", TASKS)
@pytest.mark.filterwarnings("ignore:An input array is constant")
def test_every_task_trains_on_a_second_device_with_the_numbers_of_the_cpu(name: str, tmp_path: Path) -> None:
    """Steps, validation, samples, a checkpoint, and a resume: first two steps, then the others."""
    plain = train(name, tmp_path / "cpu", 4, device="cpu")
    with second_device():
        train(name, tmp_path / "second", 2)
        bundle = train(name, tmp_path / "second", 4)
        assert {p.device for p in bundle.model.parameters()} == {SECOND}
        assert calls["aten::embedding_dense_backward"] > 0, "nothing was trained there"
        bundle.model.to("cpu")
    assert_logs_close(tmp_path / "cpu", tmp_path / "second")
    for ours, theirs in zip(plain.model.parameters(), bundle.model.parameters(), strict=True):
        assert_close(ours.float(), theirs.float())
