"""Diagnosis of a run: its folder in; findings about its log, settings, checkpoints and data out.

It only reads files, so it can be used while the run is training.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import ClearheadError, InputError, LoadError
from ..readfile import read_object
from ..recipes import SETTINGS_FILE, RunConfig, load_run, read_dataset
from ..store import CONFIG_FILE
from ..train import checkpoints, read_log, verify
from . import findings
from .findings import Curves, Finding

WORD_TASKS = ("causal", "translate", "masked", "denoise", "spans")  # their loss is over a vocabulary
HIGHER_IS_BETTER = ("accuracy", "f1", "bleu", "exact")  # scores of which more is better


def check_run(folder: str | Path) -> list[Finding]:
    """All findings about a run folder."""
    place = Path(folder)
    if not place.is_dir():
        raise InputError(f"{folder} is not a folder; expected a run, such as runs/demo")
    records = read_log(place)
    if not records and not (place / SETTINGS_FILE).is_file():
        raise InputError(f"{folder} is not a run folder: it has neither metrics.jsonl nor {SETTINGS_FILE}")
    curves = Curves(
        [r for r in records if "split" not in r], [r for r in records if r.get("split") == "valid"]
    )
    run = load_run(str(place / SETTINGS_FILE)) if (place / SETTINGS_FILE).is_file() else None
    failed = [r for r in records if r.get("split") == "failed"]
    return [
        *_failure(failed),
        *_progress(curves, run),
        *_curves(curves, run, place),
        *_checkpoints(place),
        *_data(curves, run),
    ]


def _failure(failed: list[dict[str, Any]]) -> Iterator[Finding]:
    """A step whose loss or gradient was not a finite number ends a run; the step itself is not in the log."""
    for record in failed[-1:]:
        problem = f"{record.get('tensor')} was {record.get('value')} in step {record['step']:,}"
        advice = (
            "a lower learning rate, clipping at 1.0, a longer warm-up, and a look at the rows of that step"
        )
        yield Finding("not finite", problem, "wrong", f"{advice}; then clearhead train --resume")


def _progress(curves: Curves, run: RunConfig | None) -> Iterator[Finding]:
    done = int(curves.steps[-1]["step"]) if curves.steps else 0
    if run is None:
        yield Finding("steps", f"{done:,} taken; without {SETTINGS_FILE} the total is unknown")
    elif done < run.train.steps:
        summary = f"{done:,} of {run.train.steps:,}"
        yield Finding("steps", summary, "note", "running, or stopped: clearhead train --resume continues it")
    else:
        yield Finding("steps", f"{done:,}, all of them")


def _curves(curves: Curves, run: RunConfig | None, place: Path) -> Iterator[Finding]:
    config = _config(place)
    training = run.train if run is not None else None
    yield findings.check_loss(
        curves, config.get("vocab_size") if run is not None and run.task in WORD_TASKS else None
    )
    yield findings.check_gradient(curves, training.clip if training else None, known=training is not None)
    warmup = getattr(training.schedule, "warmup", None) if training else None
    post = config.get("model_type") in ("bert", "roberta", "marian", "bart", "albert", "distilbert")
    yield findings.check_learning_rate(curves, training.steps if training else None, warmup, post_norm=post)
    yield findings.check_speed(curves)
    # The log does not name the score that runs are compared by: the loss, or the first one it has.
    scores = curves.validations[-1]["scores"] if curves.validations else {}
    metric = next((name for name in HIGHER_IS_BETTER if name in scores), "loss")
    yield findings.check_validation(curves, metric, larger=metric in HIGHER_IS_BETTER)


def _config(place: Path) -> dict[str, Any]:
    newest = [*checkpoints(place).values()][-1:]
    for folder in (place, *newest):
        try:
            return read_object(folder / CONFIG_FILE)
        except LoadError:
            continue
    return {}


def _checkpoints(place: Path) -> Iterator[Finding]:
    saved, broken = checkpoints(place), []
    for step, folder in saved.items():
        try:
            verify(folder)
        except (LoadError, OSError) as error:
            broken.append(f"step {step}: {error}")
    if broken:
        advice = "resuming uses the newest intact one; remove the broken folder"
        yield Finding("checkpoints", "; ".join(broken), "wrong", advice)
    else:
        steps = ", ".join(f"{step:,}" for step in saved) or "none yet"
        yield Finding("checkpoints", f"of step {steps}" if saved else steps)


def _data(curves: Curves, run: RunConfig | None) -> Iterator[Finding]:
    """The rows as the run reads them, and how often each was seen."""
    if run is None or run.data.source is None:
        return
    try:
        rows = read_dataset(run)
    except (ClearheadError, OSError) as error:
        where = " ".join(str(error).split())
        yield Finding("data", where, "note", "the file of this run has moved or changed")
        return
    train, valid = rows.splits["train"], rows.splits.get("valid", [])
    summary = f"{len(train):,} rows to learn, {len(valid):,} held out"
    texts = {json.dumps(row, sort_keys=True, ensure_ascii=False, default=str) for row in train}
    leaked = sum(json.dumps(r, sort_keys=True, ensure_ascii=False, default=str) in texts for r in valid)
    repeated = len(train) - len(texts)
    if leaked:
        advice = "scores are too good: take those rows out of one of the two"
        yield Finding("data", f"{summary}; {leaked:,} held-out rows are learned, too", "wrong", advice)
    elif repeated > len(train) / 5:
        yield Finding(
            "data", f"{summary}; {repeated:,} are repeated", "note", "clearhead data check lists them"
        )
    else:
        yield Finding("data", summary + (f"; {repeated:,} are repeated" if repeated else ""))
