"""Tuning by LoRA: the speed of Clearhead, of transformers with PEFT, and of trl, on the same rows.

    dense     a classifier on rows of one length: the same batches on both sides
    ragged    a classifier on rows as long as sentences are: each side makes its own batches
    chats     a language model on answers to prompts: packed here; in trl not packed, and packed
    quantized the same over float32, int8 and int4 weights, here alone

Every side runs in a process of its own, from the same saved weights. The figure is tokens per second without
padding. Both sides train LoRA of rank 8 on all linear layers of the blocks, in float32.
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

from ..bundle import build, load, save, tune
from ..nn import generator
from ..tasks import CausalLM, LabelledExample, Task, TextClassification
from ..text import train_tokenizer
from ..train import Trainer, Training
from ..tune import Lora
from .process import run_apart
from .task import TunedRows
from .timing import ProgressCallback, fair_clock

RANK, ALPHA, LEARNING_RATE = 8, 16, 1e-3
TUNE_PEERS = ("transformers", "accelerate", "peft", "trl")
CLEARHEAD, PEFT, TRL, TRL_PACKED = "clearhead", "transformers + peft", "trl", "trl, packed"
# The shape of all-MiniLM-L6-v2, and that of SmolLM2-135M with fewer layers.
ENCODER_SIZES: dict[str, Any] = {
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
}
DECODER_SIZES: dict[str, Any] = {
    "hidden_size": 576, "num_hidden_layers": 8, "num_attention_heads": 9, "num_key_value_heads": 3,
    "intermediate_size": 1536, "vocab_size": 49152, "tie_word_embeddings": True,
}  # fmt: skip
ROW_LENGTH, CHAT_ROW = 24, 256  # tokens: of a dense row, and of a packed row of chats


@dataclass(frozen=True)
class TuningWork:
    """Rows of ids, for both sides: with a class, or with a mark at each token of an answer."""

    kind: TunedRows
    folder: str
    batch: int  # rows; of chats, those that are not packed
    steps: int
    threads: int

    def labelled(self) -> list[LabelledExample]:
        """Rows with a class, which is that of their first token."""
        count = self.batch * (self.steps + 1) * 2
        lengths = [ROW_LENGTH] * count if self.kind == "dense" else _sentence_lengths(count)
        ids = torch.randint(1000, 30000, (count, max(lengths)), generator=generator(0, "bench", "labels"))
        return [LabelledExample(row[:n], row[0] % 2) for row, n in zip(ids.tolist(), lengths, strict=True)]

    def chats(self) -> list[tuple[list[int], int]]:
        """Rows of ids, and how many of the last belong to the answer: a quarter, of 57 tokens on average."""
        count = self.batch * (self.steps + 1) * 2
        lengths = [3 * n for n in _sentence_lengths(count)]
        ids = torch.randint(10, 49000, (count, max(lengths)), generator=generator(0, "bench", "chats"))
        return [(row[:n], max(1, n // 4)) for row, n in zip(ids.tolist(), lengths, strict=True)]


def _sentence_lengths(count: int) -> list[int]:
    """Lengths as those of sentences: 19 tokens on average, 4 to 52."""
    normal = torch.randn(count, generator=generator(0, "bench", "lengths"))
    return [int(n) for n in (2.85 + 0.5 * normal).exp().clamp(4, 52)]


def compare_tuning(
    kind: TunedRows,
    *,
    batch: int,
    steps: int,
    rounds: int,
    threads: int,
    peers: bool,
    progress: ProgressCallback,
) -> dict[str, float]:
    """Real tokens per second by side, the median of the rounds."""
    with TemporaryDirectory() as name:
        work = TuningWork(kind, name, batch, steps, threads)
        progress("building the model")
        _save_model(kind, Path(name))
        sides: dict[str, Callable[[TuningWork], float]] = {CLEARHEAD: tune_clearhead}
        if kind == "quantized":
            sides |= {f"{CLEARHEAD} {q}": partial(tune_clearhead, precision=q) for q in ("int8", "int4")}
        elif peers and kind == "chats":
            sides |= {TRL: partial(tune_trl, packing=False), TRL_PACKED: partial(tune_trl, packing=True)}
        elif peers:
            sides[PEFT] = tune_peft
        speeds: dict[str, list[float]] = {side: [] for side in sides}
        for turn in range(1, rounds + 1):
            for side, run in sides.items():
                progress(f"round {turn} of {rounds}: {side}")
                speeds[side].append(run_apart(run, work))
    return {side: median(values) for side, values in speeds.items()}


def _save_model(kind: TunedRows, folder: Path) -> None:
    if kind in ("chats", "quantized"):
        bundle = build("llama", **DECODER_SIZES)
        words = [f"{a}{b}" for a in "abcdefghij" for b in "klmnopqrst"]
        bundle.tokenizer = train_tokenizer(words, "wordpiece", vocab=200, frame="eos")  # trl asks for one
    else:
        bundle = build("bert", task="labels", num_labels=2, **ENCODER_SIZES)
    save(bundle, folder)


def tune_clearhead(work: TuningWork, *, precision: str | None = None) -> float:
    torch.set_num_threads(work.threads)
    learns_words = work.kind in ("chats", "quantized")
    lora = Lora(rank=RANK, alpha=ALPHA, modules_to_save=() if learns_words else ("classifier",))
    bundle = tune(load(work.folder, precision=precision), lora)
    task: Task[Any]
    if learns_words:
        rows = work.chats()
        texts = [ids for ids, _ in rows]
        flags = [[0] * (len(ids) - n) + [1] * n for ids, n in rows]
        mean = sum(map(len, texts)) / len(texts)
        task = CausalLM(
            {"train": texts},
            trained={"train": flags},
            length=CHAT_ROW,
            rows=max(1, round(work.batch * mean / CHAT_ROW)),
            pad=0,
        )
    else:
        # As many tokens as a batch of theirs has, without its padding.
        examples = work.labelled()
        mean = sum(len(x.ids) for x in examples) / len(examples)
        task = TextClassification(
            {"train": examples}, pad=0, tokens=round(work.batch * mean), names=["0", "1"]
        )
    real, stamps = list[int](), list[float]()
    clock = fair_clock()
    training = Training(steps=work.steps, lr=LEARNING_RATE, save_every=work.steps + 1, threads=work.threads)

    class Counting:
        def __getattr__(self, name: str) -> Any:
            return getattr(task, name)

        def batch(self, step: int, micro: int) -> Any:
            batch = task.batch(step, micro)
            real.append(batch.tokens)
            return batch

    log: Callable[[Mapping[str, Any]], None] = lambda record: stamps.append(clock())  # noqa: E731
    with TemporaryDirectory(dir=work.folder) as out:  # a run of its own: one that is there is resumed
        Trainer(bundle, Counting(), training, Path(out), log=log).run()
    return _speed(real, stamps)


def tune_peft(work: TuningWork) -> float:
    """Transformers' Trainer and PEFT; its batches are random rows, padded to the longest."""
    transformers, peft = _quiet("transformers"), import_module("peft")
    torch.set_num_threads(work.threads)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        work.folder, local_files_only=True
    )
    # No path asks for a linear layer beside those of the blocks: the classifier is trained whole.
    targets = ["query", "key", "value", "dense"]
    config = peft.LoraConfig(
        task_type="SEQ_CLS", r=RANK, lora_alpha=ALPHA, lora_dropout=0.0, target_modules=targets,
        exclude_modules=["bert.pooler.dense"],
    )  # fmt: skip
    model = peft.get_peft_model(model, config)
    real, stamps = list[int](), list[float]()

    def collate(rows: Sequence[LabelledExample]) -> dict[str, torch.Tensor]:
        real.append(sum(len(row.ids) for row in rows))
        longest = max(len(row.ids) for row in rows)
        ids = torch.tensor([[*row.ids, *[0] * (longest - len(row.ids))] for row in rows])
        return {
            "input_ids": ids,
            "attention_mask": (ids != 0).long(),
            "labels": torch.tensor([r.label for r in rows]),
        }

    trainer = transformers.Trainer(
        model=model, args=transformers.TrainingArguments(**_arguments(work)), data_collator=collate,
        train_dataset=work.labelled(), callbacks=[_clock(transformers, stamps)],
    )  # fmt: skip
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train()
    return _speed(real, stamps)


def tune_trl(work: TuningWork, *, packing: bool) -> float:
    """trl's SFTTrainer on rows of ids whose answers are trained."""
    transformers, peft, trl = _quiet("transformers"), import_module("peft"), import_module("trl")
    datasets: Any = import_module("datasets")
    datasets.disable_progress_bars()
    torch.set_num_threads(work.threads)
    rows = work.chats()
    data = datasets.Dataset.from_list(
        [{"input_ids": ids, "completion_mask": [0] * (len(ids) - n) + [1] * n} for ids, n in rows]
    )
    stamps = list[float]()
    mean = sum(len(ids) for ids, _ in rows) / len(rows)
    batch = max(1, round(work.batch * mean / CHAT_ROW)) if packing else work.batch
    arguments = _arguments(work) | {
        "per_device_train_batch_size": batch, "packing": packing, "max_length": CHAT_ROW,
        "gradient_checkpointing": False, "completion_only_loss": True,
    }  # fmt: skip
    config = peft.LoraConfig(
        task_type="CAUSAL_LM", r=RANK, lora_alpha=ALPHA, lora_dropout=0.0, target_modules="all-linear"
    )
    model = transformers.AutoModelForCausalLM.from_pretrained(work.folder, local_files_only=True)
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(
        work.folder, eos_token="[SEP]", pad_token="[PAD]"
    )
    trainer = trl.SFTTrainer(
        model=model, args=trl.SFTConfig(**arguments), train_dataset=data, processing_class=tokenizer,
        peft_config=config, callbacks=[_clock(transformers, stamps)],
    )  # fmt: skip
    real = list[int]()
    inner = trainer.compute_loss

    def counted(model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        mask = inputs.get("attention_mask")
        real.append(int(inputs["input_ids"].numel() if mask is None else mask.sum()))
        return inner(model, inputs, *args, **kwargs)

    trainer.compute_loss = counted
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train()
    return _speed(real, stamps)


def _quiet(name: str) -> Any:
    library: Any = import_module(name)
    library.logging.set_verbosity_error()
    library.logging.disable_progress_bar()
    return library


def _arguments(work: TuningWork) -> dict[str, Any]:
    return {
        "output_dir": str(Path(work.folder, "out")), "max_steps": work.steps,
        "per_device_train_batch_size": work.batch, "learning_rate": LEARNING_RATE,
        "lr_scheduler_type": "constant",
        "report_to": [], "save_strategy": "no", "use_cpu": True, "disable_tqdm": True, "bf16": False,
        "logging_strategy": "no", "remove_unused_columns": False, "weight_decay": 0.01,
    }  # fmt: skip


def _clock(transformers: Any, stamps: list[float]) -> Any:
    clock = fair_clock()

    class Clock(transformers.TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *_: Any, **__: Any) -> None:
            stamps.append(clock())

    return Clock()


def _speed(real: Sequence[int], stamps: Sequence[float]) -> float:
    """Tokens per second from the end of the first step, which is the warm-up."""
    return sum(real[1 : len(stamps)]) / (stamps[-1] - stamps[0])
