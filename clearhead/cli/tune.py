"""`clearhead tune MODEL FILE`: a checkpoint and rows in; an adapter, or a whole model, out.

The columns of the rows decide what is learned: answers, labels, tags, numbers, similar texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ..errors import InputError, nearest
from .console import ERR
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

TUNE_WORDS = (
    "MODEL FILE [FILE] and settings: "
    "--method lora|dora|rslora|pissa|adapter|pfeiffer|parallel|prefix|prompt|ia3|bias|head|full, "
    "--rank 8, --alpha 16, --targets '*.attn.{q,v}' or q_proj,v_proj, --quantize int8|int4, --epochs 3, "
    "--lr 1e-3, --batch-size 16, --max-length 128, or any as a dotted option: --tune.dropout 0.1; "
    "`tune --help METHOD` and `train --help RECIPE` list all of them"
)


def tune(
    *words: Annotated[str, Parameter(allow_leading_hyphen=True, help=TUNE_WORDS)],
    recipe: Annotated[
        str | None, Parameter(help="what is learned (default: by the columns of the rows)")
    ] = None,
    options: RunOptions = NO_RUN_OPTIONS,
    set_: Set = None,
) -> None:
    """Fine-tune a checkpoint on your rows: a few parameters beside its weights, by LoRA unless you say how.

    MODEL is a folder, a Hub id, a .gguf file, or an adapter, which is trained further. The base is unchanged.
    """
    if options.resume:
        if recipe or set_:
            raise InputError("--resume continues with the run as it is; leave out --recipe and --set")
        run, folder = existing_run(options.resume, words)
    else:
        run, folder = _new_run(words, recipe, options, edits(set_))
    start_run(run, folder, options)


def _new_run(
    words: Sequence[str], recipe: str | None, options: RunOptions, edit: Edits
) -> tuple[RunConfig, Path]:
    from ..recipes import RECIPES, load_run

    plain = plain_words(words, 3)
    if len(plain) < 2:
        raise InputError("name a model and a file of rows: clearhead tune MODEL FILE")
    model, files, settings = plain[0], plain[1:], [*words[len(plain) :]]
    if recipe is not None and recipe not in RECIPES:
        raise InputError(f"no recipe is called {recipe!r}; {nearest(recipe, RECIPES)}")
    name, is_tuned = _recipe(model, files, options.map, recipe)
    method = [] if is_tuned else ["--method", "lora"]
    run = load_run(name, [*method, *data_setting(files), *settings], fine_tune=True).with_absolute_paths()
    checkpoint = str(Path(model).resolve()) if Path(model).exists() else model
    own = {key: value for key, value in run.model.items() if key == "quantize"}
    run = replace(run, model={"family": checkpoint, **own, **({"edit": edit} if edit else {})})
    if options.out:
        return run, Path(options.out)
    return run, default_folder(run, model, f"{Path(model).name.removesuffix('.gguf')}-{name}")


def _recipe(
    model: str, files: Sequence[str], mapping: Sequence[str] | None, given: str | None
) -> tuple[str, bool]:
    """The recipe for these rows and this model, and whether the model is an adapter already."""
    from ..bundle import open_mapped
    from ..data import parse_map
    from ..recipes import recipe_of_rows

    with ERR.status(f"opening {Path(model).name}"):
        base = open_mapped(model)
    roles = parse_map(list(mapping)) if mapping else None
    return given or recipe_of_rows(base, list(files), roles), base.tuning is not None
