"""`clearhead merge`: an adapter and its base, several adapters, or several models in; one folder out."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from ..errors import InputError, quoted, shortened
from .console import ERR, OUT, print_json, program
from .options import NO_ADAPTER, AdapterOptions, Json, edits

if TYPE_CHECKING:
    from ..bundle import Bundle, MergeRank
    from ..recipes import MergeFacts, MergePlan

CONFIG_ENDS = (".yml", ".yaml")
LONGEST_METHOD = 160  # characters of a method on the terminal and in a card


@Parameter(name="*")
@dataclass(frozen=True)
class MergeOptions:
    """How several models are merged."""

    method: Annotated[
        str | None,
        Parameter(
            help="linear (the default), slerp, task, ties, dare, dare-ties; the names of mergekit and PEFT "
            "work as well: task_arithmetic, dare_ties, cat, ties_svd, ..."
        ),
    ] = None
    weights: Annotated[
        str | None,
        Parameter(allow_leading_hyphen=True, help="a number for each model: 0.7,0.3 (default: equal ones)"),
    ] = None
    density: Annotated[
        str | None, Parameter(help="ties, dare: share of the differences that is kept, or one for each model")
    ] = None
    scale: Annotated[
        float | None,
        Parameter(allow_leading_hyphen=True, help="task, ties, dare: the differences are multiplied by it"),
    ] = None
    t: Annotated[float | None, Parameter(help="slerp: 0 is the first model, 1 the second")] = None
    set_: Annotated[
        list[str] | None,
        Parameter(name="--set", negative="", help="another setting of the method: Ties.election=unweighted"),
    ] = None
    seed: Annotated[int, Parameter(help="dare: what is drawn")] = 0
    base: Annotated[
        str | None,
        Parameter(help="the model that the others were fine-tuned from; adapters know theirs"),
    ] = None
    rank: Annotated[
        str | None,
        Parameter(help="make adapters one adapter, not a model: of this rank, or exact: of all their ranks"),
    ] = None
    dtype: Annotated[
        str | None,
        Parameter(help="number format of the result: float32, bfloat16, float16 (default: the inputs' own)"),
    ] = None


NO_MERGE_OPTIONS = MergeOptions()


def merge(
    *models: Annotated[
        str,
        Parameter(
            help="an adapter, to put it into its base; adapters over one base; or models of one shape: "
            "folders, Hub ids or .gguf files. Or a merge config of mergekit: a .yml file"
        ),
    ],
    out: Annotated[str, Parameter(help="output folder")],
    options: MergeOptions = NO_MERGE_OPTIONS,
    over: AdapterOptions = NO_ADAPTER,
    json: Json = False,
) -> None:
    """Merge an adapter into its base, several adapters into one, or several models. Inputs stay as they are.

    The result is a Hugging Face folder; with --rank it is that of an adapter.
    """
    if not models:
        raise InputError("name an adapter, or several models: clearhead merge ADAPTER --out FOLDER")
    _check_out(out, [*models, *(each for each in (options.base, over.adapter) if each)])
    is_config = len(models) == 1 and models[0].endswith(CONFIG_ENDS)
    if len(models) == 1 and options.method is None and not is_config:
        _merge_into_base(models[0], options, over, out, json=json)
        return
    if options.method is None and not is_config:
        _check_kinds(models)
    if over.adapter is not None:
        raise InputError("--adapter is for one model; name several adapters as models, and --base MODEL")
    plan, rank = _plan_of_config(Path(models[0]), options) if is_config else _plan(models, options)
    _check_out(out, [*plan.models, *([plan.base] if plan.base else [])])
    _merge_models(plan, rank, options.seed, out, any_base=over.any_base, json=json)


def _check_kinds(models: Sequence[str]) -> None:
    """Raise an error for a model and an adapter without a method: half of the adapter is rarely wanted."""
    from ..store import is_adapter_folder

    adapters = [name for name in models if Path(name).is_dir() and is_adapter_folder(Path(name))]
    if adapters and len(adapters) < len(models):
        raise InputError(
            f"{adapters[0]} is an adapter: to put it into its base, clearhead merge {adapters[0]} --out "
            f"FOLDER; to average models and adapters, --method linear"
        )


def _check_out(out: str, inputs: Sequence[str]) -> None:
    """Raise an error for a folder that has a model, before anything is computed."""
    folder = Path(out)
    if not out:
        raise InputError("--out is empty; name the folder to save into")
    if any(os.path.realpath(each) == os.path.realpath(out) for each in inputs if each):
        raise InputError(f"--out is {out}, one of the models to merge; name another folder")
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--out is {out}, a file; name a folder")
    if any((folder / name).exists() for name in ("config.json", "adapter_config.json")):
        raise InputError(f"--out is {out}, which holds a model already; name another folder, or remove it")


def _merge_into_base(
    model: str, options: MergeOptions, over: AdapterOptions, out: str, *, json: bool
) -> None:
    """One adapter into its base; the largest difference of the outputs is shown before anything is saved."""
    from ..bundle import difference
    from ..bundle import merge as merge_bundles
    from ..recipes import MergeFacts
    from ..tune import TaskArithmetic

    tuned, adapter = _open_adapter(model, options, over)
    with ERR.status(f"merging {Path(adapter).name}"):
        if options.dtype is None:
            whole = tuned.merged()
        else:  # rounded once
            whole = merge_bundles([tuned], TaskArithmetic(), dtype=options.dtype)
        apart = difference(tuned, whole)
    if not apart < float("inf"):
        raise InputError("the merged model computes numbers that are not finite; nothing was saved")
    base = str(tuned.loaded_from)
    if not json:
        OUT.print(f"merged     {Path(adapter).name} into {Path(base).name}", markup=False)
        OUT.print(f"           {tuned.tuning}", markup=False)
        OUT.print(f"difference {apart:.1e} of the largest output, on random tokens")
    told = f"largest difference of its outputs to those with the adapter beside: {apart:.1e}"
    card = MergeFacts([adapter], base, str(tuned.tuning), told)
    found = {"merged": [adapter], "base": base, "tuning": str(tuned.tuning), "difference": apart}
    _save(whole, out, card, found, json=json)


def _open_adapter(model: str, options: MergeOptions, over: AdapterOptions) -> tuple[Bundle, str]:
    """The tuned bundle, mapped, and the name of the adapter."""
    from ..bundle import open_mapped

    for name, value in vars(options).items():
        if name not in ("base", "dtype") and value != getattr(NO_MERGE_OPTIONS, name):
            raise InputError(f"--{name.strip('_')} is for merging several models; {model} is one")
    if over.adapter == "none":
        raise InputError("--adapter none leaves the adapter out: there is nothing to merge")
    if over.adapter is not None and options.base is not None:
        raise InputError(f"--adapter is put over {model}; leave --base out")
    base, adapter = (options.base, model) if over.adapter is None else (model, over.adapter)
    if base is None:
        tuned = open_mapped(adapter)
    else:
        tuned = open_mapped(base, adapter=adapter, any_base=over.any_base)
    if tuned.tuning is None:
        raise InputError(f"{model} is a model and no adapter: name an adapter, or several models")
    return tuned, adapter


def _merge_models(
    plan: MergePlan, rank: MergeRank | None, seed: int, out: str, *, any_base: bool, json: bool
) -> None:
    from ..bundle import merge as merge_bundles
    from ..recipes import MergeFacts

    with ERR.status("opening models") as status:
        merged = merge_bundles(
            plan.models,
            plan.method,
            base=plan.base,
            rank=rank,
            dtype=plan.dtype,
            any_base=any_base,
            seed=seed,
            progress=lambda done, count: status.update(f"merging parameter {done} of {count}"),
        )
    report = merged.report.merge
    assert report is not None
    how = shortened(str(report.method), LONGEST_METHOD)  # one for each layer may fill pages
    if not json:
        names = ", ".join(Path(name).name for name in plan.models)
        over = f" over {Path(report.base).name}" if report.base else ""
        OUT.print(f"merged     {names}{over} · {how}", markup=False)
        OUT.print(f"effect     {report}", markup=False)
    card = MergeFacts(plan.models, report.base, how, str(report), report.notes)
    figures = {name: value for name, value in vars(report).items() if name not in ("models", "base")}
    found = {"merged": plan.models, "base": report.base, **figures, "method": report.method.to_dict()}
    _save(merged, out, card, found, json=json)


def _plan(models: Sequence[str], options: MergeOptions) -> tuple[MergePlan, MergeRank | None]:
    """What was typed as a method with its settings."""
    from ..bundle import apply_edits
    from ..recipes import MergePlan, merge_word, method_of

    word = merge_word(options.method or "linear")
    density = _numbers("--density", options.density)
    given: dict[str, Any] = {
        "weights": _numbers("--weights", options.weights),
        "density": density[0] if density is not None and len(density) == 1 else density,
        "scale": options.scale,
        "t": options.t,
    }
    method = method_of(word, {name: value for name, value in given.items() if value is not None})
    method = apply_edits(method, edits(options.set_))
    rank = _rank(options.rank) or ("exact" if word.rank == "exact" else None)
    if word.rank == "given" and not isinstance(rank, int):
        raise InputError(
            f"--method {options.method} makes an adapter of some rank: give it, such as --rank 16"
        )
    return MergePlan(tuple(models), method, options.base, options.dtype), rank


def _plan_of_config(config: Path, options: MergeOptions) -> tuple[MergePlan, MergeRank | None]:
    from ..recipes import read_mergekit

    for name, value in vars(options).items():
        if name not in ("rank", "seed", "dtype") and value != getattr(NO_MERGE_OPTIONS, name):
            raise InputError(
                f"--{name.strip('_')} is said by {config.name}; leave it out, or change it there"
            )
    plan = read_mergekit(config)
    return replace(plan, dtype=options.dtype or plan.dtype), _rank(options.rank)


def _numbers(option: str, text: str | None) -> tuple[float, ...] | None:
    """0.7,0.3 as numbers."""
    if text is None:
        return None
    try:
        found = tuple(float(word) for word in text.split(","))
    except ValueError:
        found = (float("nan"),)
    if not all(map(isfinite, found)):
        raise InputError(f"{option} is {quoted(text)}; expected numbers with commas between them: 0.7,0.3")
    return found


def _rank(text: str | None) -> MergeRank | None:
    if text is None or text == "exact":
        return None if text is None else "exact"
    if not text.isdecimal() or not int(text):
        raise InputError(f"--rank is {quoted(text)}; expected a whole number from 1, or exact")
    return int(text)


def _save(bundle: Bundle, out: str, card: MergeFacts, found: dict[str, Any], *, json: bool) -> None:
    from ..bundle import save
    from ..recipes import CARD_FILE, command_line, merge_card

    if bundle.tuning is None and (card.base or "").endswith(".gguf"):
        number = str(bundle.dtype).removeprefix("torch.")
        name = Path(str(card.base)).name
        ERR.print(f"the weights of {name} are read as {number}, and saved as that", soft_wrap=True)
    bundle.files[CARD_FILE] = merge_card(bundle, card, Path(out).name).encode("utf-8")
    with ERR.status(f"saving {Path(out).name}"):
        save(bundle, out)
    if json:
        print_json({"folder": out, **found})
        return
    OUT.print(f"saved      {out}", markup=False)
    command = command_line(bundle, bundle.task, out).removeprefix("clearhead")
    OUT.print(f"next       {program()}{command}", markup=False)
