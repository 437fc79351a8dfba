"""Training elsewhere than on the CPU, shown on a second device that mixes with nothing by itself."""

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from second_device import SECOND, calls, second_device
from tolerance import assert_close
from torch import Tensor
from toy import Toy, hash_of, toy_bundle
from zoo import VOCAB, pair, single

import clearhead
from clearhead import nn as cn
from clearhead.data.next_sentence import SentencePair
from clearhead.data.packing import IGNORE_INDEX
from clearhead.engine import prepare_model
from clearhead.errors import InputError
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
    input_tokens,
    on_device,
)
from clearhead.train import (
    Trainer,
    Training,
    determinism,
    optim,
    optimizer_step,
    read_log,
    setup,
    without_timing,
)

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


@pytest.mark.usefixtures("there")
def test_a_checkpoint_of_one_device_continues_on_the_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = train("classify", tmp_path / "cpu", 4, device="cpu")
    with second_device():
        train("classify", tmp_path / "run", 2)
    back = train("classify", tmp_path / "run", 4, device="cpu")
    assert "device lazy:0 -> cpu): results are close from here on, not bit-identical" in caplog.text
    for ours, theirs in zip(whole.model.parameters(), back.model.parameters(), strict=True):
        assert_close(ours.float(), theirs.float())


@pytest.mark.usefixtures("there")
def test_frozen_parameters_stay_on_the_device_as_they_are(tmp_path: Path) -> None:
    with second_device():
        bundle = train("classify", tmp_path, 2, freeze=("tower.*",))
        bundle.model.to("cpu")
    fresh = TASKS["classify"][1].build(dtype=torch.float64)
    same = {n for (n, p), q in zip(bundle.model.named_parameters(), fresh.parameters(), strict=True)
            if torch.equal(p, q)}  # fmt: skip
    assert same == {n for n, _ in fresh.named_parameters() if n.startswith("tower.")}


@pytest.mark.usefixtures("there")
def test_a_batch_left_on_the_cpu_is_an_error_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the second device is for: without the one place that moves batches, nothing works."""
    monkeypatch.setattr(optimizer_step, "on_device", lambda batch, model: batch)
    with second_device(), pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        train("classify", tmp_path, 1)


def test_auto_leaves_a_model_where_it_is_unless_that_is_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(setup, "choose_device", lambda name: asked.append(name) or "mps")
    here, elsewhere = toy_bundle(), toy_bundle()
    elsewhere.model.to("meta")
    assert setup.training_device(elsewhere, Training(steps=1)).type == "meta" and asked == []
    assert setup.training_device(here, Training(steps=1)).type == "mps"
    assert setup.training_device(elsewhere, Training(steps=1, device="cuda:1")).type == "mps"
    assert asked == ["auto", "cuda:1"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_device_that_is_not_there_is_one_line_and_nothing_is_written(tmp_path: Path) -> None:
    bundle = toy_bundle()
    before = hash_of(bundle.model)
    with pytest.raises(InputError, match="device is 'cuda', which this machine does not have"):
        Trainer(bundle, Toy(), Training(steps=1, device="cuda"), tmp_path / "run").run()
    assert not (tmp_path / "run").exists() and hash_of(bundle.model) == before


@pytest.mark.parametrize("name", TASKS)
def test_a_batch_moves_whole_to_where_the_model_is(name: str) -> None:
    """Shown with the meta device: every tensor moves, nothing else changes, and on the CPU nothing moves."""
    make, spec = TASKS[name]
    batch, model = make().batch(1, 0), spec.empty()
    moved = on_device(batch, model)
    tensors = [x for x in vars(moved).values() if isinstance(x, Tensor)]
    assert tensors and {x.device.type for x in tensors} == {"meta"}
    assert {name: type(x) for name, x in vars(moved).items()} == {
        name: type(x) for name, x in vars(batch).items()
    }
    assert on_device(batch, spec.build()) is batch


@pytest.mark.parametrize("kind", ["cuda", "mps"])
def test_dropout_is_seeded_on_the_device_and_its_generator_is_restored(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no such device here: the functions of its module write down what they are asked."""
    log: list[tuple[str, object]] = []
    functions = {
        "device": lambda device: nullcontext(),
        "get_rng_state": lambda device: "as before",
        "set_rng_state": lambda state, device: log.append(("restored", state)),
        "manual_seed": lambda seed: log.append(("seeded", seed)),
    }
    for name, function in functions.items():
        monkeypatch.setattr(getattr(torch, kind), name, function, raising=False)
    with determinism.seeded(torch.device(kind, 0), 3, "dropout", 7):
        assert log == [("seeded", torch.initial_seed())]
        drawn = torch.rand(3)
    assert log[1:] == [("restored", "as before")]
    with determinism.seeded(torch.device("cpu"), 3, "dropout", 7):
        assert torch.equal(drawn, torch.rand(3))


@pytest.mark.parametrize("name", TASKS)
def test_every_batch_counts_its_input_tokens_without_padding(name: str) -> None:
    task = TASKS[name][0]()
    batch = task.batch(1, 0)
    values = vars(batch)
    if name == "causal":
        wanted = int((values["document_BT"] >= 0).sum())
    else:  # 0 is padding and occurs in no text
        inputs = [values[key] for key in ("ids_BT", "ids_NT", "source_BT", "target_BT") if key in values]
        wanted = sum(int((x != 0).sum()) for x in inputs)
    assert input_tokens(batch) == wanted > 0


def test_packed_products_stay_on_the_cpu() -> None:
    model = prepare_model(toy_bundle().model.eval(), "int8")
    assert model.to("cpu") is model
    with pytest.raises(InputError, match="packed for the CPU; this model is on meta"):
        prepare_model(model.to("meta"), "int8")
