"""Model cards of merged models: a bundle and what was merged in; the README.md of its folder out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ..bundle import Bundle, is_adapter
from .card import HAS_FOLDER, HUB_NAME, library_of
from .card_usage import command_line, pipeline_tag


@dataclass(frozen=True)
class MergeFacts:
    """What was merged. Names may be folders; a card gives the last part of them."""

    models: Sequence[str]
    base: str | None
    how: str  # a method, or the tuning that was put into its base
    figures: str
    notes: Sequence[str] = ()


def merge_card(bundle: Bundle, facts: MergeFacts, name: str) -> str:
    """`name` is that of the folder."""
    family = bundle.family.title if bundle.family else type(bundle.spec).__name__
    parts = ", ".join(f"`{Path(each).name}`" for each in facts.models)
    over = f" over `{Path(facts.base).name}`" if facts.base else ""
    what = f"A {family} model of {bundle.parameters:,} parameters"
    what = f"An adapter for a {family} model" if is_adapter(bundle) else what
    notes = [note for note in facts.notes if not HAS_FOLDER.search(note)]
    sections = [
        f"---\n{_metadata(bundle, facts)}---\n\n# {name}",
        f"{what}, merged with Clearhead from {parts}{over}.",
        "\n".join(f"- {line}" for line in (facts.how, facts.figures, *notes)),
        f"```sh\n{command_line(bundle, bundle.task, name)}\n```",
        "Not measured: how well the result does what its parts were trained for.",
    ]
    card = "\n\n".join(sections) + "\n"
    # Labels and file names are anybody's: no control characters for the terminal that shows the card.
    return "".join(c if c == "\n" or c.isprintable() else repr(c)[1:-1] for c in card)


def _metadata(bundle: Bundle, facts: MergeFacts) -> str:
    metadata: dict[str, Any] = {"library_name": library_of(bundle, bundle.task)}
    tag = pipeline_tag(bundle, bundle.task)
    if tag is not None:
        metadata["pipeline_tag"] = tag
    named = [each for each in (*facts.models, facts.base) if each and HUB_NAME.fullmatch(each)]
    on_hub = [each for each in named if not Path(each).exists()]
    if on_hub:
        metadata["base_model"] = on_hub
    metadata["tags"] = ["clearhead", "merge"]
    text: str = yaml.safe_dump(metadata, sort_keys=False, allow_unicode=True)
    return text
