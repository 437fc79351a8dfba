"""`clearhead families`: every family with its model type, tasks and sizes, and their tree; or one family."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.tree import Tree

from ..errors import InputError, nearest
from .console import OUT, print_json, table
from .options import Json

if TYPE_CHECKING:
    from ..families import Family

MODES = ("causal", "bidirectional", "encoder-decoder")


def families(
    name: Annotated[
        str | None, Parameter(help="one family or model type: its heads, classes, sizes and relatives")
    ] = None,
    *,
    json: Json = False,
) -> None:
    """List the model families and the family tree, or describe one family."""
    from ..families import FAMILIES

    if name is not None:
        facts = _describe(_find(name))
        print_json(facts) if json else _print(facts)
        return
    if json:
        print_json([row(family) for family in FAMILIES.values()])
        return
    for mode in MODES:
        listing = table(mode, "year", "model type", "typical tasks", "sizes", right=(1,), no_wrap=(0, 1, 2))
        for family in FAMILIES.values():
            if family.mode == mode:
                listing.add_row(family.titles, str(family.year), family.key, family.uses, _sizes(family))
        OUT.print(listing)
        OUT.print()
    for family in FAMILIES.values():
        if family.parent is None:
            OUT.print(_tree(family))
    OUT.print("\n`clearhead families NAME`: the heads, classes and sizes of one family")


def _sizes(family: Family) -> str:
    """The first sizes, so that a row stays short."""
    names = list(family.sizes)
    return ", ".join(names) if len(names) <= 3 else f"{', '.join(names[:2])} and {len(names) - 2} more"


def row(family: Family) -> dict[str, object]:
    """One line of the table, made from the family's own data."""
    return {
        "name": family.name,
        "model_type": family.key,
        "title": family.titles,
        "year": family.year,
        "mode": family.mode,
        "uses": family.uses,
        "heads": list(family.architectures),
        "sizes": list(family.sizes),
        "parent": family.parent,
        "paper": family.paper,
    }


def _find(name: str) -> Family:
    """A family by its name, its model type, one of its sizes or one of its titles."""
    from ..families import BY_MODEL_TYPE, FAMILIES, NAMES, SIZES

    titles = {title.lower(): family for family in FAMILIES.values() for title in family.titles.split(", ")}
    found = FAMILIES.get(name) or BY_MODEL_TYPE.get(name) or SIZES.get(name) or titles.get(name.lower())
    if found is None:
        raise InputError(f"no family, model type or size is called {name!r}; {nearest(name, NAMES)}")
    return found


def _describe(family: Family) -> dict[str, Any]:
    """The row of a family, its classes for each head, and the parameters of each size."""
    from ..families import FAMILIES, family_and_config

    head = "tokens" if "tokens" in family.architectures else next(iter(family.architectures))
    return row(family) | {
        "classes": dict(family.architectures),
        "sizes": {size: family.spec(family_and_config(size)[1], head).count() for size in family.sizes},
        "children": [child.name for child in FAMILIES.values() if child.parent == family.name],
    }


def _print(facts: dict[str, Any]) -> None:
    from .inspect import HEAD_OUTPUTS

    OUT.print(f"[bold]{facts['title']}[/] · {facts['year']} · {facts['mode']} · {facts['uses']}")
    OUT.print(f"{'model type':<12}{facts['model_type']}")
    OUT.print(f"{'paper':<12}{facts['paper']}")
    for name, relatives in (("descends", [facts["parent"] or ""]), ("descendants", facts["children"])):
        if any(relatives):
            OUT.print(f"{name:<12}{'from ' if name == 'descends' else ''}{', '.join(relatives)}")
    OUT.print()
    heads = table("head", "gives", "class in transformers")
    for head, architecture in facts["classes"].items():
        heads.add_row(head, HEAD_OUTPUTS[head], architecture)
    OUT.print(heads)
    OUT.print()
    sizes = table("size", "parameters", right=(1,))
    for size, count in facts["sizes"].items():
        sizes.add_row(size, f"{count:,}")
    OUT.print(sizes)


def readme_table() -> str:
    """The table of the README: a line for each kind of attention."""
    from ..families import FAMILIES

    lines = ["| attention | families |", "|---|---|"]
    for mode in MODES:
        named = [f"[{f.titles}]({f.paper})" for f in FAMILIES.values() if f.mode == mode]
        lines.append(f"| {mode} | {' · '.join(named)} |")
    return "\n".join(lines)


def families_page() -> str:
    """The tables of docs/families.md."""
    from ..families import FAMILIES

    lines: list[str] = []
    for mode in MODES:
        lines += [f"## {mode.capitalize()}", ""]
        lines += ["| family | year | `model_type` | heads | typical tasks | named sizes |", "|---" * 6 + "|"]
        for family in FAMILIES.values():
            if family.mode == mode:
                sizes = ", ".join(f"`{size}`" for size in family.sizes)
                title = f"[{family.titles}]({family.paper})"
                cells = (title, family.year, f"`{family.key}`", ", ".join(family.architectures), family.uses)
                lines.append(f"| {' | '.join(map(str, cells))} | {sizes} |")
        lines.append("")
    return "\n".join(lines)


def _tree(family: Family, into: Tree | None = None) -> Tree:
    from ..families import FAMILIES

    label = f"[bold]{family.titles}[/] {family.year}"
    node = Tree(label) if into is None else into.add(label)
    children = [child for child in FAMILIES.values() if child.parent == family.name]
    for child in sorted(children, key=lambda child: child.year):
        _tree(child, node)
    return node
