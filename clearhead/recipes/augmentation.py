"""Augmentation of a dataset: training rows in; the same rows, perturbed copies and back-translations out.

`data.augment` (see `data.augment.Augment`) adds copies of rows whose input has words deleted, swapped or
mistyped; targets stay as they are. `data.back` translates texts of the target language with a model of the
reverse direction, and adds those pairs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from ..bundle import load
from ..data import Augment, Row, back_translate, read_lexicon, read_rows
from ..errors import InputError, nearest, quoted
from .rows import Dataset
from .settings import RunConfig

# The column that may be perturbed, by form of the rows. Not tags: a deleted word would leave its tag behind.
INPUT_COLUMN = {"text": "text", "pair": "src", "prompt": "prompt", "label": "text"}

MAX_COPIES = 1000


def augment(run: RunConfig, rows: Dataset) -> Dataset:
    rows = _copies(run, rows, run.data.augment) if run.data.augment else rows
    return _back(rows, run.data.back) if run.data.back else rows


def _copies(run: RunConfig, rows: Dataset, given: Mapping[str, Any]) -> Dataset:
    names = ["copies", *(f.name for f in fields(Augment))]
    _known("data.augment", given, names)
    side = INPUT_COLUMN.get(rows.schema.form)
    if side is None:
        able = ", ".join(INPUT_COLUMN)
        raise InputError(f"rows of {rows.schema.form} cannot be augmented; rows of {able} can")
    settings = {key: value for key, value in given.items() if key != "copies"}
    if "lexicon" in settings:
        _named("data.augment.lexicon", settings["lexicon"])
        settings["lexicon"] = read_lexicon(settings["lexicon"])
    for key, value in settings.items():
        if key != "lexicon" and type(value) not in (int, float):
            raise InputError(f"data.augment.{key} is {quoted(value)}; expected a probability from 0 to 1")
    change, train = Augment(**settings), rows.splits["train"]
    copies = given.get("copies", 1)
    if type(copies) not in (int, float) or not 1 <= copies <= MAX_COPIES:
        raise InputError(f"data.augment.copies is {quoted(copies)}; expected 1 or more, up to {MAX_COPIES}")
    copies = int(copies)
    new = [
        {**row, side: change(row[side], seed=run.train.seed, row=number, epoch=copy)}
        for copy in range(1, copies + 1)
        for number, row in enumerate(train)
    ]
    new = [row for number, row in enumerate(new) if row != train[number % len(train)]]
    return _with(rows, new, f"train: {len(new):,} changed copies added to {len(train):,} rows")


def _back(rows: Dataset, given: Mapping[str, Any]) -> Dataset:
    _known("data.back", given, ["model", "texts"])
    if set(given) != {"model", "texts"}:
        raise InputError(
            "data.back needs both: model, a folder that translates back; texts, a file of targets"
        )
    if rows.schema.form != "pair":
        raise InputError(f"back-translation makes pairs of texts; the rows here are {rows.schema.form}")
    for key in ("model", "texts"):
        _named(f"data.back.{key}", given[key])
    reverse = load(str(given["model"]))
    source = read_rows(given["texts"])
    texts = [str(next(iter(row.values()))) for row in source]
    new: list[Row] = list(back_translate(texts, lambda targets: reverse.generate(list(targets))))
    rows = replace(rows, hashes={**rows.hashes, **source.hashes()})
    return _with(rows, new, f"train: {len(new):,} pairs by back-translation of {len(texts):,} texts")


def _with(rows: Dataset, new: list[Row], note: str) -> Dataset:
    splits = {**rows.splits, "train": [*rows.splits["train"], *new]}
    return replace(rows, splits=splits, notes=(*rows.notes, note))


def _named(what: str, given: Any) -> None:
    if not isinstance(given, str):
        raise InputError(f"{what} is {quoted(given)}; expected the name of a file or a folder")


def _known(what: str, given: Mapping[str, Any], names: list[str]) -> None:
    for key in given:
        if key not in names:
            raise InputError(f"{what} has no setting {key!r}; {nearest(str(key), names)}")
