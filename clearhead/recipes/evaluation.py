"""Evaluation: a model and a data file in; scores, and what the model predicted for each row, out.

The task follows from the head of the model and the rows of the file. It is built as for training, from the
same builders, with the labels of the model instead of those of the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..bundle import Bundle
from ..data import (
    ROW_KINDS,
    BlankError,
    Row,
    Schema,
    Source,
    detect_schemas,
    documents,
    language_of,
    read_rows,
    read_splits,
)
from ..errors import DataError, InputError, quoted, shortened
from ..tasks import QuestionAnswering
from ..train import Training
from . import builders
from .evaluation_report import EvaluationReport, report_on
from .prepare import PreparedRun
from .rows import Dataset
from .settings import TASKS, DataConfig, RunConfig

SPLIT = "test"
EVALUATION_LENGTH = 512  # tokens of a text, if neither the model nor the user says less
TEXT_LENGTH = 1024  # the same for language models: perplexity falls with the context
BATCH_TOKENS = 2048  # per batch; logits over a large vocabulary take most of the memory
TRAINING_ROWS = 200  # builders want a training split, too
EXCHANGEABLE = ("label", "labels", "score")  # forms that differ only in how one column is read
TASK_OF_HEAD = {"tags": "tag", "span": "answer", "choice": "choose", "hidden": "embed", "encoder": "embed"}
Purpose = tuple[str, tuple[str, ...]]  # a task, and the forms of rows it takes


def evaluate_file(
    bundle: Bundle,
    file: str | Sequence[str],
    *,
    split: str | None = None,
    mapping: Mapping[str, str] | None = None,
    settings: RunConfig | None = None,
    length: int | None = None,
    batch_size: int | None = None,
    prefix: str | None = None,
) -> EvaluationReport:
    """Score any checkpoint on any file that has rows for its head.

    `settings` are those of the run that trained it, if it is one: its columns, length, prefix and template.
    """
    if bundle.tokenizer is None:
        raise InputError("eval reads texts, and this model came without a tokenizer (tokenizer.json)")
    source = _read_source(file, split)
    task, schema = _task_and_schema(bundle, source, _mapping(source, mapping, settings), settings)
    notes: list[str] = []
    rows, places = _read(source, schema, notes, whole=task == "causal" and _is_text_file(source))
    labels = label_names(bundle) if task in ("classify", "tag") else []
    if labels:
        rows = _with_model_labels(rows, places, labels, notes)
    if len(source.files) == 1:  # lines of one file need no name
        places = [place.removeprefix(f"{source.files[0].name} ") for place in places]
    run = _run_config(bundle, task, settings, length, batch_size, prefix, notes)
    language = None
    if task == "translate":
        target = "tgt" if schema.form == "pair" else "completion"
        language = run.data.language or language_of([row[target] for row in rows])
        run = replace(run, data=replace(run.data, language=language))
    # The range of similarity scores is that of all rows; the other builders need only some.
    train = rows if task == "embed" else rows[:TRAINING_ROWS]
    dataset = Dataset({"train": train, SPLIT: rows}, schema, source.hashes(), (), tuple(labels), bundle)
    tokenizer = bundle.tokenizer.copy()  # it may be given a chat template
    built: Any = builders.BUILDERS[task].build(run, dataset, tokenizer, notes).task
    notes = [note.removeprefix(f"{SPLIT}: ") for note in notes if not note.startswith("train: ")]
    return report_on(
        task, built.evaluate(bundle.model, SPLIT), _examples(built, SPLIT), rows, schema.form,
        bundle.tokenizer,
        origins=_origins(built, SPLIT), places=places, notes=notes, language=language,
    )  # fmt: skip


def evaluate_run(prepared: PreparedRun, bundle: Bundle, split: str) -> EvaluationReport:
    """Score a run on one of its own splits; `bundle` is its model, perhaps quantized."""
    if split not in prepared.rows.splits:
        raise InputError(f"there is no split {split!r}; there are {', '.join(prepared.rows.splits)}")
    assert prepared.bundle.tokenizer is not None  # a run has trained one, or came with one
    task: Any = prepared.task
    start = f"{split}: "
    notes = [note.removeprefix(start) for note in prepared.notes if note.startswith(start)]
    return report_on(
        prepared.run.task,
        task.evaluate(bundle.model, split),
        _examples(task, split),
        prepared.rows.splits[split],
        prepared.rows.schema.form,
        prepared.bundle.tokenizer,
        origins=_origins(task, split),
        notes=notes,
        language=task.language if prepared.run.task == "translate" else None,
    )


def _examples(task: Any, split: str) -> Sequence[Any]:
    """The examples that outcomes number: those of a split, or the questions they are parts of."""
    return task.questions(split) if isinstance(task, QuestionAnswering) else task.splits[split]


def _origins(task: Any, split: str) -> Sequence[int] | None:
    """The row of each example, for language models: a chat may be several examples, or too long for one."""
    origins: Mapping[str, Sequence[int]] | None = getattr(task, "origins", None)
    return None if origins is None else origins[split]


def _read_source(file: str | Sequence[str], split: str | None) -> Source:
    """The named split; of a folder without a choice its test rows, or its validation rows."""
    if split is not None:
        return read_rows(file, split=split)
    splits = read_splits(file)
    return next(splits[name] for name in ("test", "valid", "train") if name in splits)


def _mapping(
    source: Source, given: Mapping[str, str] | None, settings: RunConfig | None
) -> Mapping[str, str] | None:
    """What the user names; else the columns of the run, if this file has them, too."""
    if given or settings is None or not settings.data.map:
        return given
    known = all(column.partition(".")[0] in source.columns for column in settings.data.map.values())
    return settings.data.map if known else None


def purposes(bundle: Bundle) -> list[Purpose]:
    """The tasks that the head of a model can be evaluated on, and the forms of rows they take."""
    if bundle.task == "labels" and _is_regression(bundle):
        return [("regress", ("score",))]
    if bundle.task == "labels":
        several = bundle.config.get("problem_type") == "multi_label_classification"
        return [("classify", ("labels",) if several else ("label",))]
    if bundle.task in ("tokens", "pretrain", "decoder"):
        if bundle.spec.is_encoder_decoder:
            return [("translate", TASKS["translate"])]
        return [("causal", TASKS["causal"])] if bundle.spec.generates else [("masked", TASKS["masked"])]
    if bundle.task not in TASK_OF_HEAD:
        raise InputError(f"a model with the head {bundle.task!r} cannot be evaluated on a file")
    task = TASK_OF_HEAD[bundle.task]
    return [(task, TASKS[task])]


def _is_regression(bundle: Bundle) -> bool:
    problem = bundle.config.get("problem_type")
    return problem == "regression" or (problem is None and len(label_names(bundle)) == 1)


def _task_and_schema(
    bundle: Bundle, source: Source, mapping: Mapping[str, str] | None, settings: RunConfig | None
) -> tuple[str, Schema]:
    options = purposes(bundle)
    if settings is not None and settings.task not in [task for task, _ in options]:
        options.insert(0, (settings.task, TASKS[settings.task]))  # as it was trained: denoise, spans, ...
    schemas: tuple[Schema, ...] = ()
    undetected: InputError | None = None
    try:
        schemas = detect_schemas(source, mapping)
    except InputError as error:
        undetected = error
    for task, forms in options:
        if schema := _fitting(schemas, forms):
            return task, schema
    task, forms = options[-1]
    if task == "classify" and not mapping and (found := _by_model_labels(source, label_names(bundle))):
        return task, found
    if undetected is not None:
        raise undetected
    roles = " ".join(f"{role}=COLUMN" for role in ROW_KINDS[forms[0]].roles)
    raise InputError(
        f"this model has the head {bundle.task!r} and takes rows of {' or '.join(forms)}; these look "
        f"like {schemas[0]}: name the columns with --map {roles}, from {', '.join(source.columns)[:80]}"
    )


def _fitting(schemas: Sequence[Schema], forms: Sequence[str]) -> Schema | None:
    """The first schema of one of these forms. A column of labels may be read as numbers, or the reverse, if
    that is what the model outputs.
    """
    for schema in schemas:
        if schema.form in forms:
            return schema
    for schema in schemas:
        wanted = next((form for form in forms if form in EXCHANGEABLE), None)
        if wanted is not None and schema.kind in EXCHANGEABLE:
            columns = {wanted if r == schema.kind else r: column for r, column in schema.columns.items()}
            return Schema(wanted, columns, schema.reason)
    return None


def _by_model_labels(source: Source, labels: Sequence[str]) -> Schema | None:
    """The label column by its values: all of them are labels of the model. The text is the longest other."""
    sample = [source[i] for i in range(min(len(source), 200))]
    named = [c for c in source.columns if all(str(row.get(c)).strip() in labels for row in sample)]
    others = [c for c in source.columns if c not in named]
    if len(named) != 1 or not others:
        return None
    text = max(others, key=lambda column: sum(len(str(row.get(column))) for row in sample))
    columns = {"text": text, "label": named[0]}
    return Schema("label", columns, f"{named[0]} holds labels of the model")


def _is_text_file(source: Source) -> bool:
    names = [Path(file.name) for file in source.files]
    return bool(names) and source.columns == ("text",) and all(".txt" in name.suffixes for name in names)


def _read(source: Source, schema: Schema, notes: list[str], *, whole: bool) -> tuple[list[Row], list[str]]:
    """The rows in their canonical form, and where each is in its file; `whole` reads prose file by file."""
    if whole:
        return [{"text": text} for text in documents(source, schema, by="file")], []
    rows, places, blank = [], [], 0
    for number in range(len(source)):
        try:
            rows.append(schema.read(source[number]))
            places.append(source.where(number))
        except BlankError:
            blank += 1
        except DataError as error:
            raise DataError(f"{source.where(number)}: {error}") from None
    if blank:
        notes.append(f"{blank:,} empty rows left out")
    if not rows:
        raise DataError(f"all {len(source):,} rows are empty; expected at least one of {schema}")
    return rows, places


def label_names(bundle: Bundle) -> list[str]:
    """The names of the classes by index; LABEL_0, ... where nobody named them."""
    count = len(bundle.labels) or int(bundle.config.get("num_labels") or 2)
    return [bundle.labels.get(i, f"LABEL_{i}") for i in range(count)]


def _with_model_labels(
    rows: list[Row], places: Sequence[str], names: Sequence[str], notes: list[str]
) -> list[Row]:
    """The rows with the label names of the model; class indices are understood, other names are an error."""
    role = next(role for role in ("label", "labels", "tags") if role in rows[0])
    values = [row[role] if isinstance(row[role], list) else [row[role]] for row in rows]
    found = {each for row in values for each in row}
    if found <= set(names):
        return rows
    what = "tag" if role == "tags" else "label"
    # Names that are numbers themselves are no indices of each other.
    numbers = any(name.isdecimal() for name in names)
    if numbers or not all(each.isdecimal() and int(each) < len(names) for each in found):
        place, name = next(
            (place, each)
            for place, row in zip(places, values, strict=True)
            for each in row
            if each not in names
        )
        raise DataError(
            f"{place}: the {what} {quoted(name)} is not one of the model's: {shortened(', '.join(names), 80)}"
        )
    shown = ", ".join(f"{i} = {name}" for i, name in enumerate(names))
    notes.append(f"the {what}s are read as class indices: {shortened(shown, 80)}")
    named = [[names[int(each)] for each in row] for row in values]
    return [
        {**row, role: new if isinstance(row[role], list) else new[0]}
        for row, new in zip(rows, named, strict=True)
    ]


def _run_config(
    bundle: Bundle, task: str, settings: RunConfig | None, length: int | None, batch_size: int | None,
    prefix: str | None, notes: list[str],
) -> RunConfig:  # fmt: skip
    """How the rows are read: as in the run that trained the model, or as long as the model allows."""
    for option, value in (("--max-length", length), ("--batch-size", batch_size)):
        if value is not None and value < 1:
            raise InputError(f"{option} is {value}; expected 1 or more")
    data = settings.data if settings is not None else DataConfig(truncate="source")
    default = data.length if settings is not None else TEXT_LENGTH if task == "causal" else EVALUATION_LENGTH
    pooled = (bundle.pooling or {}).get("max_seq_length") if task == "embed" else None
    wanted, positions = length or pooled or default, bundle.spec.max_length
    taken = min(wanted, positions or wanted)
    if length is not None and taken < length:
        notes.append(f"--max-length is {length}; the model has {positions} positions: taken as {taken}")
    data = replace(
        data, length=taken, tokens=max(BATCH_TOKENS, 2 * taken), rows=max(BATCH_TOKENS // taken, 1),
        batch_size=batch_size, prefix=data.prefix if prefix is None else prefix, augment=None, back=None,
    )  # fmt: skip
    seed = settings.train.seed if settings is not None else 0  # of the masks of a masked language model
    return RunConfig(task=task, data=data, train=Training(steps=1, seed=seed))
