"""`clearhead families`: every family with its year, attention, tasks and sizes, and how they descend."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.tree import Tree

from .console import OUT, print_json, table
from .options import Json

if TYPE_CHECKING:
    from ..families import Family


def families(*, json: Json = False) -> None:
    """List the model families and the family tree."""
    from ..families import FAMILIES

    if json:
        print_json([row(family) for family in FAMILIES.values()])
        return
    listing = table("family", "year", "attention", "typical tasks", "sizes", right=(1,), no_wrap=(0, 1, 2))
    for family in FAMILIES.values():
        sizes = ", ".join(family.sizes)
        listing.add_row(family.titles, str(family.year), family.mode, family.uses, sizes)
    OUT.print(listing)
    OUT.print()
    for family in FAMILIES.values():
        if family.parent is None:
            OUT.print(_tree(family))


def row(family: Family) -> dict[str, object]:
    """One line of the table, made from the family's own data."""
    return {
        "name": family.name,
        "title": family.titles,
        "year": family.year,
        "mode": family.mode,
        "uses": family.uses,
        "heads": list(family.architectures),
        "sizes": list(family.sizes),
        "parent": family.parent,
        "paper": family.paper,
    }


def markdown() -> str:
    """The table of the README."""
    from ..families import FAMILIES

    lines = ["| family | year | attention | typical tasks | named sizes |", "|---|---|---|---|---|"]
    for family in FAMILIES.values():
        sizes = ", ".join(f"`{size}`" for size in family.sizes)
        lines.append(
            f"| [{family.titles}]({family.paper}) | {family.year} | {family.mode} | {family.uses} | {sizes} |"
        )
    return "\n".join(lines)


def _tree(family: Family, into: Tree | None = None) -> Tree:
    from ..families import FAMILIES

    label = f"[bold]{family.titles}[/] {family.year}"
    node = Tree(label) if into is None else into.add(label)
    children = [child for child in FAMILIES.values() if child.parent == family.name]
    for child in sorted(children, key=lambda child: child.year):
        _tree(child, node)
    return node
