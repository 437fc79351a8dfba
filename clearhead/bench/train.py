"""Training speed of Clearhead and the Hugging Face Trainer: one model, the same rows and tokens per batch.

Ragged rows are pairs of texts of all lengths; dense rows are full and need no padding. The figure is tokens
per second without padding.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch

from ..bundle import Bundle, build, save
from ..data import IGNORE_INDEX
from ..nn import generator
from ..recipes import load_run, prepare, with_overrides
from ..tasks import CausalLM, Task, TextToText
from ..train import Trainer, Training
from .task import TrainingRows
from .timing import ProgressCallback

TRAIN_PEERS = ("transformers", "accelerate")  # the Trainer of transformers needs accelerate
UNGROUPED, GROUPED = "transformers", "transformers, by length"


@dataclass(frozen=True)
class TrainingWork:
    """What both sides train: a model, its task, and the same examples as rows for transformers."""

    bundle: Bundle
    task: Task[Any]
    rows: list[dict[str, list[int]]]
    batch: int  # rows per batch for transformers, chosen for the same number of padded tokens
    pad: int


def compare_training(
    kind: TrainingRows,
    *,
    source: str,
    tokens: int,
    steps: int,
    rounds: int,
    peers: bool,
    progress: ProgressCallback,
) -> dict[str, float]:
    """Tokens per second without padding, by name; the median of the rounds."""
    work = ragged(source, tokens) if kind == "ragged" else dense(tokens)
    sides: dict[str, Callable[[Path], float]] = {
        "clearhead": lambda folder: train_clearhead(work, steps, folder)
    }
    if peers:
        sides[UNGROUPED] = lambda folder: train_transformers(work, steps, folder, group=False)
    if peers and kind == "ragged":
        sides[GROUPED] = lambda folder: train_transformers(work, steps, folder, group=True)
    speeds: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(1, rounds + 1):
        for name, run in sides.items():
            with TemporaryDirectory() as folder:
                speeds[name].append(run(Path(folder)))
            progress(f"round {turn} of {rounds}: {name} {median(speeds[name]):,.0f} tokens/s")
    return {name: median(values) for name, values in speeds.items()}


def ragged(source: str, tokens: int) -> TrainingWork:
    """A small encoder-decoder on pairs of texts."""
    sizes = {"d_model": 256, "encoder_layers": 3, "decoder_layers": 3}
    sizes |= {"encoder_ffn_dim": 256, "decoder_ffn_dim": 256}
    overrides = [f"data.source={source}", f"data.tokens={tokens}", "data.length=128", "tokenizer.vocab=6000"]
    run = with_overrides(load_run("translate-en-zh"), [*overrides, "model.max_position_embeddings=160"])
    run = with_overrides(run, [f"model.{name}={size}" for name, size in sizes.items()])
    prepared = prepare(run)
    assert isinstance(prepared.task, TextToText)
    ids = prepared.task.ids
    rows = [
        {"input_ids": [*pair.source, ids.end], "labels": [*pair.target, ids.end]}
        for pair in prepared.task.splits["train"]
    ]
    batch = _rows_per_batch([tuple(map(len, row.values())) for row in rows], tokens)
    return TrainingWork(prepared.bundle, prepared.task, rows, batch, ids.pad)


def dense(tokens: int, length: int = 256) -> TrainingWork:
    """A small GPT-2 on rows of one length."""
    bundle = build("gpt2", vocab_size=8000, n_embd=256, n_layer=4, n_head=8, n_positions=length)
    rows = max(1, tokens // length)
    ids = torch.randint(1, 8000, (rows * 64, length), generator=generator(0, "bench"))
    texts = ids.tolist()
    task = CausalLM({"train": texts}, length=length, rows=rows, pad=0)
    return TrainingWork(bundle, task, [{"input_ids": text, "labels": text} for text in texts], rows, 0)


def _rows_per_batch(sizes: Sequence[tuple[int, ...]], tokens: int) -> int:
    """The number of random rows whose padded batch has `tokens` tokens on average."""
    key = generator(0, "bench")

    def padded(rows: int) -> float:
        samples = torch.randint(0, len(sizes), (50, rows), generator=key).tolist()
        batches = [[sizes[i] for i in batch] for batch in samples]
        return float(sum(rows * sum(map(max, zip(*batch, strict=True))) for batch in batches)) / len(batches)

    rows = 1
    while padded(rows + 1) <= tokens:
        rows += 1
    return rows


def train_clearhead(work: TrainingWork, steps: int, folder: Path) -> float:
    """Tokens per second without padding, from the end of the first step on, by wall-clock time."""
    real: list[int] = []
    stamps: list[float] = []

    def log(record: Mapping[str, Any]) -> None:
        stamps.append(time.perf_counter())

    task = _CountingTask(work.task, real)
    training = Training(steps=steps, lr=3e-4, save_every=steps + 1)
    Trainer(work.bundle, task, training, folder / "run", log=log).run()
    return _speed(real, stamps)


class _CountingTask:
    """A task that counts the tokens of its batches, without padding."""

    def __init__(self, task: Task[Any], real: list[int]) -> None:
        self._task, self._real = task, real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._task, name)

    def batch(self, step: int, micro: int) -> Any:
        batch = self._task.batch(step, micro)
        source = int(batch.mask_BT.sum()) if hasattr(batch, "mask_BT") else 0
        self._real.append(source + int((batch.labels_BT != IGNORE_INDEX).sum()))
        return batch


def train_transformers(work: TrainingWork, steps: int, folder: Path, *, group: bool) -> float:
    """The same for transformers' Trainer with its padding collator."""
    transformers: Any = import_module("transformers")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    save(work.bundle, folder / "model")
    kind = getattr(transformers, work.bundle.config["architectures"][0])
    model = kind.from_pretrained(folder / "model", local_files_only=True)
    real: list[int] = []
    stamps: list[float] = []

    class Clock(transformers.TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *_: Any, **__: Any) -> None:
            stamps.append(time.perf_counter())

    def collate(rows: list[dict[str, list[int]]]) -> dict[str, torch.Tensor]:
        real.append(sum(len(side) for row in rows for side in _sequences(row)))
        source, mask = _pad([row["input_ids"] for row in rows], work.pad)
        labels, _ = _pad([row["labels"] for row in rows], IGNORE_INDEX)
        return {"input_ids": source, "attention_mask": mask, "labels": labels}

    arguments = transformers.TrainingArguments(
        output_dir=str(folder / "out"), max_steps=steps, per_device_train_batch_size=work.batch,
        learning_rate=3e-4, lr_scheduler_type="constant", report_to=[], save_strategy="no", use_cpu=True,
        disable_tqdm=True, logging_strategy="no", remove_unused_columns=False, weight_decay=0.01,
        train_sampling_strategy="group_by_length" if group else "random",
    )  # fmt: skip
    trainer = transformers.Trainer(
        model=model, args=arguments, train_dataset=work.rows, data_collator=collate, callbacks=[Clock()]
    )
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train()
    return _speed(real, stamps)


def _sequences(row: Mapping[str, list[int]]) -> list[list[int]]:
    """The sequences of a row: the two texts of a pair, or the one text of a language model."""
    return [row["labels"]] if row["labels"] is row["input_ids"] else [*row.values()]


def _pad(rows: Sequence[list[int]], value: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Padded ids, and the attention mask."""
    length = max(map(len, rows))
    ids = torch.tensor([row + [value] * (length - len(row)) for row in rows])
    return ids, torch.tensor([[1] * len(row) + [0] * (length - len(row)) for row in rows])


def _speed(real: Sequence[int], stamps: Sequence[float]) -> float:
    """Tokens per second from the end of the first step, which is the warm-up."""
    return sum(real[1 : len(stamps)]) / (stamps[-1] - stamps[0])
