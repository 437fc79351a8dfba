"""Preparing a run: its settings in; a bundle with a tokenizer, and the task it is to learn, out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..bundle import Bundle, build, load
from ..errors import ClearheadError, InputError, quoted, reason
from ..tasks import Task
from ..text import Tokenizer, train_tokenizer
from . import builders
from .augmentation import augment
from .rows import Dataset, read_dataset
from .settings import RunConfig

NAMED_HEADS = {"classify": "labels", "tag": "tags"}  # tasks whose head has named classes, and its kind
# The config keys for the number of learned positions.
POSITIONS = (
    "max_position_embeddings", "n_positions", "max_encoder_position_embeddings",
    "max_decoder_position_embeddings",
)  # fmt: skip
MAX_LAYERS = 10_000  # ten times more than any published model has


@dataclass(frozen=True)
class PreparedRun:
    run: RunConfig
    rows: Dataset
    bundle: Bundle
    task: Task[Any]
    notes: tuple[str, ...]


def prepare(run: RunConfig, progress: Callable[[str], None] = lambda line: None) -> PreparedRun:
    """Read the rows, get or train the tokenizer, build or load the model, and put the task together."""
    rows = augment(run, read_dataset(run))
    builder = builders.BUILDERS[run.task]
    base = _load_base(run)
    tokenizer = base.tokenizer if base is not None else None
    if base is not None:
        rows = replace(rows, labels=_label_names(base) if base.task == NAMED_HEADS.get(run.task) else ())
    if tokenizer is None:
        progress(f"tokenizer  {run.tokenizer.kind}, up to {run.tokenizer.vocab:,} tokens")
        tokenizer = train_tokenizer(
            _texts(rows),
            run.tokenizer.kind,
            vocab=run.tokenizer.vocab,
            frame=builder.frame,
            lower=builder.lower,
        )
    notes = [*rows.notes, *_unknown_characters(tokenizer, _texts(rows))]
    if base is not None:
        run = _limit_length(run, base, notes)
    built = builder.build(run, rows, tokenizer, notes)
    if base is None:
        return PreparedRun(run, rows, _new_model(run, tokenizer, built, notes), built.task, tuple(notes))
    if base.task != built.head:
        raise InputError(
            f"{run.model['family']} has a head for {base.task}, and the task {run.task!r} needs one for "
            f"{built.head}; start from a checkpoint of that kind, or without --from"
        )
    return PreparedRun(run, rows, _with_label_names(base, built), built.task, tuple(notes))


def _label_names(base: Bundle) -> tuple[str, ...]:
    """The label names of a checkpoint by class index; none if they are still transformers' LABEL_0, ..."""
    if base.task not in ("labels", "tags"):
        return ()
    names = [name for _, name in sorted(base.labels.items())]
    return () if all(name == f"LABEL_{i}" for i, name in enumerate(names)) else tuple(names)


def _with_label_names(base: Bundle, built: builders.BuiltTask) -> Bundle:
    """A head whose labels are unnamed takes the names of the data, if there are as many."""
    names = built.config.get("id2label", {})
    if base.task not in ("labels", "tags") or _label_names(base):
        return base
    count = len(base.labels) or int(base.config.get("num_labels") or 2)
    if count != len(names):
        raise InputError(f"the model to fine-tune has {count} labels, the training rows have {len(names)}")
    base.config |= {"id2label": names, "label2id": {name: int(i) for i, name in names.items()}}
    return base


def _texts(rows: Dataset) -> list[str]:
    """All texts of the training rows, to train a tokenizer on."""

    def texts_in(value: Any) -> Iterable[str]:
        if isinstance(value, str):
            yield value
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            yield "\n".join(f"{message['role']}: {message['content']}" for message in value)
        elif isinstance(value, list):
            yield " ".join(str(item) for item in value)

    skip = {"label", "tags", "answers"}  # classes are not text, and an answer is part of its context
    return [
        text for row in rows.splits["train"] for k, v in row.items() if k not in skip for text in texts_in(v)
    ]


def _unknown_characters(tokenizer: Tokenizer, texts: Iterable[str]) -> list[str]:
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
    return [
        f"{count:,} of {total:,} characters ({count / total:.2%}) are not in the vocabulary and are read as "
        f"{tokenizer.unk.text}: {shown}; for all of them raise tokenizer.vocab"
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


def _load_base(run: RunConfig) -> Bundle | None:
    """The model to fine-tune, if `model.family` names a folder."""
    name = str(run.model.get("family", ""))
    if not Path(name).is_dir():
        return None
    extra = sorted(set(run.model) - {"family", "edit"})
    if extra:
        raise InputError(f"a model from a folder has its own config; leave out {', '.join(extra)}")
    return load(name, edit=run.model.get("edit"), seed=run.train.seed)


def _new_model(run: RunConfig, tokenizer: Tokenizer, built: builders.BuiltTask, notes: list[str]) -> Bundle:
    config = {key: value for key, value in run.model.items() if key not in ("family", "edit")}
    if "family" not in run.model:
        raise InputError("model.family is missing; name a family such as gpt2, or a folder")
    bundle = _build_model(run, built, config)
    length, positions = run.data.length, bundle.spec.max_length
    if positions is not None and positions < length:
        # RoBERTa's table counts two more than it can use, so the difference is added.
        raised = {key: value + length - positions for key, value in bundle.config.items() if key in POSITIONS}
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
    with _build_errors(config):
        return build(
            str(run.model["family"]),
            task=built.head,
            seed=run.train.seed,
            edit=run.model.get("edit"),
            **{**built.config, **config},
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
