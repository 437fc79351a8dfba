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
from ..errors import InputError, quoted
from .checks import check_keys
from .rows import Dataset
from .settings import RunConfig

# The column that may be perturbed, by form of the rows. Not tags: a deleted word would leave its tag behind.
INPUT_COLUMN = {"text": "text", "pair": "src", "prompt": "prompt", "label": "text"}

MAX_COPIES = 1000


def augment(run: RunConfig, rows: Dataset) -> Dataset:
    rows = _add_copies(run, rows, run.data.augment) if run.data.augment else rows
    return _add_back_translations(rows, run.data.back) if run.data.back else rows


def _add_copies(run: RunConfig, rows: Dataset, options: Mapping[str, Any]) -> Dataset:
    names = ["copies", *(f.name for f in fields(Augment))]
    check_keys("data.augment", options, names)
    column = INPUT_COLUMN.get(rows.schema.form)
    if column is None:
        supported = ", ".join(INPUT_COLUMN)
        raise InputError(f"rows of {rows.schema.form} cannot be augmented; rows of {supported} can")
    settings = {key: value for key, value in options.items() if key != "copies"}
    if "lexicon" in settings:
        _check_is_name("data.augment.lexicon", settings["lexicon"])
        settings["lexicon"] = read_lexicon(settings["lexicon"])
    for key, value in settings.items():
        if key != "lexicon" and type(value) not in (int, float):
            raise InputError(f"data.augment.{key} is {quoted(value)}; expected a probability from 0 to 1")
    perturb, train = Augment(**settings), rows.splits["train"]
    copies = options.get("copies", 1)
    if type(copies) not in (int, float) or not 1 <= copies <= MAX_COPIES:
        raise InputError(f"data.augment.copies is {quoted(copies)}; expected 1 or more, up to {MAX_COPIES}")
    copies = int(copies)
    new = [
        {**row, column: perturb(row[column], seed=run.train.seed, row=number, epoch=copy)}
        for copy in range(1, copies + 1)
        for number, row in enumerate(train)
    ]
    # Copies in which nothing was changed would only be duplicates.
    new = [row for number, row in enumerate(new) if row != train[number % len(train)]]
    return _with_rows(rows, new, f"train: {len(new):,} changed copies added to {len(train):,} rows")


def _add_back_translations(rows: Dataset, options: Mapping[str, Any]) -> Dataset:
    check_keys("data.back", options, ["model", "texts"])
    if set(options) != {"model", "texts"}:
        raise InputError(
            "data.back needs both: model, a folder that translates back; texts, a file of targets"
        )
    if rows.schema.form != "pair":
        raise InputError(f"back-translation creates pairs of texts; the rows here are {rows.schema.form}")
    for key in ("model", "texts"):
        _check_is_name(f"data.back.{key}", options[key])
    reverse = load(str(options["model"]))
    source = read_rows(options["texts"])
    texts = [str(next(iter(row.values()))) for row in source]
    new: list[Row] = list(back_translate(texts, lambda targets: reverse.generate(list(targets))))
    rows = replace(rows, hashes={**rows.hashes, **source.hashes()})
    return _with_rows(rows, new, f"train: {len(new):,} pairs by back-translation of {len(texts):,} texts")


def _with_rows(rows: Dataset, new: list[Row], note: str) -> Dataset:
    splits = {**rows.splits, "train": [*rows.splits["train"], *new]}
    return replace(rows, splits=splits, notes=(*rows.notes, note))


def _check_is_name(what: str, value: Any) -> None:
    if not isinstance(value, str):
        raise InputError(f"{what} is {quoted(value)}; expected the name of a file or a folder")
