"""Lower half of the page of a comparison: attention that moved, tables of heads, parts with their shares."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

from .attention_change import AttentionChange, MovedLink
from .comparison import Comparison, PartChange
from .comparison_chinese import cancel_sentence_zh, kept_sentence_zh, part_name_zh
from .comparison_view import (
    HeadTable,
    Measure,
    cancel_sentence,
    head_tables,
    kept_sentence,
    kind_name,
    largest_parts,
    part_name,
    percent,
)
from .markup import (
    MEASURE_MEANINGS,
    both_languages,
    element,
    listing,
    mono_cell,
    number_cell,
    share_bar,
    table_row,
)
from .record import AttentionKind

WHITE_FROM = 0.72  # shade of a cell from which its numbers are white
DENSE_FROM = 17  # heads from which cells are small and have no numbers
LISTED_ROWS = 12
TABLE_TITLES: dict[Measure, str] = {
    "moved": "Attention that moved", "energy": "Change of the weights", "share": "Share of the change",
}  # fmt: skip


def attention_section(c: Comparison) -> str:
    """The weights that changed most."""
    found = []
    for kind, change in c.attention.items():
        found += [element("p", escape(f"{kind_name(c, kind)}: {why}"), "note") for why in change.reasons]
        rows = [
            _link(link, change) for link in change.links[:5] if change.moved_LH[link.layer, link.head] > 0
        ]
        if rows:
            heads = ("layer", "head", "moved", "from", "to", "weight")
            caption = kind_name(c, kind) if len(c.attention) > 1 else ""
            found.append(element("section", listing(heads, rows, caption), "scroll"))
    if not found:
        return ""
    return element("h2", both_languages("Attention that moved most")) + element(
        "div", "".join(found), "columns"
    )


def _link(link: MovedLink, change: AttentionChange) -> str:
    return table_row(
        number_cell(str(link.layer)),
        number_cell(str(link.head)),
        number_cell(percent(float(change.moved_LH[link.layer, link.head]))),
        mono_cell(link.query),
        mono_cell(link.key),
        number_cell(f"{link.before:.2f} → {link.after:.2f}"),
    )


def tables_section(c: Comparison) -> str:
    groups = []
    for kind, tables in head_tables(c).items():
        name = element("h3", both_languages(kind_name(c, kind))) if len(c.attention) > 1 else ""
        groups.append(name + element("div", "".join(map(_table, tables)), "columns"))
    if not groups:
        return ""
    hint = both_languages("Point at a cell, or use the arrow keys.")
    detail = element("p", hint, "detail", id="cell-detail", aria_live="polite")
    return element("h2", both_languages("By layer and head, in %")) + "".join(groups) + detail


def _table(table: HeadTable) -> str:
    dense = table.heads >= DENSE_FROM
    head = element("td", "")
    for i, name in enumerate(table.columns):
        head += element("td", "", "gap") if i == table.heads else ""
        head += element("th", "" if dense and i < table.heads and i % 4 else name, scope="col")
    rows = []
    for layer, row in enumerate(table.rows):
        cells = [_cell(table, layer, i, value) for i, value in enumerate(row)]
        if table.heads < len(cells):
            cells.insert(table.heads, element("td", "", "gap"))
        rows.append(table_row(element("th", str(layer), scope="row"), *cells))
    caption = element("caption", both_languages(TABLE_TITLES[table.measure]))
    body = caption + element("thead", table_row(head)) + element("tbody", "".join(rows))
    kind = "heads dense" if dense else "heads"
    return element("section", element("table", body, kind, data_columns=str(len(table.columns))), "scroll")


def _cell(table: HeadTable, layer: int, i: int, value: float | None) -> str:
    total = ["total"] if i >= table.heads else []
    if value is None:
        return element("td", "", " ".join(["unknown", *total]))
    level = table.level(value)
    names = [table.tint, *total, *(["strong"] if level > WHITE_FROM else [])]
    return element(
        "td",
        str(round(100 * value) or "·"),
        " ".join(names),
        data_cell=f"{table.kind}.{layer}.{table.columns[i]}",
        style=f"--level:{0.04 + 0.9 * level:.2f}",
        title=percent(value),
    )


def cell_facts(c: Comparison) -> Iterator[tuple[str, dict[str, Any]]]:
    """What is told about each cell of the tables: all that is known of that head or part."""
    for kind, tables in head_tables(c).items():
        links = {(link.layer, link.head): link for link in c.attention[kind].links}
        for name in dict.fromkeys(column for table in tables for column in table.columns):
            for layer in range(len(tables[0].rows)):
                head = int(name) if name.isdigit() else None
                link = None if head is None else links.get((layer, head))
                yield f"{kind}.{layer}.{name}", _facts_of_cell(c, kind, layer, name, link)


def _facts_of_cell(
    c: Comparison, kind: AttentionKind, layer: int, name: str, link: MovedLink | None
) -> dict[str, Any]:
    base, _, step = c.attention[kind].address.format(layer).rpartition(".")
    if name.isdigit():
        part = PartChange(f"{base}.{step}.heads.{name}", layer, step, int(name), None)
    else:
        part = PartChange(
            base if name == "layer" else f"{base}.{name}", layer, name.replace("layer", ""), None, None
        )
    known, towers = c.part(part.address) or part, list(c.depth)
    facts: dict[str, Any] = {
        "name": {"en": part_name(part, towers), "zh": part_name_zh(part, towers)},
        "energy": known.energy, "share": known.share, "alone": known.alone,
    }  # fmt: skip
    if link is not None:
        moved = float(c.attention[kind].moved_LH[layer, link.head])
        facts |= {"moved": moved, "link": [link.query, link.key, link.before, link.after]}
    return facts


def parts_section(c: Comparison) -> str:
    found = largest_parts(c, LISTED_ROWS)
    measures = dict.fromkeys(table.measure for tables in head_tables(c).values() for table in tables)
    meanings = "".join(
        element("p", both_languages(*MEASURE_MEANINGS[measure]), "note") for measure in measures
    )
    if not found:
        return meanings
    groups = [part for part in found if not part.step], [part for part in found if part.step]
    tables = "".join(element("section", _part_rows(group, c), "scroll") for group in groups if group)
    return (
        element("h2", both_languages("Parts that carry the change"))
        + element("p", both_languages(kept_sentence(c), kept_sentence_zh(c)))
        + element("p", both_languages(cancel_sentence(c), cancel_sentence_zh(c)), "note")
        + element("div", tables, "columns")
        + meanings
    )


def _part_rows(parts: Sequence[PartChange], c: Comparison) -> str:
    towers, rows = list(c.depth), []
    for part in parts:
        share = part.share or 0.0
        rows.append(
            table_row(
                element(
                    "th", both_languages(part_name(part, towers), part_name_zh(part, towers)), scope="row"
                ),
                number_cell(percent(share)),
                element("td", share_bar(share, part.alone)),
                number_cell("" if part.alone is None else percent(part.alone)),
                number_cell("" if part.energy is None else percent(part.energy)),
            )
        )
    return listing(("part", "share", "", "alone", "weights"), rows)
