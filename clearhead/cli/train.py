"""`clearhead train RECIPE [FILE]`: from the user's file to a model in a folder, resumable at any moment."""

from __future__ import annotations

import json as jsonlib
import sys
from dataclasses import replace
from datetime import timedelta
from itertools import count, takewhile
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from ..errors import InputError
from .console import ERR, OUT, amount, print_json, program, table
from .options import Edits, Set, edits

if TYPE_CHECKING:
    from ..recipes import PreparedRun, RunConfig
    from ..train import TrainingResult

WORDS_HELP = (
    "RECIPE [FILE | FILE FILE] and settings: --epochs 3, --lr 5e-5, --batch-size 16, --max-length 128, "
    "--early-stop 3, --freeze PATTERN, --device auto|cpu|cuda|mps, or any as a dotted option: "
    "--tokenizer.vocab 8000, --model.dropout 0.1; `train --help RECIPE` lists all of them with their values"
)

BFLOAT16_WIDTH = 128  # in narrower models the conversions take what faster products save


def train(
    *words: Annotated[str, Parameter(allow_leading_hyphen=True, help=WORDS_HELP)],
    out: Annotated[str | None, Parameter(help="output folder of the run")] = None,
    seed: Annotated[int | None, Parameter(help="random seed of the run")] = None,
    from_: Annotated[
        str | None, Parameter(name="--from", help="checkpoint to fine-tune: a folder, hub id or GGUF file")
    ] = None,
    map: Annotated[
        list[str] | None,
        Parameter(
            negative="",
            consume_multiple=True,
            help="role=column, such as src=english tgt=german; `clearhead data check FILE` shows the guess",
        ),
    ] = None,
    set_: Set = None,
    resume: Annotated[str | None, Parameter(help="continue the run in this folder")] = None,
    log: Annotated[
        Literal["tensorboard"] | None,
        Parameter(help="tensorboard: metrics for TensorBoard, too, in OUT/tensorboard"),
    ] = None,
    time_budget: Annotated[float | None, Parameter(help="seconds; then save and stop, resumable")] = None,
    list_: Annotated[bool, Parameter(name="--list", negative="", help="list the recipes")] = False,
    print_config: Annotated[bool, Parameter(negative="", help="print all settings as YAML and exit")] = False,
    dry_run: Annotated[
        bool, Parameter(negative="", help="show the plan and a time estimate, then exit")
    ] = False,
    json: Annotated[bool, Parameter(negative="", help="print the result as JSON")] = False,
) -> None:
    """Train a recipe on its built-in corpus or on your file. Ctrl-C saves; --resume continues bit for bit."""
    from ..data import parse_map
    from ..recipes import prepare, with_overrides

    if list_:
        _list(json=json)
        return
    if resume and (from_ or set_):
        raise InputError("--resume continues with the model as it is; leave out --from and --set")
    run, folder = _existing_run(resume, words) if resume else _new_run(words, out, from_)
    run = _with_initial_model(run, from_, edits(set_))
    if map:
        run = replace(run, data=replace(run.data, map=parse_map(map)))
    changes = [f"--train.seed={seed}"] if seed is not None else []
    changes += [f"--train.time_budget={time_budget}"] if time_budget is not None else []
    run = with_overrides(run, changes)
    if print_config:
        OUT.print(run.to_yaml(), end="", markup=False)
        return
    prepared = prepare(run, ERR.print)
    _print_plan(prepared, folder)
    if dry_run:
        _print_estimate(prepared, json=json)
        return
    result = _run(prepared, folder, log)
    _print_result(result, prepared.run, json=json)


def _run(prepared: PreparedRun, folder: Path, log: str | None) -> TrainingResult:
    from ..recipes import run_training
    from ..train import TensorBoardLog, default_progress

    if log is None:
        return run_training(prepared, folder, progress=default_progress())
    events = TensorBoardLog(folder)
    try:
        return run_training(prepared, folder, progress=default_progress(), log=events)
    finally:
        events.close()


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
    model: dict[str, Any] = run.model if folder is None else {"family": folder}
    return replace(run, model={**model, "edit": {**model.get("edit", {}), **edit}} if edit else model)


def _new_run(words: tuple[str, ...], out: str | None, from_: str | None) -> tuple[RunConfig, Path]:
    from ..recipes import RECIPES, SETTINGS_FILE, load_run

    plain = list(takewhile(lambda word: not word.startswith("--") and "=" not in word, words[:3]))
    if not plain and from_ is not None and (Path(from_) / SETTINGS_FILE).is_file():
        run = load_run(str(Path(from_) / SETTINGS_FILE), words)  # as it was trained
        return run, Path(out or f"runs/{Path(from_).name}-again")
    if not plain:
        raise InputError(f"name a recipe: {', '.join(RECIPES)} (clearhead train --list describes them)")
    settings = list(words[len(plain) :])
    if from_ is not None:
        _refuse_settings_of_new_models(settings)
    if len(plain) > 1:  # one file, or two parallel ones
        files = [jsonlib.dumps(file) for file in plain[1:]]
        settings.insert(0, f"data.source={files[0] if len(files) == 1 else '[' + ', '.join(files) + ']'}")
    run = load_run(plain[0], settings, fine_tune=from_ is not None).with_absolute_paths()
    return run, Path(out) if out else _default_folder(run, from_, Path(plain[0]).stem)


def _refuse_settings_of_new_models(settings: list[str]) -> None:
    """A checkpoint has its own sizes and its own tokenizer."""
    from ..recipes import overrides

    for name in overrides(settings):
        if name.startswith("tokenizer.") or (name.startswith("model.") and name != "model.edit"):
            raise InputError(
                f"--{name} is for a new model, and --from names a checkpoint with its own config and "
                f"tokenizer; leave it out, or change the model with --set"
            )


def _default_folder(run: RunConfig, from_: str | None, name: str) -> Path:
    """runs/NAME; if that is a run of other data or another model, runs/NAME-2, and so on."""
    from ..recipes import SETTINGS_FILE, load_run

    for number in count(1):
        folder = Path(f"runs/{name}" if number == 1 else f"runs/{name}-{number}")
        if not (folder / SETTINGS_FILE).is_file():
            break
        there = load_run(str(folder / SETTINGS_FILE))
        base = str(Path(from_).resolve()) if from_ and Path(from_).exists() else from_
        same_model = there.model.get("family") == (base or run.model.get("family"))
        if same_model and (there.task, there.data.source) == (run.task, run.data.source):
            break
    return folder


def _existing_run(folder: str, words: tuple[str, ...]) -> tuple[RunConfig, Path]:
    from ..recipes import SETTINGS_FILE, load_run
    from ..train import checkpoints

    path = Path(folder)
    if not (path / SETTINGS_FILE).is_file():
        raise InputError(f"{folder} is not a run folder: it has no {SETTINGS_FILE}")
    run = load_run(str(path / SETTINGS_FILE), words)
    base = Path(str(run.model.get("family", "")))
    saved = list(checkpoints(path).values())
    if base.is_absolute() and not base.exists() and saved:
        # The checkpoint that was fine-tuned has moved; all that is needed of it is in the run's own.
        run = replace(run, model={**run.model, "family": str(saved[-1].resolve())})
    return run, path


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


def _print_plan(prepared: PreparedRun, folder: Path) -> None:
    run, bundle = prepared.run, prepared.bundle
    rows = " · ".join(f"{len(split):,} {name}" for name, split in prepared.rows.splits.items())
    source = run.data.source if isinstance(run.data.source, str) else ", ".join(run.data.source or ())
    ERR.print(f"data       {source} · {prepared.rows.schema} · {rows}", markup=False, soft_wrap=True)
    for note in prepared.notes:
        ERR.print(f"           {note}", markup=False, soft_wrap=True)
    vocabulary = f" · {bundle.tokenizer.vocab:,} tokens" if bundle.tokenizer else ""
    name = bundle.family.title if bundle.family else type(bundle.spec).__name__
    ERR.print(f"model      {name} · {bundle.parameters:,} parameters{vocabulary}")
    training = run.train
    memory = 16 * bundle.parameters  # weights, gradients and two moments in float32
    batch = f"{run.data.batch_size} rows" if run.data.batch_size else f"up to {run.data.tokens:,} tokens"
    warmup = training.schedule.warmup_steps(training.steps)
    width = bundle.spec.head_tower.width
    # Noam has no peak of its own: its rate is highest at the end of the warm-up.
    peak = training.lr or training.rate(width, max(warmup, 1))
    rate = f"learning rate {peak:.3g}"
    rate += f" after {warmup:,} warm-up steps" if warmup else ""
    ERR.print(f"train      {training.steps:,} steps · batches of {batch} · {rate}", soft_wrap=True)
    ERR.print(f"           {amount(memory)}B for weights and optimiser · {folder}", soft_wrap=True)
    if _gains_from_bfloat16(prepared, folder):
        hint = "this CPU computes bfloat16 faster: add --precision bfloat16"
        ERR.print(f"precision  float32 ({hint})", soft_wrap=True)


def _gains_from_bfloat16(prepared: PreparedRun, folder: Path) -> bool:
    """Whether a new run would be faster in bfloat16. One that is resumed keeps its precision."""
    from ..device import has_fast_bfloat16
    from ..recipes import SETTINGS_FILE
    from ..train import training_device

    training, bundle = prepared.run.train, prepared.bundle
    return (
        training.precision == "float32"
        and bundle.spec.head_tower.width >= BFLOAT16_WIDTH
        and training_device(bundle, training).type == "cpu"
        and not (folder / SETTINGS_FILE).is_file()
        and has_fast_bfloat16()
    )


def _print_estimate(prepared: PreparedRun, *, json: bool) -> None:
    """An estimate of the time on this machine: a few steps and one validation are run and discarded."""
    from ..train import estimate

    with ERR.status("timing a few steps"):
        estimated = estimate(prepared.bundle, prepared.task, prepared.run.train)
    if json:
        print_json(vars(estimated) | {"seconds": estimated.seconds})
        return
    parts = [f"{estimated.steps:,} steps of {_format_seconds(estimated.step)}"]
    if estimated.validations:
        each = (
            "more than 20 s, not counted"
            if estimated.validation is None
            else _format_seconds(estimated.validation)
        )
        parts.append(f"{estimated.validations:,} validations of {each}")
    total = timedelta(seconds=round(estimated.seconds))
    memory = f"{amount(estimated.memory)}B of memory"
    OUT.print(f"estimate   about {total} on this machine: {' and '.join(parts)} · {memory}")


def _format_seconds(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def _next_commands(task: str, folder: str, *, answers: bool) -> list[str]:
    """What to type next: use it, score it on other rows, look inside it; `answers`: it learned from chats."""
    use = {
        "classify": f'predict {folder} "a text"',
        "regress": f'predict {folder} "a text"',
        "choose": f'predict {folder} "a question" --choice "one answer" --choice "another"',
        "embed": f'embed {folder} FILE --search "a text"',
        "tag": f'predict {folder} "a text"',
        "answer": f'predict {folder} "a question" --context "a text with the answer"',
        "masked": f'predict {folder} "a text with a <mask>"',
        "pretrain": f'predict {folder} "a text with a <mask>"',
    }.get(task, f'generate {folder} "a text"')
    if answers:
        use = f'chat {folder} -m "a question"'
    return [use, f"eval {folder} OTHER_FILE", f'look {folder} "a text"', f"studio {folder}"]


def _print_result(result: TrainingResult, run: RunConfig, *, json: bool) -> None:
    from ..train import FINISHED

    facts: dict[str, Any] = {
        "status": result.status,
        "reason": result.reason,
        "folder": str(result.folder),
        "step": result.step,
        "best": result.best,
        "best_step": result.best_step,
    }
    if json:
        print_json(facts)
    elif result.status == "done":
        if result.reason == "patience":
            reason = f"{run.train.patience} validations in a row without a better score"
            ERR.print(f"ended at step {result.step} of {run.train.steps}: {reason} (--early-stop)")
        if result.reason == FINISHED:
            more = f"--train.steps {2 * run.train.steps}" if run.data.epochs is None else "--epochs N"
            ERR.print(f"nothing to do: the run has its {result.step:,} steps; {more} trains on")
        is_best = result.best_step is not None and result.best_step != result.step
        best = f"  (step {result.best_step}, the best on the validation rows)" if is_best else ""
        OUT.print(f"saved      {result.folder}{best}", soft_wrap=True)
        answers = run.task == "causal" and run.data.template == "chat"
        for number, command in enumerate(
            _next_commands(run.task, quote(str(result.folder)), answers=answers)
        ):
            OUT.print(f"{'' if number else 'next':<11}{program()} {command}", soft_wrap=True, markup=False)
    if result.status != "done":
        how = f"{program()} train --resume {quote(str(result.folder))}"
        # Not wrapped: a command is there to be copied.
        ERR.print(f"stopped at step {result.step} ({result.reason}); continue with: {how}", soft_wrap=True)
        sys.exit(130 if result.reason == "SIGINT" else 3)
