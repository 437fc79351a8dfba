"""The dataset of a run: a file, folder or corpus in; rows by split and notes about them out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from ..bundle import Bundle
from ..data import (
    ROW_KINDS,
    BlankError,
    Row,
    Schema,
    Source,
    detect_schemas,
    documents,
    is_held_out,
    read_splits,
    split_of,
    text_hash,
)
from ..errors import DataError, InputError
from .settings import RECIPES_OF_TASK, TASKS, RunConfig

HOLD_OUT_ONE_IN = 20  # without a validation split, every twentieth text is held out
# Of fewer rows more: three rows could not tell two models apart.
HELD_OUT_OF_FEW = {200: 0.2, 1000: 0.1}  # up to this many rows: the share of the texts
SPLIT_COLUMN = "split"


@dataclass(frozen=True)
class Dataset:
    splits: Mapping[str, list[Row]]
    schema: Schema
    hashes: Mapping[str, str]
    notes: tuple[str, ...]
    labels: tuple[str, ...] = ()  # the label names of the model to fine-tune, by class index
    base: Bundle | None = None  # the model to fine-tune

    @property
    def training(self) -> list[Row]:
        return self.splits["train"]


def read_dataset(run: RunConfig, given: Mapping[str, Source] | None = None) -> Dataset:
    """`given` are rows in memory by split, instead of `data.source`."""
    if given is None and run.data.source is None:
        raise InputError(f"this recipe needs your own file: clearhead train {run.task} FILE")
    parallel = TASKS[run.task][0] == "pair"  # two files are the two sides
    sources = dict(read_splits(run.data.source or (), parallel=parallel) if given is None else given)
    if run.data.valid is not None:
        sources["valid"] = next(iter(read_splits(run.data.valid).values()))
    first = sources.get("train") or next(iter(sources.values()))
    schema = _schema_for_task(run, first)
    notes: list[str] = []
    if _is_plain_text(run, first):
        splits = {
            name: [{"text": text} for text in documents(source, schema, by="file")]
            for name, source in sources.items()
        }
    else:
        splits = {name: _read_rows(source, schema, name, notes) for name, source in sources.items()}
        if list(splits) == ["train"] and (named := _by_split_column(first, schema)):
            splits = named
            counts = ", ".join(f"{len(rows):,} {name}" for name, rows in splits.items())
            notes.append(f"the column {SPLIT_COLUMN!r} says which rows are for what: {counts}")
    if "valid" not in splits:
        splits = _hold_out(splits, notes)
    hashes = {name: value for source in sources.values() for name, value in source.hashes().items()}
    if not hashes:  # rows in memory
        hashes = {split: _hash(rows) for split, rows in splits.items()}
    return Dataset(splits, schema, hashes, tuple(notes))


def _hash(rows: list[Row]) -> str:
    return sha256(json.dumps(rows, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def _schema_for_task(run: RunConfig, source: Source) -> Schema:
    schemas = detect_schemas(source, run.data.map)
    for schema in schemas:  # most likely first
        if schema.form in TASKS[run.task]:
            return schema
    expected = " or ".join(TASKS[run.task])
    name = RECIPES_OF_TASK.get(run.task, run.task)
    roles = " ".join(f"{role}=COLUMN" for role in ROW_KINDS[TASKS[run.task][0]].roles)
    columns = ", ".join(source.columns)[:120]
    learner = next((task for task, forms in TASKS.items() if schemas[0].form == forms[0]), None)
    other = f"train them with {RECIPES_OF_TASK.get(learner, learner)}, or " if learner else ""
    raise InputError(
        f"the rows look like {schemas[0]}, and {name} needs {expected}; {other}name the columns: "
        f"--map {roles}, from {columns}"
    )


def _read_rows(source: Source, schema: Schema, split: str, notes: list[str]) -> list[Row]:
    rows, blank = [], 0
    for number in range(len(source)):
        try:
            rows.append(schema.read(source[number]))
        except BlankError:
            blank += 1
        except DataError as error:
            raise DataError(f"{source.where(number)}: {error}") from None
    if blank:
        notes.append(f"{split}: {blank:,} empty rows left out")
    return rows


def _by_split_column(source: Source, schema: Schema) -> dict[str, list[Row]] | None:
    """Rows by what a column called split says, if it says it of every row: train, validation, test."""
    if SPLIT_COLUMN not in source.columns or SPLIT_COLUMN in schema.columns.values():
        return None
    splits: dict[str, list[Row]] = {"train": []}
    for row in source:
        name = split_of(str(row.get(SPLIT_COLUMN)))
        if name is None:
            return None
        with suppress(BlankError):
            splits.setdefault(name, []).append(schema.read(row))
    return splits if splits["train"] else None


def _is_plain_text(run: RunConfig, source: Source) -> bool:
    """Whether plain text files are read whole; for tasks that ignore order each line is a row."""
    names = [Path(file.name) for file in source.files]
    return (
        run.task in ("causal", "pretrain") and bool(names) and all(".txt" in name.suffixes for name in names)
    )


def _hold_out(splits: Mapping[str, list[Row]], notes: list[str]) -> dict[str, list[Row]]:
    """Add a validation split, chosen by a hash of the input, so that equal inputs are on one side."""
    rows = splits.get("train") or next(iter(splits.values()))
    if not rows:
        raise DataError(f"no row can be used: {'; '.join(notes) or 'the file has none'}")
    if len(rows) == 1 and rows[0].keys() == {"text"}:  # one long text: its last tenth
        text = rows[0]["text"]
        at = int(len(text) * 0.9)
        notes.append(f"valid: the last tenth of the text, {len(text) - at:,} characters")
        return {**splits, "train": [{"text": text[:at]}], "valid": [{"text": text[at:]}]}
    held_out = _held_out_inputs(rows)
    train = [row for row in rows if _input_of(row) not in held_out]
    known = {label for row in train for label in _labels_of(row)}
    # A label that no training row has could not be learned: its rows are kept for training.
    rare = {_input_of(row) for row in rows if not known >= set(_labels_of(row))}
    valid = [row for row in rows if _input_of(row) in held_out - rare]
    train = [row for row in rows if _input_of(row) not in held_out - rare]
    if not valid or not train:
        different = len({_input_of(row) for row in rows})
        raise DataError(
            f"{len(rows)} rows with {different} different texts are too few to hold some out "
            f"(equal texts stay together); give --valid FILE"
        )
    notes.append(
        f"valid: {len(valid):,} of {len(rows):,} rows held out by their text; --valid FILE sets others"
    )
    return {**splits, "train": train, "valid": valid}


def _held_out_inputs(rows: list[Row]) -> set[str]:
    """By a hash of the input: of many rows about one in twenty, of few rows a larger share."""
    inputs = {_input_of(row) for row in rows}
    for most, share in HELD_OUT_OF_FEW.items():
        if len(rows) <= most:
            return set(sorted(inputs, key=text_hash)[: max(round(share * len(inputs)), 1)])
    return {text for text in inputs if is_held_out(text, one_in=HOLD_OUT_ONE_IN)}


def _labels_of(row: Row) -> list[str]:
    """The classes of a row, whatever its form: of its text, or of its words."""
    one = [row["label"]] if "label" in row else []
    return [*one, *row.get("labels", ()), *row.get("tags", ())]


def _input_of(row: Row) -> str:
    """The input of a row without its target."""
    targets = {"tgt", "completion", "label", "labels", "score", "tags", "answers", "answer"}
    return str(sorted((role, value) for role, value in row.items() if role not in targets))
