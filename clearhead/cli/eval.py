"""`clearhead eval MODEL FILE`: score any model on any file that has rows for its head."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from rich.markup import escape

from ..errors import InputError
from .console import ERR, OUT, print_json, table
from .opening import open_prepared
from .options import (
    NO_ADAPTER,
    AdapterOptions,
    DeviceName,
    Json,
    Keep,
    ModelName,
    ModelThreads,
    PrecisionName,
    Set,
    edits,
)

if TYPE_CHECKING:
    from ..bundle import Bundle
    from ..lens import EvaluationView
    from ..recipes import EvaluationReport, RunConfig

MAX_TABLE_CLASSES = 10  # of more, the most frequent confusions are listed
MAX_CELL_TEXT = 60  # characters of a text in the table of the worst rows
SHOWN_CONFUSIONS = 8


def evaluate(
    model: ModelName,
    *files: Annotated[
        str, Parameter(help="a data file, two parallel files, or a folder (default: a run's own rows)")
    ],
    map: Annotated[
        list[str] | None,
        Parameter(
            negative="", consume_multiple=True, help="role=column, such as text=review label=sentiment"
        ),
    ] = None,
    split: Annotated[
        str | None, Parameter(help="split of a folder, or of a run's own data: train, valid or test")
    ] = None,
    max_length: Annotated[
        int | None, Parameter(help="longest text in tokens; longer ones are cut (default: of the model)")
    ] = None,
    batch_size: Annotated[int | None, Parameter(help="rows per batch (default: by their length)")] = None,
    prefix: Annotated[str | None, Parameter(help="text before every source, such as 'summarize: '")] = None,
    worst: Annotated[int, Parameter(help="number of worst examples to list")] = 5,
    save: Annotated[
        str | None, Parameter(help="confusion matrix and worst examples as .png, .svg, .pdf or .html")
    ] = None,
    over: AdapterOptions = NO_ADAPTER,
    set_: Set = None,
    precision: PrecisionName = None,
    keep: Keep = False,
    device: DeviceName = None,
    threads_: ModelThreads = None,
    json: Json = False,
) -> None:
    """Evaluate a model on a file: accuracy, F1, BLEU, ROUGE, perplexity or Spearman, by its head.

    A folder of a run without FILE is evaluated on its own validation rows.
    """
    from ..data import parse_map
    from ..lens import check_evaluation_path, save_evaluation
    from ..recipes import evaluate_file

    if save is not None:
        check_evaluation_path(save)
    settings = _settings(model)
    opening = partial(
        open_prepared,
        model,
        over=over,
        precision=precision,
        keep=keep,
        edit=edits(set_),
        device=device,
        threads=threads_,
    )
    if files:
        bundle = opening()
        with ERR.status("scoring"):
            report = evaluate_file(
                bundle,
                files[0] if len(files) == 1 else files,
                split=split,
                mapping=parse_map(map or []),
                settings=settings,
                length=max_length,
                batch_size=batch_size,
                prefix=prefix,
            )
    elif settings is None:
        raise InputError(f"{model} is not a run folder with rows of its own: name a data file to score it on")
    else:
        given = {"--map": map, "--max-length": max_length, "--batch-size": batch_size, "--prefix": prefix}
        for option, value in given.items():
            if value is not None:
                raise InputError(f"{option} is for a data file; the rows of a run are read as it was trained")
        report = _own_rows(model, settings, split or "valid", edits(set_), opening)
    name = " ".join(files) or split or "valid"
    shown = _view(report, f"{Path(model).name} on {' '.join(Path(f).name for f in files) or name}", worst)
    if save is not None:
        ERR.print(f"saved      {save_evaluation(shown, save)}", markup=False)
    if json:
        own = None if files else name
        about = {"model": model, "file": " ".join(files) or None, "split": own if own else split}
        print_json(about | report.to_dict(worst))
        return
    _print(report, shown, name)


def _settings(model: str) -> RunConfig | None:
    """The settings of the run in this folder, if it is one."""
    from ..recipes import SETTINGS_FILE, load_run

    path = Path(model) / SETTINGS_FILE
    return load_run(str(path)) if path.is_file() else None


def _own_rows(
    folder: str,
    settings: RunConfig,
    split: str,
    edit: dict[str, str],
    opening: Callable[[], Bundle],
) -> EvaluationReport:
    from ..recipes import evaluate_run, prepare

    prepared = prepare(replace(settings, model={"family": folder, "edit": edit}, tune=None))
    bundle = opening()
    with ERR.status("scoring"):
        return evaluate_run(prepared, bundle, split)


def _view(report: EvaluationReport, title: str, worst: int) -> EvaluationView:
    from ..lens import EvaluationView, WorstRow

    rows = [
        WorstRow(row.place, row.text, _short_number(row.outcome.reference),
                 _short_number(row.outcome.prediction), row.outcome.error)
        for row in report.worst(worst)
    ]  # fmt: skip
    evaluation = report.evaluation
    title = f"{title} · {report.rows:,} rows"
    return EvaluationView(
        title, report.scores, evaluation.measure, evaluation.names, evaluation.confusion(), rows
    )


def _short_number(text: str) -> str:
    """0.123456789 as 0.123; other texts as they are."""
    try:
        return f"{float(text):.3g}" if "." in text else text
    except ValueError:
        return text


def _print(report: EvaluationReport, shown: EvaluationView, name: str) -> None:
    for note in report.notes:
        ERR.print(note, markup=False)
    OUT.print(f"{escape(name)} · {report.rows:,} rows")
    for metric, value in report.scores.items():
        OUT.print(f"{metric:<15}{value:.4g}")
    if report.signature is not None:
        OUT.print(report.signature, style="dim", markup=False)
    if report.evaluation.per_class:
        _print_classes(report)
    if shown.counts is not None:
        _print_confusion(shown)
    if shown.rows:
        _print_worst(shown)


def _print_classes(report: EvaluationReport) -> None:
    listing = table("class", "precision", "recall", "f1", "rows", right=(1, 2, 3, 4))
    for name, scores in report.evaluation.per_class.items():
        numbers = (scores.precision, scores.recall, scores.f1)
        listing.add_row(escape(name), *(f"{number:.1f}" for number in numbers), f"{scores.support:,}")
    OUT.print()
    OUT.print(listing)


def _print_confusion(shown: EvaluationView) -> None:
    assert shown.counts is not None
    classes = shown.shown_classes()
    OUT.print()
    if len(classes) <= MAX_TABLE_CLASSES:
        names = [escape(shown.names[i]) for i in classes]
        listing = table("reference \\ predicted", *names, right=tuple(range(1, len(names) + 1)))
        for name, i in zip(names, classes, strict=True):
            listing.add_row(name, *(f"{shown.counts[i][j]:,}" for j in classes))
        OUT.print(listing)
        return
    wrong = [(shown.counts[i][j], i, j) for i in classes for j in classes if i != j and shown.counts[i][j]]
    listing = table("reference", "predicted", "count", right=(2,))
    for count, i, j in sorted(wrong, reverse=True)[:SHOWN_CONFUSIONS]:
        listing.add_row(escape(shown.names[i]), escape(shown.names[j]), f"{count:,}")
    OUT.print("most frequent confusions")
    OUT.print(listing)


def _print_worst(shown: EvaluationView) -> None:
    columns = [shown.measure, "reference", "predicted", "text", "where"]
    rows = [
        [
            f"{row.error:.3g}",
            *(_one_line(each) for each in (row.reference, row.prediction, row.text)),
            row.place,
        ]
        for row in shown.rows
    ]
    kept = [i for i in range(len(columns)) if any(row[i] for row in rows)]
    listing = table(*(columns[i] for i in kept), right=(0,), no_wrap=(0,))
    for row in rows:
        listing.add_row(*(escape(row[i]) for i in kept))
    OUT.print("\nworst examples")
    OUT.print(listing)


def _one_line(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= MAX_CELL_TEXT else text[: MAX_CELL_TEXT - 1] + "…"
