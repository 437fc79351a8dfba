"""Training from Python: a model, rows and a recipe in; the trained model and its scores out.

`clearhead train` runs the same code, from files and with a folder that can be resumed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from ..bundle import Bundle, is_adapter, load
from ..data import InMemorySource, Source, detect_schemas, read_rows, read_splits, split_of
from ..errors import InputError, TrainError, one_line, quoted
from ..store import write_file_atomically
from ..train import (
    FINISHED,
    Progress,
    Record,
    Trainer,
    TrainingResult,
    default_progress,
    disk_errors,
    read_log,
)
from .batch_preview import recipe_for
from .card import CARD_FILE, model_card
from .overrides import full_name
from .prepare import PreparedRun, prepare
from .settings import SETTINGS_FILE, run_of

RowsInMemory = Iterable[Mapping[str, Any]]
Data = str | os.PathLike[str] | Sequence[str] | RowsInMemory | Mapping[str, RowsInMemory]


def train(
    bundle: Bundle | str | Path,
    data: Data,
    recipe: str | None = None,
    *,
    out: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    log: Callable[[Record], None] | None = None,
    **settings: Any,
) -> Bundle:
    """Fine-tune a model on rows, and return the trained copy; the model given stays as it is.

    `data` is a file, two parallel files, a folder, a list of rows (dicts), or lists by split:
    {"train": [...], "valid": [...]}. Without a validation split some rows are held out. `recipe` is one of
    `clearhead train --list`; None chooses it by the columns of the rows.
    `settings` have the names of the command line: epochs=3, lr=5e-5, batch_size=16, max_length=128, seed=1,
    freeze=["tower.embed.*"], and any other by its dotted name: **{"train.save_every": 100}.
    `tune=Lora(rank=8)` (or method="lora", rank=8) trains an adapter beside the weights, which the result
    shares with the model given. A bundle that is tuned already is trained further.
    `out` keeps the run: checkpoints, log, settings, and the model; a run found there is resumed.
    The result has the validation scores of the weights it holds in `scores`.
    """
    base = bundle if isinstance(bundle, Bundle) else load(bundle)
    sources = _sources(data)
    given = {full_name(name): value for name, value in settings.items()}
    name = recipe or _recipe_for(base, sources, given.get("data.map"))
    run = run_of(name, given, fine_tune=True)
    shown = progress or default_progress()
    prepared = prepare(run, base=base, sources=sources)
    for note in (f"recipe {name}", *prepared.notes):
        shown.write(one_line(note))
    with ExitStack() as stack:
        folder = Path(out) if out is not None else Path(stack.enter_context(TemporaryDirectory()))
        result = run_training(prepared, folder, progress=shown, log=log)
        if result.status == "stopped" and result.reason == "SIGINT":
            raise KeyboardInterrupt
        if result.status == "stopped" and out is None and result.reason != "time budget":
            raise TrainError(f"training stopped at step {result.step}: {result.reason}")
        trained = prepared.bundle
        trained.model.eval()
        if not is_adapter(trained):  # other weights than those that were loaded
            trained.loaded_from = None if out is None else str(out)
        trained.scores = validation_scores(folder, result)
    return trained


def run_training(
    prepared: PreparedRun,
    folder: Path,
    *,
    progress: Progress,
    log: Callable[[Record], None] | None = None,
) -> TrainingResult:
    """Train, and write the settings and a model card beside the model.

    If the run fails its checks, the folder is unchanged.
    """
    run = prepared.run
    files = {SETTINGS_FILE: run.to_yaml()}
    result = Trainer(
        prepared.bundle, prepared.task, run.train, folder, log=log, progress=progress, files=files
    ).run()
    if result.status == "done" and result.reason != FINISHED:
        scores = validation_scores(folder, result)
        name = result.folder.name
        card = model_card(prepared, scores, name=name, step=result.step, best_step=result.best_step)
        with disk_errors(folder / CARD_FILE):
            write_file_atomically(folder / CARD_FILE, card.encode("utf-8"))
    return result


def validation_scores(folder: Path, result: TrainingResult) -> dict[str, float]:
    """The scores of the step whose weights were kept; empty if there was no validation."""
    step = result.best_step if result.best_step is not None else result.step
    for record in reversed(read_log(folder)):
        if record["step"] == step and record.get("split") == "valid":
            return {name: value for name, value in record["scores"].items() if value is not None}
    return {}


def _sources(data: Any) -> dict[str, Source]:
    """RowsInMemory by split, of files or in memory."""
    if isinstance(data, str | os.PathLike):
        return dict(read_splits(data))
    if isinstance(data, Mapping):
        return {_split_name(split): _one_source(rows, str(split)) for split, rows in data.items()}
    rows = list(data)
    if rows and all(isinstance(row, str | os.PathLike) for row in rows):
        names = [str(row) for row in rows]
        if any(Path(name).exists() for name in names) or not any(" " in name for name in names):
            return dict(read_splits(names, parallel=True))
        rows = [{"text": name} for name in names]  # texts, not names of files
    return {"train": _rows_in_memory(rows, "train")}


def _split_name(name: Any) -> str:
    """train, valid or test; "validation" and "dev" are valid."""
    found = split_of(str(name))
    if found is None:
        raise InputError(f"there is no split {quoted(name)}; expected train, valid and test")
    return found


def _one_source(rows: Any, split: str) -> Source:
    return read_rows(rows) if isinstance(rows, str | os.PathLike) else _rows_in_memory(rows, split)


def _rows_in_memory(rows: Any, split: str) -> Source:
    listed = list(rows) if isinstance(rows, Iterable) and not isinstance(rows, str) else None
    if not listed or not all(isinstance(row, Mapping) for row in listed):
        raise InputError(
            f"the rows of {split!r} are {quoted(rows)}; expected a list of dicts such as "
            f"{{'text': 'a film', 'label': 'good'}}, or the name of a file"
        )
    return InMemorySource([{key: _plain(value) for key, value in row.items()} for row in listed], name=split)


def _plain(value: Any) -> Any:
    """A number of NumPy or pandas as Python's."""
    return value.item() if isinstance(value, np.generic) else value


def recipe_of_rows(base: Bundle, files: Sequence[str], mapping: Mapping[str, str] | None = None) -> str:
    """The recipe for the rows of a file, or of two parallel ones."""
    return _recipe_for(base, _sources(files[0] if len(files) == 1 else files), mapping)


def _recipe_for(base: Bundle, sources: Mapping[str, Source], mapping: Mapping[str, str] | None) -> str:
    """The recipe for the most likely form of the rows that this model can learn from."""
    source = sources.get("train") or next(iter(sources.values()))
    return recipe_for(detect_schemas(source, mapping)[0], base)
