"""Quality: token mixers in; the scores of the same small model trained with each out.

The tasks are two long-range puzzles and language modelling. The puzzles use an encoder, which every variant
supports; language modelling uses a decoder, and variants that are not causal are reported with their error.
All else is equal: width, depth, data, order, steps, learning rate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from ..bundle import Bundle, build, parse
from ..errors import ClearheadError, InputError, nearest
from ..nn import AttentionKernel, Recurrent, kernels
from ..recipes import load_run, prepare, with_overrides
from ..tasks import Task, TextClassification
from ..train import Cosine, Trainer, Training
from . import puzzles
from .task import QUALITY_TASKS, QualitySettings
from .timing import ProgressCallback, fair_clock, peak_tensor_bytes

QUALITY_VARIANTS = (
    "Softmax", "Window(8)", "Longformer(8, always=(0,))", "LSH(chunk=8)", "Linear", "Performer(64)",
    "Linformer(16)", "Nystrom(8)", "Summary(8)", "Recurrent", "Recurrent('gru')", "Convolution",
)  # fmt: skip


@dataclass(frozen=True)
class TrainedVariant:
    task: str
    variant: str
    parameters: int
    loss: float  # on held-out rows
    accuracy: float | None  # of the puzzles
    tokens_per_second: float  # in training
    memory: int  # peak bytes of one step


def train_variants(
    tasks: Sequence[str], variants: Sequence[str], setting: QualitySettings, progress: ProgressCallback
) -> tuple[list[TrainedVariant], dict[str, str]]:
    """Every variant trained on every task, and the errors of those that do not support it."""
    for name in tasks:
        if name not in QUALITY_TASKS:
            raise InputError(f"there is no task {name!r}; {nearest(name, QUALITY_TASKS)}")
    trained: list[TrainedVariant] = []
    refused: dict[str, str] = {}
    for name in tasks:
        for variant in variants:
            progress(f"{name}: {variant}")
            try:
                change = variant_edit(variant, setting.length, causal=name == "text")
                parts = _text(change, setting) if name == "text" else _puzzle(name, change, setting)
                trained.append(_train(name, variant, *parts, setting))
            except ClearheadError as error:
                refused[f"{name}, {variant}"] = str(error)
    return trained, refused


def variant_edit(word: str, length: int, *, causal: bool) -> dict[str, Any]:
    """A variant as a spec edit: another attention kernel, or another mixer instead of attention."""
    spec = parse(word)
    if isinstance(spec, kernels.Linformer):
        spec = replace(spec, length=length)
    if isinstance(spec, Recurrent):
        spec = replace(spec, both_ways=not causal)
    return {"Attention.kernel" if isinstance(spec, AttentionKernel) else "Block.attention": spec}


def _training(setting: QualitySettings) -> Training:
    schedule = Cosine(warmup=min(20, setting.steps - 1), minimum=setting.lr / 20)
    return Training(
        steps=setting.steps, lr=setting.lr, schedule=schedule, seed=setting.seed, save_every=setting.steps
    )


def _puzzle(name: str, change: Mapping[str, Any], setting: QualitySettings) -> tuple[Bundle, Task[Any]]:
    counts = {"train": setting.rows * min(setting.steps, 500), "valid": 400}
    splits = {
        split: puzzles.rows(name, split, n, setting.length, setting.seed) for split, n in counts.items()
    }
    task = TextClassification(
        splits, pad=puzzles.PAD_ID, tokens=setting.rows * setting.length, seed=setting.seed
    )
    labels = {str(i): str(i) for i in range(puzzles.PUZZLES[name][1])}
    bundle = build(
        "bert", task="labels", seed=setting.seed, edit=change, vocab_size=puzzles.VOCAB, id2label=labels,
        hidden_size=setting.width, num_hidden_layers=setting.depth, num_attention_heads=setting.heads,
        intermediate_size=4 * setting.width, max_position_embeddings=setting.length, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    return bundle, task


def _text(change: Mapping[str, Any], setting: QualitySettings) -> tuple[Bundle, Task[Any]]:
    overrides = {
        "data.length": setting.length, "data.rows": setting.rows, "model.n_embd": setting.width,
        "model.n_layer": setting.depth, "model.n_head": setting.heads, "model.n_positions": setting.length,
        "train.seed": setting.seed,
    }  # fmt: skip
    run = with_overrides(load_run("gpt-chars"), [f"{name}={value}" for name, value in overrides.items()])
    prepared = prepare(replace(run, model={**run.model, "edit": dict(change)}))
    return prepared.bundle, prepared.task


def _train(
    name: str, variant: str, bundle: Bundle, task: Task[Any], setting: QualitySettings
) -> TrainedVariant:
    memory = peak_tensor_bytes(lambda: _forward_and_backward(bundle, task))
    bundle.model.zero_grad(set_to_none=True)
    stamps: list[float] = []  # the end of each step
    with TemporaryDirectory() as folder:
        clock = fair_clock()
        log = lambda record: stamps.append(clock()) if "loss" in record else None  # noqa: E731
        Trainer(bundle, task, _training(setting), Path(folder) / "run", log=log).run()
    scores = dict(task.score(bundle.model.eval(), "valid"))
    tokens = setting.rows * setting.length * (len(stamps) - 1)
    return TrainedVariant(
        name,
        variant,
        bundle.parameters,
        scores["loss"],
        scores.get("accuracy"),
        tokens / (stamps[-1] - stamps[0]),
        memory,
    )


def _forward_and_backward(bundle: Bundle, task: Task[Any]) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.autograd.backward(task.loss(bundle.model.train(), task.batch(1, 0)))
