"""Rows of a run: the named source in; canonical rows by split, and what was noticed on the way, out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..data.documents import documents
from ..data.heldout import is_held_out
from ..data.kinds import KINDS, BlankError
from ..data.shapes import Shape, detect
from ..data.source import Source
from ..data.sources import read_splits
from ..errors import DataError, InputError
from .settings import Run

Row = dict[str, Any]
# What each task learns from: the forms of rows it can take.
FORMS: dict[str, tuple[str, ...]] = {
    "translate": ("pair", "prompt"),
    "causal": ("text", "prompt", "pair", "messages"),
    "masked": ("text",),
    "pretrain": ("text",),
    "denoise": ("text",),
    "spans": ("text",),
    "classify": ("label",),
    "tag": ("tags",),
    "answer": ("answer",),
}
ONE_IN = 20  # without a split of its own, every twentieth text is held out


@dataclass(frozen=True)
class Rows:
    splits: Mapping[str, list[Row]]
    shape: Shape
    hashes: Mapping[str, str]
    notes: tuple[str, ...]
    labels: tuple[str, ...] = ()  # those that a model to go on from knows, in its order


def read(run: Run) -> Rows:
    if run.data.source is None:
        raise InputError(f"the recipe needs a file of your own: clearhead train {run.task} FILE")
    sources = dict(read_splits(run.data.source))
    if run.data.valid is not None:
        sources["valid"] = next(iter(read_splits(run.data.valid).values()))
    first = sources.get("train") or next(iter(sources.values()))
    shape = _fitting(run, first)
    notes: list[str] = []
    if _is_prose(run, first):
        splits = {
            name: [{"text": text} for text in documents(source, shape, by="file")]
            for name, source in sources.items()
        }
    else:
        splits = {name: _canonical(source, shape, name, notes) for name, source in sources.items()}
    if "valid" not in splits:
        splits = _held_out(splits, notes)
    hashes = {name: value for source in sources.values() for name, value in source.hashes().items()}
    return Rows(splits, shape, hashes, tuple(notes))


def _fitting(run: Run, source: Source) -> Shape:
    shapes = detect(source, run.data.map)
    for shape in shapes:  # the likeliest reading first
        if shape.form in FORMS[run.task]:
            return shape
    wanted = " or ".join(FORMS[run.task])
    roles = " ".join(f"{role}=COLUMN" for role in KINDS[FORMS[run.task][0]].roles)
    columns = ", ".join(source.columns)[:120]
    raise InputError(
        f"the rows look like {shapes[0]}, and {run.task} needs {wanted}; say which columns these are: "
        f"--map {roles}, from {columns}"
    )


def _canonical(source: Source, shape: Shape, split: str, notes: list[str]) -> list[Row]:
    rows, blank = [], 0
    for number in range(len(source)):
        try:
            rows.append(shape.read(source[number]))
        except BlankError:
            blank += 1
        except DataError as error:
            raise DataError(f"{source.where(number)}: {error}") from None
    if blank:
        notes.append(f"{split}: {blank:,} empty rows left out")
    return rows


def _is_prose(run: Run, source: Source) -> bool:
    """Where order matters a plain text file is one text; elsewhere a line is a row."""
    names = [Path(file.name) for file in source.files]
    return (
        run.task in ("causal", "pretrain") and bool(names) and all(".txt" in name.suffixes for name in names)
    )


def _held_out(splits: Mapping[str, list[Row]], notes: list[str]) -> dict[str, list[Row]]:
    """A validation split where none was given: by the text itself, so that equal texts stay together."""
    rows = splits.get("train") or next(iter(splits.values()))
    if len(rows) == 1 and "text" in rows[0]:  # one long text: its last tenth
        text = rows[0]["text"]
        at = int(len(text) * 0.9)
        notes.append(f"valid: the last tenth of the text, {len(text) - at:,} characters")
        return {**splits, "train": [{"text": text[:at]}], "valid": [{"text": text[at:]}]}
    held = [row for row in rows if is_held_out(_question(row), one_in=ONE_IN)]
    kept = [row for row in rows if not is_held_out(_question(row), one_in=ONE_IN)]
    if not held or not kept:
        different = len({_question(row) for row in rows})
        raise DataError(
            f"{len(rows)} rows with {different} different texts are too few to hold some out "
            f"(equal texts stay together); give --data.valid FILE"
        )
    notes.append(f"valid: {len(held):,} of {len(rows):,} rows held out by their text")
    return {**splits, "train": kept, "valid": held}


def _question(row: Row) -> str:
    """What the model is shown, not what it is to answer: rows that ask the same stay on one side."""
    answers = {"tgt", "completion", "label", "tags", "answers"}
    return str(sorted((role, value) for role, value in row.items() if role not in answers))
