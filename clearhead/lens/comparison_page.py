"""Page of a comparison: a comparison in; one self-contained HTML file out, without network access.

Everything is in the markup, so that it can be read without scripts and by screen readers; the script shows
details of what is pointed at or focused, and switches between English and Chinese.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from .comparison import Comparison
from .comparison_chinese import change_sentence_zh
from .comparison_page_tables import (
    LISTED_ROWS,
    WHITE_FROM,
    attention_section,
    cell_facts,
    parts_section,
    tables_section,
)
from .comparison_view import (
    Direction,
    change_sentence,
    common_beginning,
    direction,
    probability,
    scale_top,
    shade,
    small_number,
    texts_title,
)
from .markup import both_languages, element, listing, mono_cell, number_cell, share_bar, table_row
from .output_change import TokenChange

PAGE_FILES = Path(__file__).parent / "page"
COLOURED_FROM = 0.03  # shade of a token from which it has a colour


def comparison_page(c: Comparison) -> str:
    parts = [
        _header(c),
        _text(c),
        _numbers(c),
        _generated(c),
        attention_section(c),
        tables_section(c),
        parts_section(c),
    ]
    data = {"tokens": [_token_facts(token) for token in c.tokens], "cells": dict(cell_facts(c))}
    filled = {
        "title": escape(" → ".join(c.names)),
        "body": "\n".join(filter(None, parts)),
        # "<" is escaped, so that no text can end the script element.
        "data": json.dumps(data, ensure_ascii=False).replace("<", "\\u003c"),
        "script": (PAGE_FILES / "compare.js").read_text(encoding="utf-8"),
    }
    template = (PAGE_FILES / "compare.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda place: filled[place[1]], template)


def _header(c: Comparison) -> str:
    facts = [" · ".join(filter(None, (c.title, c.tuning))), *c.notes]
    button = element("button", "中文", id="language", type="button")
    title = element("h1", escape(" → ".join(c.names)))
    return element("header", title + button) + "".join(element("p", escape(x), "note") for x in facts)


def _text(c: Comparison) -> str:
    top, source = scale_top(c), ""
    if c.source:
        words = escape(" ".join(token.label for token in c.source if not token.special))
        source = element("p", f"{both_languages('the encoder read')}: {words}", "faint")
    tokens = "".join(_token(i, token, top) for i, token in enumerate(c.tokens))
    hint = both_languages("Point at a token, or use the arrow keys.")
    return element(
        "main",
        element("h2", both_languages("The text"))
        + source
        + element("p", tokens, "tokens", role="group")
        + _legend(c, top)
        + element("p", hint, "detail", id="token-detail", aria_live="polite"),
    )


def _token(i: int, token: TokenChange, top: float) -> str:
    level = shade(token, top)
    facts = {
        direction(token): level > COLOURED_FROM, "strong": level > WHITE_FROM, "switched": token.is_switched,
        "special": token.special,
    }  # fmt: skip
    names = " ".join(name for name, holds in facts.items() if holds)
    told = "no prediction" if token.change is None else f"{small_number(token.change)} {_unit(token)}"
    if token.before is not None:
        told += f", {probability(token.before)} to {probability(token.after)}"
    style = {"style": f"--level:{0.9 * level:.2f}"} if level > COLOURED_FROM else {}
    label = escape(token.label or "▢")
    span = element("span", label, names, data_token=str(i), title=f"{token.label or 'next'}: {told}", **style)
    return (" " if token.space else "") + span


def _unit(token: TokenChange) -> str:
    return "nats" if token.top_before else "of its length"


def _legend(c: Comparison, top: float) -> str:
    predicted = any(token.top_before for token in c.tokens)
    ramps: list[tuple[Direction, str]] = [
        ("other", "its prediction changed" if predicted else "its state moved")
    ]
    if any(token.before is not None for token in c.tokens):
        ramps = [("less", "less likely than before"), ("more", "more likely than before")]
    items = [element("span", "", f"ramp {name}") + both_languages(text) for name, text in ramps]
    items.append(f"{both_languages('darkest')}: {top:.2g} {'nats' if predicted else 'of its length'}")
    items += [both_languages("bold: another best guess")] if predicted else []
    return element("div", "".join(element("span", item) for item in items), "legend")


def _numbers(c: Comparison) -> str:
    """The tokens that changed most; beside them the numbers of the whole text, and labels."""
    rows = [
        table_row(element("th", both_languages(name), scope="row"), number_cell(f"{a:.3f} → {b:.3f}"))
        for name, (a, b) in c.summary.items()
    ]
    if c.cosine is not None:
        rows.append(
            table_row(
                element("th", both_languages("cosine of both vectors"), scope="row"),
                number_cell(f"{c.cosine:.3f}"),
            )
        )
    whole = [
        element("h2", both_languages("In numbers")),
        element("table", "".join(rows)) if rows else "",
        element("p", both_languages(change_sentence(c), change_sentence_zh(c))),
        _labels(c),
    ]
    changes = [token for token in c.most_changed(LISTED_ROWS) if token.change and token.top_before]
    listed = element("section", _changes(changes), "scroll") if changes else ""
    return element("div", listed + element("section", "".join(whole), "grow"), "columns")


def _changes(changes: Sequence[TokenChange]) -> str:
    rows = []
    for token in changes:
        own = "" if token.before is None else f"{probability(token.before)} → {probability(token.after)}"
        guesses = [f"{word} {probability(p)}" for word, p in (token.top_before[0], token.top_after[0])]
        name = escape(token.label) if token.label else both_languages("next")
        rows.append(
            table_row(
                number_cell(small_number(token.change or 0.0)),
                element("th", name, "mono", scope="row"),
                mono_cell(own),
                mono_cell(guesses[0]),
                mono_cell(guesses[1], "switched" if token.is_switched else ""),
            )
        )
    heads = ("nats", "token", "its probability", "best guess before", "best guess after")
    return element("h2", both_languages("Predictions that changed most")) + listing(heads, rows)


def _labels(c: Comparison) -> str:
    rows = [
        table_row(
            element("th", escape(label.name), scope="row"),
            number_cell(f"{label.before:.3f} → {label.after:.3f}"),
            element("td", "" if c.kind == "score" else share_bar(label.after, label.before, "label")),
        )
        for label in c.labels[:LISTED_ROWS]
    ]
    return element("table", "".join(rows)) if rows else ""


def _generated(c: Comparison) -> str:
    if c.texts is None:
        return ""
    same = common_beginning(c.texts.before, c.texts.after)
    boxes = [
        element("b", both_languages(name))
        + element("span", escape(text[:same]), "faint")
        + escape(text[same:])
        for name, text in (("before", c.texts.before), ("after", c.texts.after))
    ]
    texts = "".join(element("div", box) for box in boxes)
    return element("h2", both_languages(texts_title(c))) + element("div", texts, "texts")


def _token_facts(token: TokenChange) -> dict[str, Any]:
    return {
        "label": token.label, "change": token.change, "before": token.before, "after": token.after,
        "top_before": token.top_before, "top_after": token.top_after,
    }  # fmt: skip
