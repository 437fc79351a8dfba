"""Preparing a run: its settings in; a bundle with a tokenizer, and the task it is to learn, out."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..bundle import (
    Bundle,
    build,
    copy_tuning,
    load,
    quantized_precision,
    spec_of,
    stored_labels,
    tune,
    with_head,
)
from ..data import Source, message_text
from ..errors import ClearheadError, InputError, quoted, reason, shortened
from ..families import (
    NAMES,
    ONE_TOWER_OUTPUTS,
    SIZE_WORDS,
    HeadKind,
    config_from_words,
    family_and_config,
)
from ..malloc import available_memory
from ..store import pooling_files
from ..tasks import Task
from ..text import Tokenizer, train_tokenizer
from ..train import Noam
from . import builders
from .augmentation import augment
from .rows import Dataset, read_dataset
from .settings import RECIPES_OF_TASK, RunConfig

# Divided by the width: 1e-4 for 384 (MiniLM), 5e-5 for 768 (BERT base), 3.7e-5 for 1024.
FINE_TUNING_RATE = 0.0384
# What a pre-trained encoder brings, measured on the same rows (docs/results.md).
_ADVICE = "from random weights; a pre-trained encoder learns more from the same rows ({}): --from MODEL"
PRETRAINING_HELPS = {
    "classify": _ADVICE.format("SST-2: 80 % right from scratch, 89 % from MiniLM"),
    "tag": _ADVICE.format("WNUT-17: F1 8 from scratch, 45 from MiniLM"),
    "answer": _ADVICE.format("SQuAD: F1 8 from scratch, 49 after 150 steps of MiniLM"),
}
MAX_LAYERS = 10_000  # ten times more than any published model has


@dataclass(frozen=True)
class PreparedRun:
    run: RunConfig
    rows: Dataset
    bundle: Bundle
    task: Task[Any]
    notes: tuple[str, ...]


def prepare(
    run: RunConfig,
    progress: Callable[[str], None] = lambda line: None,
    *,
    base: Bundle | None = None,
    sources: Mapping[str, Source] | None = None,
) -> PreparedRun:
    """Read the rows, get or train the tokenizer, build or load the model, and put the task together.

    `base` is a model in memory to fine-tune, which stays as it is; `sources` are rows in memory by split.
    """
    rows = augment(run, read_dataset(run, sources))
    builder = builders.BUILDERS[run.task]
    in_memory = base is not None
    base = base if base is not None else _load_base(run)
    notes = [*rows.notes]
    if base is None and (run.tune is not None or "quantize" in run.model):
        raise InputError("a tuning is for a checkpoint: name one, --from MODEL")
    if base is None:
        progress(f"tokenizer  {run.tokenizer.kind}, up to {run.tokenizer.vocab:,} tokens")
        tokenizer = train_tokenizer(
            _texts(rows),
            run.tokenizer.kind,
            vocab=run.tokenizer.vocab,
            frame=builder.frame,
            lower=builder.lower,
        )
    else:
        tokenizer = _own_tokenizer(base)
        rows = replace(rows, base=base, labels=_stored_labels(base, rows))
        run = _limit_length(run, base, notes)
    notes += _unknown_characters(tokenizer, _texts(rows), own=base is None)
    built = builder.build(run, rows, tokenizer, notes)
    run = _with_steps_of_epochs(run, built, notes)
    if base is None:
        bundle = _new_model(run, tokenizer, built, notes)
        if run.task in PRETRAINING_HELPS:
            notes.append(PRETRAINING_HELPS[run.task])
    else:
        bundle = _tuned(run, base, _with_head(run, base, built, notes, in_memory=in_memory))
        run = _with_fine_tuning_rate(run, bundle, notes)
        bundle.tokenizer = tokenizer
        if run.task == "causal":  # tokens at which answers end, and generation stops
            bundle.generation = {**bundle.generation, **built.generation}
    if not builder.needs.accepts(bundle.spec):
        name = bundle.family.title if bundle.family else type(bundle.spec).__name__
        recipe = RECIPES_OF_TASK.get(run.task, run.task)
        raise InputError(f"{recipe} needs {builder.needs.description}; {name} is none")
    _describe_outputs(bundle, tokenizer, built)
    return PreparedRun(run, rows, bundle, built.task, tuple(notes))


def _own_tokenizer(base: Bundle) -> Tokenizer:
    """A copy: a task may give it a chat template or a pad token, and the checkpoint's stays as it is."""
    if base.tokenizer is None:
        raise InputError(
            "the checkpoint has no tokenizer, and without it the rows cannot be read; put its tokenizer.json "
            "into the folder"
        )
    return base.tokenizer.copy()


def _with_steps_of_epochs(run: RunConfig, built: builders.BuiltTask, notes: list[str]) -> RunConfig:
    """`train.steps` from `data.epochs`, if that is set; a validation after each epoch, if none is set."""
    if run.data.epochs is None:
        return run
    each: float = built.task.steps_per_epoch  # type: ignore[attr-defined]  # of every task that is built here
    steps = max(math.ceil(run.data.epochs * each), 1)
    epochs = "1 epoch" if run.data.epochs == 1 else f"{run.data.epochs:g} epochs"
    notes.append(f"{epochs} of {each:,.4g} steps: {steps:,} steps")
    training = replace(run.train, steps=steps)
    if training.valid_every is None:
        epoch = max(math.ceil(each), 1)
        training = replace(training, valid_every=epoch, save_every=min(training.save_every, epoch))
    return replace(run, train=training)


def _stored_labels(base: Bundle, rows: Dataset) -> tuple[str, ...]:
    """The label names of the checkpoint by class index, if they are those of the training rows."""
    column = {"labels": ("label", "labels"), "tags": ("tags",)}.get(base.task, ())
    stored = tuple(stored_labels(base.config))
    found: set[str] = set()
    for row in rows.training:
        for role in column:
            value = row.get(role, ())
            found |= {value} if isinstance(value, str) else set(value)
    return stored if set(stored) == found else ()


def _with_head(
    run: RunConfig, base: Bundle, built: builders.BuiltTask, notes: list[str], *, in_memory: bool
) -> Bundle:
    """The model to fine-tune with the head its task needs; one that fits keeps its weights."""
    labels, head = built.labels, _head_kind(base, built)
    fits = base.task == head and (labels is None or stored_labels(base.config) == labels)
    if fits and base.tuning is not None and isinstance(base.base, Bundle):
        bundle = copy_tuning(base, base.base) if in_memory else base
    elif fits and (run.tune is not None or not in_memory):
        bundle = base
    elif in_memory or base.tuning is not None:
        bundle = with_head(base, head, labels, seed=run.train.seed, share=run.tune is not None)
    else:
        edit = run.model.get("edit")
        bundle = load(_model_name(run), edit=edit, head=head, labels=labels, seed=run.train.seed)
    if labels and not bundle.report.fresh and not stored_labels(base.config):
        notes.append(
            f"the checkpoint's head is kept, and its labels are named {shortened(', '.join(labels), 60)}"
        )
    if bundle.report.fresh:
        named = f" for {shortened(', '.join(labels), 60)}" if labels else ""
        notes.append(f"new head{named}, from random weights: {', '.join(bundle.report.fresh)}")
    if bundle.report.dropped:
        notes.append(f"the checkpoint's head is left out: {shortened(', '.join(bundle.report.dropped), 80)}")
    return bundle


def _tuned(run: RunConfig, base: Bundle, bundle: Bundle) -> Bundle:
    """The bundle with the tuning of the run; one that is tuned already is trained further.

    `base` is what was given: if it computes with quantized weights, so does the result.
    """
    precision = run.model.get("quantize") or quantized_precision(base)
    if run.tune is None and bundle.tuning is None:
        if run.model.get("quantize"):
            raise InputError("quantized weights do not learn; what learns beside them: --method lora")
        return bundle
    if run.tune is None:
        tuned = bundle
    elif bundle.tuning is not None:
        kind = type(bundle.tuning.value).__name__
        raise InputError(
            f"the model is tuned already ({kind}); to train that further leave out the method, for another "
            f"one begin with its base, or with clearhead merge"
        )
    else:
        tuned = tune(bundle, run.tune, seed=run.train.seed)
    if precision is not None and tuned.tuning is not None and tuned.tuning.value.is_whole:
        raise InputError(
            f"{precision} weights do not learn, and {type(tuned.tuning.value).__name__} trains those of the "
            f"model; what learns beside them: --method lora"
        )
    if precision is not None and quantized_precision(tuned) != precision:
        tuned.prepare(precision)
    return tuned


def _head_kind(base: Bundle, built: builders.BuiltTask) -> HeadKind:
    """The head that the task needs; a model that is one tower of its family stays that."""
    if ONE_TOWER_OUTPUTS.get(base.task) == built.head:
        return base.task
    kinds: Mapping[HeadKind, str] = base.family.architectures if base.family else {}
    if built.head == "hidden" and base.spec.source_tower is not None and "encoder" in kinds:
        return "encoder"  # vectors of texts are the states of an encoder
    return built.head


def _describe_outputs(bundle: Bundle, tokenizer: Tokenizer, built: builders.BuiltTask) -> None:
    """Write into the config what the outputs mean, as transformers and sentence-transformers read it."""
    if built.head == "labels":
        bundle.config.pop("problem_type", None)
        if built.problem_type is not None:
            bundle.config["problem_type"] = built.problem_type
    if built.head != "tokens" and tokenizer.pad is None:
        # Other libraries pad batches with it; a model that reads a text's last token must know it, too.
        pad = builders.special_ids(tokenizer, bundle).pad
        bundle.config["pad_token_id"] = pad
        tokenizer.set_pad(pad)
    elif built.head == "labels" and bundle.config.get("pad_token_id") is None and tokenizer.pad is not None:
        bundle.config["pad_token_id"] = tokenizer.pad.id
    if built.pooling is not None:
        bundle.pooling = built.pooling
        bundle.files |= pooling_files(built.pooling, bundle.spec.head_tower.width, bundle.files)


def _texts(rows: Dataset) -> list[str]:
    """All texts of the training rows, to train a tokenizer on."""

    def texts_in(value: Any) -> Iterable[str]:
        if isinstance(value, str):
            yield value
        elif isinstance(value, list) and value and isinstance(value[0], dict) and "role" in value[0]:
            yield "\n".join(f"{message['role']}: {message_text(message)}" for message in value)
        elif isinstance(value, list) and value and isinstance(value[0], dict):  # tools
            yield json.dumps(value, ensure_ascii=False)
        elif isinstance(value, list):
            yield " ".join(str(item) for item in value)

    # Classes and numbers are not text, and an answer is part of its context.
    skip = {"label", "labels", "tags", "answers", "score", "answer"}
    return [
        text for row in rows.splits["train"] for k, v in row.items() if k not in skip for text in texts_in(v)
    ]


def _unknown_characters(tokenizer: Tokenizer, texts: Iterable[str], *, own: bool) -> list[str]:
    """A note if some characters of the training rows are not in the vocabulary."""
    if tokenizer.unk is None:
        return []
    counts = Counter(character for text in texts for character in text if not character.isspace())
    encodings = tokenizer.encode_batch([*counts], specials=False)
    unknown = [
        character
        for character, encoding in zip(counts, encodings, strict=True)
        if tokenizer.unk.id in encoding.ids
    ]
    if not unknown:
        return []
    count, total = sum(counts[character] for character in unknown), counts.total()
    shown = "".join(unknown[:12]) + ("…" if len(unknown) > 12 else "")
    way_out = "for all of them raise tokenizer.vocab" if own else "the vocabulary is the checkpoint's"
    return [
        f"{count:,} of {total:,} characters ({count / total:.2%}) are not in the vocabulary and are read as "
        f"{tokenizer.unk.text}: {shown}; {way_out}"
    ]


def _limit_length(run: RunConfig, base: Bundle, notes: list[str]) -> RunConfig:
    """`data.length` limited to the number of positions that a loaded model has."""
    positions = base.spec.max_length
    if positions is None or run.data.length <= positions:
        return run
    notes.append(
        f"data.length is {run.data.length}; the model has {positions} positions: taken as {positions}"
    )
    return replace(run, data=replace(run.data, length=positions))


def _with_fine_tuning_rate(run: RunConfig, base: Bundle, notes: list[str]) -> RunConfig:
    """A learning rate for a checkpoint, if none was set: wide models take smaller steps, adapters larger."""
    if run.train.lr is not None or isinstance(run.train.schedule, Noam):
        return run
    factor = 1.0 if base.tuning is None else base.tuning.rate
    rate = float(f"{factor * FINE_TUNING_RATE / base.spec.head_tower.width:.1e}")
    notes.append(f"learning rate {rate:g} for fine-tuning; --train.lr sets another")
    return replace(run, train=replace(run.train, lr=rate))


def _load_base(run: RunConfig) -> Bundle | None:
    """The model to fine-tune, if `model.family` names a checkpoint and not a family or a size."""
    name = _model_name(run)
    if not name or (name in NAMES and not Path(name).is_dir()):
        return None
    extra = sorted(set(run.model) - {"family", "edit", "quantize"})
    if extra and not Path(name).exists():
        return None  # the keys of a family whose name is wrong: `build` says which names there are
    if extra:
        raise InputError(f"a model from a folder has its own config; leave out {', '.join(extra)}")
    return load(name, edit=run.model.get("edit"), seed=run.train.seed)


def _model_name(run: RunConfig) -> str:
    return str(run.model.get("family", ""))


def _new_model(run: RunConfig, tokenizer: Tokenizer, built: builders.BuiltTask, notes: list[str]) -> Bundle:
    config = {key: value for key, value in run.model.items() if key not in ("family", "edit")}
    if "family" not in run.model:
        raise InputError("model.family is missing; name a family such as gpt2, or a folder")
    bundle = _build_model(run, built, config)
    length, positions = run.data.length, bundle.spec.max_length
    if positions is not None and positions < length:
        # RoBERTa's table counts two more than it can use, so the difference is added.
        raised = {
            key: value + length - positions
            for key, value in bundle.config.items()
            if key in SIZE_WORDS["positions"]
        }
        bundle = _build_model(run, built, config | raised)
        if (bundle.spec.max_length or length) < length:  # an edit put other positions into the model
            raise InputError(
                f"data.length is {length}, and the model has {positions} positions; lower the one or raise "
                f"the other in model.edit"
            )
        settings = ", ".join(f"model.{key} {value}" for key, value in raised.items())
        notes.append(f"positions raised to fit data.length {length}: {settings}")
    bundle.tokenizer = tokenizer
    bundle.generation = built.generation
    return bundle


def _build_model(run: RunConfig, built: builders.BuiltTask, config: Mapping[str, Any]) -> Bundle:
    name = str(run.model["family"])
    family, sizes = family_and_config(name)
    with _build_errors(config):
        changes = {
            **built.config,
            **family.head_config.get(built.head, {}),
            **config_from_words(family, config),
        }
        _check_fits(spec_of(family, family.config({**sizes, **changes}), built.head).count())
        return build(name, task=built.head, seed=run.train.seed, edit=run.model.get("edit"), **changes)


def _check_fits(parameters: int) -> None:
    """Weights, gradients and two moments in float32; nothing is allocated before this is known to fit."""
    needed, free = 16 * parameters, available_memory()
    if free is not None and needed > free:
        raise InputError(
            f"training {parameters:,} parameters takes {needed / 1e9:.3g} GB for weights, gradients and "
            f"moments, and {free / 1e9:.3g} GB are free; take a smaller model: --model.width, --model.depth"
        )


@contextmanager
def _build_errors(config: Mapping[str, Any]) -> Iterator[None]:
    """Report model settings that cannot be built (wrong types, impossible sizes) in one line."""
    for key, value in config.items():
        if "layer" in key and isinstance(value, int) and value > MAX_LAYERS:
            raise InputError(f"model.{key} is {quoted(value)}; expected at most {MAX_LAYERS:,}")
    try:
        yield
    except ClearheadError:
        raise
    except (TypeError, ValueError, RuntimeError, ArithmeticError, LookupError, MemoryError) as error:
        raise InputError(f"the model cannot be built from its settings: {reason(error)[:120]}") from None
