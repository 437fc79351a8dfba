"""A training run in the terminal: a prepared run in; its plan, its progress, and what to type next, out.

`clearhead train` and `clearhead tune` differ in how a run is described, and share this.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from itertools import count, takewhile
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from ..errors import InputError
from .console import ERR, OUT, amount, print_json, program
from .options import Json

if TYPE_CHECKING:
    from ..bundle import Bundle
    from ..recipes import PreparedRun, RunConfig
    from ..train import TrainingResult
    from ..tune import Tuning

BFLOAT16_WIDTH = 128  # in narrower models the conversions take what faster products save


@Parameter(name="*")
@dataclass(frozen=True)
class RunOptions:
    """What every training run takes besides its settings."""

    out: Annotated[str | None, Parameter(help="output folder of the run")] = None
    seed: Annotated[int | None, Parameter(help="random seed of the run")] = None
    map: Annotated[
        list[str] | None,
        Parameter(
            negative="",
            consume_multiple=True,
            help="role=column, such as src=english tgt=german; `clearhead data check FILE` shows the guess",
        ),
    ] = None
    resume: Annotated[str | None, Parameter(help="continue the run in this folder")] = None
    log: Annotated[
        Literal["tensorboard"] | None,
        Parameter(help="tensorboard: metrics for TensorBoard, too, in OUT/tensorboard"),
    ] = None
    time_budget: Annotated[float | None, Parameter(help="seconds; then save and stop, resumable")] = None
    print_config: Annotated[bool, Parameter(negative="", help="print all settings as YAML and exit")] = False
    dry_run: Annotated[bool, Parameter(negative="", help="show the plan and a time estimate, then exit")] = (
        False
    )
    json: Json = False


NO_RUN_OPTIONS = RunOptions()


def start_run(run: RunConfig, folder: Path, options: RunOptions) -> None:
    """Plan, train and say what to do next; or print the settings or the plan alone."""
    from ..data import parse_map
    from ..recipes import prepare, with_overrides

    if options.map:
        run = replace(run, data=replace(run.data, map=parse_map(options.map)))
    changes = [f"--train.seed={options.seed}"] if options.seed is not None else []
    changes += [f"--train.time_budget={options.time_budget}"] if options.time_budget is not None else []
    run = with_overrides(run, changes)
    if options.print_config:
        OUT.print(run.to_yaml(), end="", markup=False)
        return
    prepared = prepare(run, ERR.print)
    _print_plan(prepared, folder)
    if options.dry_run:
        _print_estimate(prepared, json=options.json)
        return
    result = _run(prepared, folder, options.log)
    _print_result(result, prepared, json=options.json)


def plain_words(words: Sequence[str], most: int) -> list[str]:
    """The words in front of the first setting: a recipe or a model, and files."""
    return list(takewhile(lambda word: not word.startswith("--") and "=" not in word, words[:most]))


def data_setting(files: Sequence[str]) -> list[str]:
    """The setting that says which file, or which two parallel ones, are read."""
    names = [json.dumps(file) for file in files]
    return [f"data.source={names[0] if len(names) == 1 else '[' + ', '.join(names) + ']'}"] if names else []


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


def default_folder(run: RunConfig, from_: str | None, name: str) -> Path:
    """runs/NAME; if that is a run of other data, another model or tuning, runs/NAME-2, and so on."""
    from ..recipes import SETTINGS_FILE, load_run

    for number in count(1):
        folder = Path(f"runs/{name}" if number == 1 else f"runs/{name}-{number}")
        if not (folder / SETTINGS_FILE).is_file():
            break
        there = load_run(str(folder / SETTINGS_FILE))
        base = str(Path(from_).resolve()) if from_ and Path(from_).exists() else from_
        same_model = there.model.get("family") == (base or run.model.get("family"))
        settings = [(each.task, each.data.source, each.tune) for each in (there, run)]
        if same_model and settings[0] == settings[1]:
            break
    return folder


def existing_run(folder: str, words: Sequence[str]) -> tuple[RunConfig, Path]:
    from ..recipes import SETTINGS_FILE, load_run
    from ..train import checkpoints

    path = Path(folder)
    if not (path / SETTINGS_FILE).is_file():
        raise InputError(f"{folder} is not a run folder: it has no {SETTINGS_FILE}")
    run = load_run(str(path / SETTINGS_FILE), words)
    _check_tuning(load_run(str(path / SETTINGS_FILE)).tune, run.tune)
    base = Path(str(run.model.get("family", "")))
    saved = list(checkpoints(path).values())
    if base.is_absolute() and not base.exists() and saved and run.tune is None:
        # The checkpoint that was fine-tuned has moved; all that is needed of it is in the run's own.
        run = replace(run, model={**run.model, "family": str(saved[-1].resolve())})
    return run, path


def _check_tuning(before: Tuning | None, now: Tuning | None) -> None:
    """Raise an error if a run is to be resumed with another tuning than it has."""
    if before == now:
        return
    if before is None or now is None or type(before) is not type(now):
        there, here = (type(each).__name__ if each else "all weights" for each in (before, now))
        changed = f"what learns is {here} here and {there} in the run"
    else:
        name = next(f.name for f in fields(now) if getattr(before, f.name) != getattr(now, f.name))
        changed = f"tune.{name} is {getattr(now, name)} here and {getattr(before, name)} in the run"
    raise InputError(
        f"{changed}; a run is resumed with the tuning that it has: leave it out, or start another"
    )


def _print_plan(prepared: PreparedRun, folder: Path) -> None:
    run, bundle = prepared.run, prepared.bundle
    rows = " · ".join(f"{len(split):,} {name}" for name, split in prepared.rows.splits.items())
    source = run.data.source if isinstance(run.data.source, str) else ", ".join(run.data.source or ())
    ERR.print(f"data       {source} · {prepared.rows.schema} · {rows}", markup=False, soft_wrap=True)
    for note in prepared.notes:
        ERR.print(f"           {note}", markup=False, soft_wrap=True)
    vocabulary = f" · {bundle.tokenizer.vocab:,} tokens" if bundle.tokenizer else ""
    name = bundle.family.title if bundle.family else type(bundle.spec).__name__
    parameters = bundle.spec.count() if bundle.tuning is None else bundle.tuning.total
    ERR.print(f"model      {name} · {parameters:,} parameters{vocabulary}")
    if bundle.tuning is not None:
        ERR.print(f"tune       {bundle.tuning}", markup=False, soft_wrap=True)
    _print_trained_tokens(prepared)
    training = run.train
    batch = f"{run.data.batch_size} rows" if run.data.batch_size else f"up to {run.data.tokens:,} tokens"
    warmup = training.schedule.warmup_steps(training.steps)
    width = bundle.spec.head_tower.width
    # Noam has no peak of its own: its rate is highest at the end of the warm-up.
    peak = training.lr or training.rate(width, max(warmup, 1))
    rate = f"learning rate {peak:.3g}"
    rate += f" after {warmup:,} warm-up steps" if warmup else ""
    ERR.print(f"train      {training.steps:,} steps · batches of {batch} · {rate}", soft_wrap=True)
    memory = f"{amount(_memory(bundle))}B for weights and optimiser"
    ERR.print(f"           {memory} · {folder}", soft_wrap=True)
    if _gains_from_bfloat16(prepared, folder):
        hint = "this CPU computes bfloat16 faster: add --precision bfloat16"
        ERR.print(f"precision  float32 ({hint})", soft_wrap=True)


def _memory(bundle: Bundle) -> int:
    """Bytes of the weights, and of gradients and two moments in float32 of those that learn."""
    from ..engine import weight_bytes

    learning = bundle.parameters if bundle.tuning is None else bundle.tuning.trainable
    return weight_bytes(bundle.model) + 12 * learning


def _print_trained_tokens(prepared: PreparedRun) -> None:
    """How much of the rows is trained, where that is a part of them."""
    from ..recipes import trained_tokens
    from ..tasks import CausalLM

    if not isinstance(prepared.task, CausalLM) or prepared.task.trained is None:
        return
    counts = trained_tokens(prepared.task)
    share = counts.trained.total / max(counts.tokens.total, 1)
    ERR.print(
        f"trained    {counts.trained.mean:,.0f} of {counts.tokens.mean:,.0f} tokens of a row "
        f"({counts.trained.min:,} to {counts.trained.max:,}), {share:.0%} of all: the answers",
        soft_wrap=True,
    )


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
        print_json(vars(estimated) | {"seconds": estimated.seconds} | _plan_facts(prepared))
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


def _plan_facts(prepared: PreparedRun) -> dict[str, Any]:
    """What the plan says, for machines: what learns, and how many tokens of a row."""
    from dataclasses import asdict

    from ..recipes import trained_tokens
    from ..tasks import CausalLM

    tuning, task = prepared.bundle.tuning, prepared.task
    answers = task if isinstance(task, CausalLM) and task.trained is not None else None
    return {
        "tuning": None if tuning is None else tuning.value.to_dict(),
        "layers": None if tuning is None else len(tuning.layers),
        "trainable": prepared.bundle.parameters if tuning is None else tuning.trainable,
        "trained_tokens": None if answers is None else asdict(trained_tokens(answers).trained),
    }


def _format_seconds(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def _next_commands(prepared: PreparedRun, folder: str) -> list[str]:
    """What to type next: use it, score it on other rows, look inside it."""
    run, tuning = prepared.run, prepared.bundle.tuning
    task, answers = run.task, run.task == "causal" and run.data.template == "chat"
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
    commands = [use, f"eval {folder} OTHER_FILE", f'look {folder} "a text"']
    if tuning is None or tuning.value.is_whole:
        return [*commands, f"studio {folder}"]
    merge = [] if tuning.beside else [f"merge {folder} --out FOLDER"]
    return [use, commands[1], f'look {folder} "a text" --compare', *merge]


def _print_result(result: TrainingResult, prepared: PreparedRun, *, json: bool) -> None:
    from ..train import FINISHED

    run = prepared.run

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
        for number, command in enumerate(_next_commands(prepared, quote(str(result.folder)))):
            OUT.print(f"{'' if number else 'next':<11}{program()} {command}", soft_wrap=True, markup=False)
    if result.status != "done":
        verb = "train" if run.tune is None else "tune"
        how = f"{program()} {verb} --resume {quote(str(result.folder))}"
        # Not wrapped: a command is there to be copied.
        ERR.print(f"stopped at step {result.step} ({result.reason}); continue with: {how}", soft_wrap=True)
        sys.exit(130 if result.reason == "SIGINT" else 3)
