"""Saving an evaluation: a picture, or a self-contained HTML page without network access, by the suffix."""

from __future__ import annotations

from html import escape
from pathlib import Path

from ..errors import InputError, SaveError
from .pictures import EvaluationView, draw_evaluation

EVALUATION_SUFFIXES = (".png", ".svg", ".pdf", ".html")
PAGE_STYLE = """
body { font: 15px/1.5 system-ui, "Noto Sans SC", sans-serif; color: #1f2933; max-width: 70rem;
       margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.25rem; } h2 { font-size: 1rem; margin-top: 2rem; }
table { border-collapse: collapse; } th, td { padding: .35rem .6rem; text-align: right; }
th { font-weight: 500; } thead th { vertical-align: bottom; } tbody th { text-align: left; }
.matrix td { min-width: 3.2rem; text-align: center; } small { display: block; font-size: .75em; }
.scores td { font-variant-numeric: tabular-nums; } .scores th { text-align: left; }
li { margin-bottom: .9rem; } .faint { color: #64707d; } .reference { color: #15803d; }
.predicted { color: #c2410c; }
"""


def check_evaluation_path(path: str | Path) -> Path:
    """Raise an error for a file that could not be saved, before the work is done."""
    path = Path(path)
    if path.suffix.lower() not in EVALUATION_SUFFIXES:
        raise InputError(f"an evaluation is saved as {', '.join(EVALUATION_SUFFIXES)}; given {path.name}")
    if not path.parent.is_dir():
        raise InputError(f"there is no folder {path.parent} to save {path.name} in")
    return path


def save_evaluation(view: EvaluationView, path: str | Path) -> Path:
    path = check_evaluation_path(path)
    if path.suffix.lower() != ".html":
        return draw_evaluation(view).save(path)
    try:
        path.write_text(evaluation_page(view), encoding="utf-8")
    except OSError as error:
        raise SaveError(f"{path} cannot be written: {error.strerror}") from None
    return path


def evaluation_page(view: EvaluationView) -> str:
    """Scores, the confusion matrix and the worst examples as HTML."""
    scores = "".join(
        f"<tr><th>{escape(name)}</th><td>{value:.4g}</td></tr>" for name, value in view.scores.items()
    )
    parts = [f"<h1>{escape(view.title)}</h1><table class=scores>{scores}</table>"]
    if view.counts is not None:
        parts.append(f"<h2>Confusion matrix: count, share of the row</h2>{_matrix(view)}")
    if view.rows:
        parts.append(f"<h2>The {len(view.rows)} worst examples, by {escape(view.measure)}</h2>{_list(view)}")
    head = f'<meta charset="utf-8"><title>{escape(view.title)}</title><style>{PAGE_STYLE}</style>'
    return f"<!doctype html><html><head>{head}</head><body>{''.join(parts)}</body></html>\n"


def _matrix(view: EvaluationView) -> str:
    assert view.counts is not None
    classes = view.shown_classes()
    columns = "".join(f"<th>{escape(view.names[j])}</th>" for j in classes)
    rows = []
    for i in classes:
        total = sum(view.counts[i])
        cells = []
        for j in classes:
            share = view.counts[i][j] / max(total, 1)
            ink = "#fff" if share > 0.55 else "inherit"
            style = f"background: rgba(8, 81, 156, {share:.3f}); color: {ink}"
            text = f"{view.counts[i][j]:,}<small>{100 * share:.0f} %</small>" if view.counts[i][j] else ""
            cells.append(f'<td style="{style}">{text}</td>')
        rows.append(f"<tr><th>{escape(view.names[i])} ({total:,})</th>{''.join(cells)}</tr>")
    head = f"<thead><tr><th>reference \\ predicted</th>{columns}</tr></thead>"
    return f"<table class=matrix>{head}<tbody>{''.join(rows)}</tbody></table>"


def _list(view: EvaluationView) -> str:
    items = []
    for row in view.rows:
        lines = [escape(row.text)]
        sides = (("reference", row.reference), ("predicted", row.prediction))
        lines += [
            f"<span class=faint>{side}</span> <b class={side}>{escape(text)}</b>"
            for side, text in sides
            if text
        ]
        where = f" · {row.place}" if row.place else ""
        lines.append(f"<span class=faint>{escape(view.measure)} {row.error:.3g}{escape(where)}</span>")
        items.append(f"<li>{'<br>'.join(lines)}</li>")
    return f"<ol>{''.join(items)}</ol>"
