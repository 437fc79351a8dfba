"""The rows of a file that changed most between two models, as terminal output."""

from __future__ import annotations

from rich.cells import set_cell_size
from rich.markup import escape
from rich.text import Text

from ...bundle import RowChanges
from ..console import OUT, table
from .comparison_tables import on_one_line


def print_rows(found: RowChanges, names: tuple[str, str], top: int) -> None:
    """The rows that changed most, one line each."""
    OUT.print(f"{names[0]} → {names[1]}", style="bold", markup=False)
    losses = found.rows[0].before is not None
    labels = bool(found.rows[0].best_after)
    middle = ("loss", "", "") if losses else ("before", "after") if labels else ()
    rows = table("row", "change", *middle, "text", right=(0, 1, 2, 4) if losses else (0, 1))
    for row in found.rows[:top]:
        cells: tuple[str | Text, ...] = ()
        if row.before is not None and row.after is not None:
            cells = f"{row.before:.2f}", "→", f"{row.after:.2f}"
        elif labels:
            cells = escape(row.best_before), Text(row.best_after, style="bold" if row.is_switched else "")
        text = set_cell_size(on_one_line(row.text), max(20, OUT.width - 36)).rstrip()
        rows.add_row(str(row.row), f"{row.change:.3g}", *cells, escape(text))
    OUT.print(rows)
    parts = [f"{len(found.rows):,} rows", f"mean change {found.mean_change:.3g} {found.unit}"]
    if found.losses is not None:
        parts.append(f"mean loss {found.losses[0]:.3f} → {found.losses[1]:.3f}")
    if found.switched is not None:
        parts.append(f"{found.switched:,} with another label")
    OUT.print(" · ".join(parts), markup=False, soft_wrap=False)
