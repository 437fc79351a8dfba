"""`clearhead eval RUN [FILE]`: score a run on any file, or on its own validation split."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ..errors import InputError
from .console import ERR, OUT, print_json
from .options import Json, Quantize, Set, edits


def evaluate(
    run: Annotated[str, Parameter(help="folder of a run")],
    file: Annotated[str | None, Parameter(help="another data file (default: the run's own data)")] = None,
    *,
    set_: Set = None,
    split: Annotated[str, Parameter(help="split of the run's own data, when no file is given")] = "valid",
    quantize: Quantize = None,
    json: Json = False,
) -> None:
    """Evaluate a run with the metrics of its task: perplexity, BLEU, accuracy, F1 and others."""
    from ..bundle import load
    from ..recipes import SETTINGS_FILE, load_run, prepare
    from ..tasks import TextToText, bleu_signature

    folder = Path(run)
    if not (folder / SETTINGS_FILE).is_file():
        raise InputError(f"{run} is not a run folder: it has no {SETTINGS_FILE}")
    settings = load_run(str(folder / SETTINGS_FILE))
    if file is not None:  # the training rows stay: they decide which labels there are
        settings = replace(settings, data=replace(settings.data, valid=file))
        split = "valid"
    prepared = prepare(replace(settings, model={"family": str(folder), "edit": edits(set_)}))
    model = prepared.bundle.model
    if quantize is not None:
        model = load(folder, quantize=quantize, edit=edits(set_)).model
    with ERR.status("scoring"):
        scores = dict(prepared.task.score(model, split))
    rows = len(prepared.rows.splits[split])
    if json:
        of_run = None if file else split
        print_json({"run": run, "file": file, "split": of_run, "rows": rows, "scores": scores})
        return
    OUT.print(f"{file or split} · {rows:,} rows")
    for name, value in scores.items():
        OUT.print(f"{name:<12}{value:.4g}")
    if isinstance(prepared.task, TextToText):
        language = prepared.task.language
        OUT.print(bleu_signature(["a"], ["a"], language), style="dim")
