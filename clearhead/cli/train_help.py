"""`clearhead train --help RECIPE`: every setting of a recipe with its value and a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from rich.markup import escape

from .console import OUT, table

SECTIONS = {
    "data": "data: which rows, how they are cut and batched",
    "tokenizer": "tokenizer: trained if the model has none",
    "train": "train: steps, rate, when to save and validate",
    "tune": "tune: what learns, with --from",
    "model": "model: a fresh model; with --from the checkpoint decides",
}


def recipe_named(words: Sequence[str]) -> str | None:
    """The recipe in `train --help RECIPE`, `train RECIPE --help`."""
    wants_help = {"--help", "-h"} & set(words)
    plain = [word for word in words[1:] if not word.startswith("-")]
    return plain[0] if words[:1] == ["train"] and wants_help and plain else None


def print_recipe_help(recipe: str) -> None:
    from ..recipes import describe_settings, load_run

    run = load_run(recipe)
    OUT.print(f"[bold]clearhead train {escape(recipe)} FILE[/]  {escape(run.about)}")
    for section, settings in groupby(describe_settings(run), key=lambda setting: setting.name.split(".")[0]):
        OUT.print(f"\n{escape(SECTIONS[section])}", style="bold")
        listing = table("setting", "default", "", no_wrap=(0,))
        for setting in settings:
            name = f"--{setting.name}" + (f" ({setting.short})" if setting.short else "")
            listing.add_row(name, escape(_shown(setting.value)), escape(setting.sentence))
        OUT.print(listing)
    OUT.print(
        "\nwith --from MODEL: 3 epochs, a learning rate by the width of the model, a validation after every "
        "epoch; the plan that is printed before the first step shows them",
        soft_wrap=True,
    )


def _shown(value: object) -> str:
    return "-" if value is None else str(value)
