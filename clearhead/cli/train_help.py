"""`clearhead train --help RECIPE`, `tune --help METHOD`: every setting with its value and a sentence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from ..errors import InputError, nearest, quoted
from .console import OUT, table

if TYPE_CHECKING:
    from ..recipes import SettingHelp

SECTIONS = {
    "data": "data: which rows, how they are cut and batched",
    "tokenizer": "tokenizer: trained if the model has none",
    "train": "train: steps, rate, when to save and validate",
    "tune": "tune: what learns, with --from",
    "model": "model: a fresh model; with --from the checkpoint decides",
}


def help_topic(words: Sequence[str]) -> str | None:
    """The recipe in `train --help RECIPE` and `train RECIPE --help`, the method in `tune --help METHOD`."""
    wants_help = {"--help", "-h"} & set(words)
    plain = [word for word in words[1:] if not word.startswith("-")]
    if not wants_help or not plain:
        return None
    # `tune MODEL FILE --help` is about the command
    return plain[0] if words[0] == "train" or (words[0] == "tune" and len(plain) == 1) else None


def print_topic_help(verb: str, topic: str) -> None:
    from ..recipes import METHODS, RECIPES

    if verb == "train" or topic in RECIPES:
        _print_recipe(topic)
    elif topic in METHODS:
        _print_method(topic)
    else:
        raise InputError(f"no method is called {quoted(topic)}; {nearest(topic, METHODS)}")


def _print_method(method: str) -> None:
    from ..recipes import METHODS, describe_method

    OUT.print(
        f"[bold]clearhead tune MODEL FILE --method {escape(method)}[/]  {escape(METHODS[method].about)}",
        soft_wrap=True,
    )
    OUT.print(_listing(describe_method(method)))
    OUT.print("\nall other settings: clearhead train --help RECIPE", soft_wrap=True)


def _print_recipe(recipe: str) -> None:
    from ..recipes import describe_settings, load_run

    run = load_run(recipe)
    OUT.print(f"[bold]clearhead train {escape(recipe)} FILE[/]  {escape(run.about)}")
    for section, settings in groupby(describe_settings(run), key=lambda setting: setting.name.split(".")[0]):
        OUT.print(f"\n{escape(SECTIONS[section])}", style="bold")
        OUT.print(_listing(settings))
    OUT.print(
        "\nwith --from MODEL: 3 epochs, a learning rate by the width of the model, a validation after every "
        "epoch; the plan that is printed before the first step shows them",
        soft_wrap=True,
    )


def _listing(settings: Iterable[SettingHelp]) -> Table:
    listing = table("setting", "default", "", no_wrap=(0,))
    for setting in settings:
        name = f"--{setting.name}" + (f" ({setting.short})" if setting.short else "")
        listing.add_row(name, escape(_shown(setting.value)), escape(setting.sentence))
    return listing


def _shown(value: object) -> str:
    return "-" if value is None else str(value)
