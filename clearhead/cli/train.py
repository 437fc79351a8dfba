"""`clearhead train RECIPE [FILE]`: from the user's file to a model in a folder, resumable at any moment."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from ..errors import InputError
from .console import OUT, print_json, table
from .options import Edits, Set, edits
from .training_run import (
    NO_RUN_OPTIONS,
    RunOptions,
    data_setting,
    default_folder,
    existing_run,
    plain_words,
    start_run,
)

if TYPE_CHECKING:
    from ..recipes import RunConfig

TRAIN_WORDS = (
    "RECIPE [FILE | FILE FILE] and settings: --epochs 3, --lr 5e-5, --batch-size 16, --max-length 128, "
    "--early-stop 3, --freeze PATTERN, --device auto|cpu|cuda|mps, with --from also --method lora, or any as "
    "a dotted option: --tokenizer.vocab 8000, --model.dropout 0.1; `train --help RECIPE` lists all of them "
    "with their values"
)

OF_CHECKPOINTS = ("model.edit", "model.quantize")  # settings of a model that hold with --from, too


def train(
    *words: Annotated[str, Parameter(allow_leading_hyphen=True, help=TRAIN_WORDS)],
    options: RunOptions = NO_RUN_OPTIONS,
    from_: Annotated[
        str | None,
        Parameter(name="--from", help="checkpoint to fine-tune: a folder, hub id, GGUF file or adapter"),
    ] = None,
    set_: Set = None,
    list_: Annotated[bool, Parameter(name="--list", negative="", help="list the recipes")] = False,
) -> None:
    """Train a recipe on its built-in corpus or on your file. Ctrl-C saves; --resume continues bit for bit."""
    if list_:
        _list(json=options.json)
        return
    resume = options.resume
    if resume and (from_ or set_):
        raise InputError("--resume continues with the model as it is; leave out --from and --set")
    run, folder = existing_run(resume, words) if resume else _new_run(words, options.out, from_)
    start_run(_with_initial_model(run, from_, edits(set_)), folder, options)


def _with_initial_model(run: RunConfig, folder: str | None, edit: Edits) -> RunConfig:
    """The run with another initial model, or with an edited spec."""
    from ..families import FAMILIES, SIZES

    if folder is not None and folder in {*FAMILIES, *SIZES} and not Path(folder).exists():
        raise InputError(
            f"--from takes a checkpoint: a folder, a Hub id or a .gguf file; {folder!r} is a family: "
            f"--model.family {folder}"
        )
    if folder is not None and Path(folder).exists():
        folder = str(Path(folder).resolve())  # a run can be resumed from any folder
    model: dict[str, Any] = run.model
    if folder is not None:
        model = {"family": folder} | {key: run.model[key] for key in ("quantize",) if key in run.model}
    return replace(run, model={**model, "edit": {**model.get("edit", {}), **edit}} if edit else model)


def _new_run(words: tuple[str, ...], out: str | None, from_: str | None) -> tuple[RunConfig, Path]:
    from ..recipes import RECIPES, SETTINGS_FILE, load_run, with_overrides

    plain = plain_words(words, 3)
    if not plain and from_ is not None and (Path(from_) / SETTINGS_FILE).is_file():
        run = load_run(str(Path(from_) / SETTINGS_FILE))  # as it was trained; an adapter is trained further
        run = with_overrides(replace(run, tune=None), words)
        return run, Path(out or f"runs/{Path(from_).name}-again")
    if not plain:
        raise InputError(f"name a recipe: {', '.join(RECIPES)} (clearhead train --list describes them)")
    settings = list(words[len(plain) :])
    if from_ is not None:
        _refuse_settings_of_new_models(settings)
    settings = [*data_setting(plain[1:]), *settings]
    run = load_run(plain[0], settings, fine_tune=from_ is not None).with_absolute_paths()
    return run, Path(out) if out else default_folder(run, from_, Path(plain[0]).stem)


def _refuse_settings_of_new_models(settings: list[str]) -> None:
    """A checkpoint has its own sizes and its own tokenizer."""
    from ..recipes import overrides

    for name in overrides(settings):
        if name.startswith("tokenizer.") or (name.startswith("model.") and name not in OF_CHECKPOINTS):
            raise InputError(
                f"--{name} is for a new model, and --from names a checkpoint with its own config and "
                f"tokenizer; leave it out, or change the model with --set"
            )


def _list(*, json: bool) -> None:
    from ..recipes import RECIPES, load_run

    runs = {name: load_run(name) for name in RECIPES}
    if json:
        print_json({name: run.to_dict() for name, run in runs.items()})
        return
    listing = table("recipe", "task", "data", "model", "steps", right=(4,), no_wrap=(0,))
    for name, run in runs.items():
        source = str(run.data.source or "your file")
        listing.add_row(name, run.about, source, str(run.model.get("family")), f"{run.train.steps:,}")
    OUT.print(listing)
