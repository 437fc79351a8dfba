"""Training speed of Clearhead and the Hugging Face Trainer: one model, the same rows and tokens per batch.

Ragged rows are pairs of texts of all lengths; dense rows are full and need no padding. The figure is tokens
per second without padding. Beside it is the loss on held-out rows: every side starts from the same weights,
and the weights it ends with are scored by the same code, in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch

from ..bundle import Bundle, build, load, save
from ..data import IGNORE_INDEX
from ..nn import TransformerModel, generator
from ..recipes import load_run, prepare, with_overrides
from ..tasks import CausalLM, Task, TextToText
from ..train import Trainer, Training
from .task import TrainingPrecision, TrainingRows
from .timing import ProgressCallback, fair_clock

TRAIN_PEERS = ("transformers", "accelerate")  # the Trainer of transformers needs accelerate
UNGROUPED, GROUPED = "transformers", "transformers, by length"
HELD_OUT_ROWS = 100  # rows whose loss is reported, at most
MODEL, TRAINED = "model", "trained"  # folders of the initial and of the trained weights


@dataclass(frozen=True)
class TrainingWork:
    """What both sides train: a model, its task, and the same examples as rows for transformers."""

    bundle: Bundle  # with the initial weights; each side loads its own copy
    task: Task[Any]
    rows: list[dict[str, list[int]]]
    batch: int  # rows per batch for transformers, chosen for the same number of padded tokens
    pad: int
    held_out_loss: Callable[[TransformerModel], float]


@dataclass(frozen=True)
class TrainingBenchmark:
    """Figures by side: the library, and the precision where it is not float32."""

    speeds: dict[str, float]  # tokens per second without padding, the median of the rounds
    losses: dict[str, float]  # on held-out rows after one round


def compare_training(
    kind: TrainingRows,
    *,
    source: str,
    tokens: int,
    steps: int,
    rounds: int,
    precisions: Sequence[TrainingPrecision],
    peers: bool,
    progress: ProgressCallback,
) -> TrainingBenchmark:
    work = ragged(source, tokens) if kind == "ragged" else dense(tokens)
    runs: dict[str, Callable[..., float]] = {"clearhead": train_clearhead}
    if peers:
        runs[UNGROUPED] = partial(train_transformers, group=False)
    if peers and kind == "ragged":
        runs[GROUPED] = partial(train_transformers, group=True)
    speeds: dict[str, list[float]] = {}
    losses: dict[str, float] = {}
    for turn in range(1, rounds + 1):
        for library, run in runs.items():
            for precision in precisions:
                side = library if precision == "float32" else f"{library} {precision}"
                with TemporaryDirectory() as name:
                    folder = Path(name)
                    save(work.bundle, folder / MODEL)
                    speeds.setdefault(side, []).append(run(work, steps, precision, folder))
                    if turn == 1:  # every round ends with the same weights
                        losses[side] = work.held_out_loss(load(folder / TRAINED).model)
                progress(f"round {turn} of {rounds}: {side} {median(speeds[side]):,.0f} tokens/s")
    return TrainingBenchmark({name: median(values) for name, values in speeds.items()}, losses)


def ragged(source: str, tokens: int) -> TrainingWork:
    """A small encoder-decoder on pairs of texts."""
    sizes = {"d_model": 256, "encoder_layers": 3, "decoder_layers": 3}
    sizes |= {"encoder_ffn_dim": 256, "decoder_ffn_dim": 256}
    overrides = [f"data.source={source}", f"data.tokens={tokens}", "data.length=128", "tokenizer.vocab=6000"]
    run = with_overrides(load_run("translate-en-zh"), [*overrides, "model.max_position_embeddings=160"])
    run = with_overrides(run, [f"model.{name}={size}" for name, size in sizes.items()])
    prepared = prepare(run)
    task = prepared.task
    assert isinstance(task, TextToText)
    rows = [
        {"input_ids": [*pair.source, task.ids.end], "labels": [*pair.target, task.ids.end]}
        for pair in task.splits["train"]
    ]
    batch = _rows_per_batch([tuple(map(len, row.values())) for row in rows], tokens)
    held_out = task.splits["valid"][:HELD_OUT_ROWS]
    scored = TextToText({"train": held_out, "valid": held_out}, ids=task.ids, tokens=tokens)
    loss = torch.no_grad()(partial(scored.mean_loss, split="valid"))
    return TrainingWork(prepared.bundle, task, rows, batch, task.ids.pad, loss)


def dense(tokens: int, length: int = 256) -> TrainingWork:
    """A small GPT-2 on rows of one length. As in texts, few ids are frequent: there is something to learn."""
    vocab = 8000
    bundle = build("gpt2", vocab_size=vocab, n_embd=256, n_layer=4, n_head=8, n_positions=length)
    rows = max(1, tokens // length)
    uniform = torch.rand(rows * 64 + HELD_OUT_ROWS, length, generator=generator(0, "bench"))
    texts = (vocab**uniform).long().clamp(max=vocab - 1).tolist()
    texts, held_out = texts[HELD_OUT_ROWS:], texts[:HELD_OUT_ROWS]
    task = CausalLM({"train": texts, "valid": held_out}, length=length, rows=rows, pad=0)
    theirs = [{"input_ids": text, "labels": text} for text in texts]
    return TrainingWork(bundle, task, theirs, rows, 0, lambda model: task.score(model, "valid")["loss"])


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


def train_clearhead(work: TrainingWork, steps: int, precision: TrainingPrecision, folder: Path) -> float:
    """Tokens per second without padding, from the end of the first step on; the model is saved."""
    real: list[int] = []
    stamps: list[float] = []
    clock = fair_clock()

    def log(record: Mapping[str, Any]) -> None:
        stamps.append(clock())

    task = _CountingTask(work.task, real)
    training = Training(steps=steps, lr=3e-4, save_every=steps + 1, precision=precision)
    Trainer(load(folder / MODEL), task, training, folder / TRAINED, log=log).run()
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


def train_transformers(
    work: TrainingWork, steps: int, precision: TrainingPrecision, folder: Path, *, group: bool
) -> float:
    """The same for transformers' Trainer with its padding collator."""
    transformers: Any = import_module("transformers")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    kind = getattr(transformers, work.bundle.config["architectures"][0])
    model = kind.from_pretrained(folder / MODEL, local_files_only=True)
    real: list[int] = []
    stamps: list[float] = []
    clock = fair_clock()

    class Clock(transformers.TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *_: Any, **__: Any) -> None:
            stamps.append(clock())

    def collate(rows: list[dict[str, list[int]]]) -> dict[str, torch.Tensor]:
        real.append(sum(len(side) for row in rows for side in _sequences(row)))
        source, mask = _pad([row["input_ids"] for row in rows], work.pad)
        labels, _ = _pad([row["labels"] for row in rows], IGNORE_INDEX)
        return {"input_ids": source, "attention_mask": mask, "labels": labels}

    arguments = transformers.TrainingArguments(
        output_dir=str(folder / "out"), max_steps=steps, per_device_train_batch_size=work.batch,
        learning_rate=3e-4, lr_scheduler_type="constant", report_to=[], save_strategy="no", use_cpu=True,
        disable_tqdm=True, logging_strategy="no", remove_unused_columns=False, weight_decay=0.01,
        train_sampling_strategy="group_by_length" if group else "random", bf16=precision == "bfloat16",
    )  # fmt: skip
    trainer = transformers.Trainer(
        model=model, args=arguments, train_dataset=work.rows, data_collator=collate, callbacks=[Clock()]
    )
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train()
    model.save_pretrained(folder / TRAINED)
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
