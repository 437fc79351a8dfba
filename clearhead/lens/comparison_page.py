"""Page of a comparison: a comparison in; one self-contained HTML file out, without network access.

Everything is in the markup, so that it can be read without scripts and by screen readers; the script shows
details of what is pointed at or focused, and switches between English and Chinese.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

from .attention_change import AttentionChange, MovedLink
from .comparison import Comparison, PartChange
from .comparison_view import (
    KIND_NAMES,
    Direction,
    HeadTable,
    Measure,
    cancel_sentence,
    cancel_sentence_zh,
    change_sentence,
    change_sentence_zh,
    common_beginning,
    direction,
    head_tables,
    kept_sentence,
    kept_sentence_zh,
    largest_parts,
    part_name,
    part_name_zh,
    percent,
    probability,
    scale_top,
    shade,
    small_number,
)
from .output_change import TokenChange
from .record import AttentionKind

HERE = Path(__file__).parent / "page"
PALE, STRONG = 0.03, 0.72  # below, a token has no colour; above, its letters are white
DENSE = 16  # tables of more heads have small cells without numbers
LISTED = 12
COLOURS: dict[Measure, Direction] = {"moved": "more", "energy": "other", "share": "less"}
TITLES: dict[Measure, str] = {
    "moved": "Attention that moved", "energy": "Change of the weights", "share": "Share of the change",
}  # fmt: skip
ZH: dict[str, str] = {
    "The text": "文字", "In numbers": "数字", "Predictions that changed most": "变化最大的预测",
    "How the text goes on": "接下来的文字", "What is generated": "生成的文字",
    "Attention that moved most": "移动最多的注意力", "By layer and head, in %": "按层和头，%",
    "Parts that carry the change": "造成变化的部分",
    "Attention that moved": "移动了的注意力", "Change of the weights": "权重的变化",
    "Share of the change": "占变化的份额",
    "less likely than before": "比之前更不可能", "more likely than before": "比之前更可能",
    "its prediction changed": "预测的变化", "its state moved": "状态的移动", "darkest": "最深",
    "bold: another best guess": "粗体：最可能的 token 变了",
    "its probability": "它的概率", "best guess before": "之前最可能", "best guess after": "之后最可能",
    "before": "之前", "after": "之后", "next": "下一个", "the encoder read": "编码器读到",
    "part": "部分", "share": "份额", "alone": "单独", "weights": "权重",
    "layer": "层", "head": "头", "moved": "移动", "from": "从", "to": "到", "weight": "权重",
    "loss per token": "每个 token 的损失", "perplexity": "困惑度",
    "similarity of the two texts": "两段文字的相似度", "cosine of both vectors": "前后向量的余弦",
    "attention": "注意力", "decoder attention": "解码器注意力", "cross-attention": "交叉注意力",
    "Point at a token, or use the arrow keys.": "指向一个 token，或用方向键。",
    "Point at a cell, or use the arrow keys.": "指向一格，或用方向键。",
}  # fmt: skip
MEANINGS: dict[Measure, tuple[str, str]] = {
    "moved": (
        "Attention that moved: half the sum of the differences of a row of attention, the mean of all rows.",
        "移动了的注意力：一行注意力权重之差的绝对值之和的一半，对所有行取平均。",
    ),
    "energy": (
        "Change of the weights: |dW| / |W| of the rows and columns of a head, or of all weights of a part.",
        "权重的变化：一个头的行和列（或一个部分的全部权重）的 |dW| / |W|。",
    ),
    "share": (
        "Share of the change: how much of it goes away if this part alone is as before (the line: how much "
        "this part makes by itself). Parts act together, so shares do not add up to 100 %.",
        "占变化的份额：只把这一部分恢复原样，变化会消失多少（竖线：这一部分单独能造成多少）。"
        "各部分共同起作用，所以份额之和不是 100 %。",
    ),
}


def comparison_page(c: Comparison) -> str:
    parts = [_header(c), _text(c), _numbers(c), _generated(c), _attention(c), _tables(c), _parts(c)]
    data = {"tokens": [_token_facts(token) for token in c.tokens], "cells": dict(_cells(c))}
    filled = {
        "title": escape(" → ".join(c.names)),
        "body": "\n".join(filter(None, parts)),
        # "<" is escaped, so that no text can end the script element.
        "data": json.dumps(data, ensure_ascii=False).replace("<", "\\u003c"),
        "script": (HERE / "compare.js").read_text(encoding="utf-8"),
    }
    template = (HERE / "compare.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda place: filled[place[1]], template)


def _both(text: str, zh: str | None = None) -> str:
    """A text in both languages, of which the page shows one."""
    other = ZH.get(text, text) if zh is None else zh
    if other == text:
        return escape(text)
    return f'<span lang="en">{escape(text)}</span><span lang="zh">{escape(other)}</span>'


def _element(name: str, inside: str, kind: str = "", **attributes: str) -> str:
    """An element whose content is markup; `kind` is its class."""
    given = {"class": kind} | attributes if kind else attributes
    written = "".join(f' {key.replace("_", "-")}="{escape(value)}"' for key, value in given.items())
    return f"<{name}{written}>{inside}</{name}>"


def _row(*cells: str) -> str:
    return _element("tr", "".join(cells))


def _number(text: str) -> str:
    return _element("td", text, "number")


def _mono(text: str, kind: str = "") -> str:
    return _element("td", escape(text), f"mono {kind}".strip())


def _listing(heads: Iterable[str], rows: Iterable[str], caption: str = "") -> str:
    names = _row(*(_element("th", _both(head) if head else "", scope="col") for head in heads))
    body = _element("thead", names) + _element("tbody", "".join(rows))
    return _element("table", (_element("caption", _both(caption)) if caption else "") + body)


def _header(c: Comparison) -> str:
    facts = [" · ".join(filter(None, (c.title, c.tuning))), *c.notes]
    button = _element("button", "中文", id="language", type="button")
    title = _element("h1", escape(" → ".join(c.names)))
    return _element("header", title + button) + "".join(_element("p", escape(x), "note") for x in facts)


def _text(c: Comparison) -> str:
    top, source = scale_top(c), ""
    if c.source:
        words = escape(" ".join(token.label for token in c.source if not token.special))
        source = _element("p", f"{_both('the encoder read')}: {words}", "faint")
    tokens = "".join(_token(i, token, top) for i, token in enumerate(c.tokens))
    hint = _both("Point at a token, or use the arrow keys.")
    return _element(
        "main",
        _element("h2", _both("The text"))
        + source
        + _element("p", tokens, "tokens", role="group")
        + _legend(c, top)
        + _element("p", hint, "detail", id="token-detail", aria_live="polite"),
    )


def _token(i: int, token: TokenChange, top: float) -> str:
    level = shade(token, top)
    facts = {
        direction(token): level > PALE, "strong": level > STRONG, "switched": token.is_switched,
        "special": token.special,
    }  # fmt: skip
    names = " ".join(name for name, holds in facts.items() if holds)
    told = "no prediction" if token.change is None else f"{small_number(token.change)} {_unit(token)}"
    if token.before is not None:
        told += f", {probability(token.before)} to {probability(token.after)}"
    style = {"style": f"--level:{0.9 * level:.2f}"} if level > PALE else {}
    label = escape(token.label or "▢")
    span = _element(
        "span", label, names, data_token=str(i), title=f"{token.label or 'next'}: {told}", **style
    )
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
    items = [_element("span", "", f"ramp {name}") + _both(text) for name, text in ramps]
    items.append(f"{_both('darkest')}: {top:.2g} {'nats' if predicted else 'of its length'}")
    items += [_both("bold: another best guess")] if predicted else []
    return _element("div", "".join(_element("span", item) for item in items), "legend")


def _numbers(c: Comparison) -> str:
    """The tokens that changed most; beside them the numbers of the whole text, and labels."""
    rows = [
        _row(_element("th", _both(name), scope="row"), _number(f"{a:.3f} → {b:.3f}"))
        for name, (a, b) in c.summary.items()
    ]
    if c.cosine is not None:
        rows.append(
            _row(_element("th", _both("cosine of both vectors"), scope="row"), _number(f"{c.cosine:.3f}"))
        )
    whole = [
        _element("h2", _both("In numbers")),
        _element("table", "".join(rows)) if rows else "",
        _element("p", _both(change_sentence(c), change_sentence_zh(c))),
        _labels(c),
    ]
    changes = [token for token in c.most_changed(LISTED) if token.change and token.top_before]
    listed = _element("section", _changes(changes), "scroll") if changes else ""
    return _element("div", listed + _element("section", "".join(whole), "grow"), "columns")


def _changes(changes: Sequence[TokenChange]) -> str:
    rows = []
    for token in changes:
        own = "" if token.before is None else f"{probability(token.before)} → {probability(token.after)}"
        guesses = [f"{word} {probability(p)}" for word, p in (token.top_before[0], token.top_after[0])]
        name = escape(token.label) if token.label else _both("next")
        rows.append(
            _row(
                _number(small_number(token.change or 0.0)),
                _element("th", name, "mono", scope="row"),
                _mono(own),
                _mono(guesses[0]),
                _mono(guesses[1], "switched" if token.is_switched else ""),
            )
        )
    heads = ("nats", "token", "its probability", "best guess before", "best guess after")
    return _element("h2", _both("Predictions that changed most")) + _listing(heads, rows)


def _labels(c: Comparison) -> str:
    rows = [
        _row(
            _element("th", escape(label.name), scope="row"),
            _number(f"{label.before:.3f} → {label.after:.3f}"),
            _element("td", "" if c.kind == "score" else _bar(label.after, label.before, "label")),
        )
        for label in c.labels[:LISTED]
    ]
    return _element("table", "".join(rows)) if rows else ""


def _bar(share: float, line: float | None, kind: str = "") -> str:
    """A bar, and an upright line at another number."""
    width, place = (100 * min(max(x, 0.0), 1.0) for x in (share, line or 0.0))
    mark = "" if line is None else _element("u", "", style=f"left:calc({place:.1f}% - 1px)")
    inside = _element("i", "", style=f"width:{width:.1f}%") + mark
    return _element("span", inside, f"bar {kind}".strip(), aria_hidden="true")


def _generated(c: Comparison) -> str:
    if c.texts is None:
        return ""
    same = common_beginning(c.texts.before, c.texts.after)
    boxes = [
        _element("b", _both(name)) + _element("span", escape(text[:same]), "faint") + escape(text[same:])
        for name, text in (("before", c.texts.before), ("after", c.texts.after))
    ]
    title = "How the text goes on" if c.texts.prompt else "What is generated"
    texts = "".join(_element("div", box) for box in boxes)
    return _element("h2", _both(title)) + _element("div", texts, "texts")


def _attention(c: Comparison) -> str:
    """The weights that changed most."""
    found = []
    for kind, change in c.attention.items():
        found += [_element("p", escape(f"{KIND_NAMES[kind]}: {why}"), "note") for why in change.reasons]
        rows = [
            _link(link, change) for link in change.links[:5] if change.moved_LH[link.layer, link.head] > 0
        ]
        if rows:
            heads = ("layer", "head", "moved", "from", "to", "weight")
            caption = KIND_NAMES[kind] if len(c.attention) > 1 else ""
            found.append(_element("section", _listing(heads, rows, caption), "scroll"))
    if not found:
        return ""
    return _element("h2", _both("Attention that moved most")) + _element("div", "".join(found), "columns")


def _link(link: MovedLink, change: AttentionChange) -> str:
    return _row(
        _number(str(link.layer)),
        _number(str(link.head)),
        _number(percent(float(change.moved_LH[link.layer, link.head]))),
        _mono(link.query),
        _mono(link.key),
        _number(f"{link.before:.2f} → {link.after:.2f}"),
    )


def _tables(c: Comparison) -> str:
    groups = []
    for kind, tables in head_tables(c).items():
        name = _element("h3", _both(KIND_NAMES[kind])) if len(c.attention) > 1 else ""
        groups.append(name + _element("div", "".join(map(_table, tables)), "columns"))
    if not groups:
        return ""
    hint = _both("Point at a cell, or use the arrow keys.")
    detail = _element("p", hint, "detail", id="cell-detail", aria_live="polite")
    return _element("h2", _both("By layer and head, in %")) + "".join(groups) + detail


def _table(table: HeadTable) -> str:
    dense = table.heads > DENSE
    head = _element("td", "")
    for i, name in enumerate(table.columns):
        head += _element("td", "", "gap") if i == table.heads else ""
        head += _element("th", "" if dense and i < table.heads and i % 4 else name, scope="col")
    rows = []
    for layer, row in enumerate(table.rows):
        cells = [_cell(table, layer, i, value) for i, value in enumerate(row)]
        if table.heads < len(cells):
            cells.insert(table.heads, _element("td", "", "gap"))
        rows.append(_row(_element("th", str(layer), scope="row"), *cells))
    caption = _element("caption", _both(TITLES[table.measure]))
    body = caption + _element("thead", _row(head)) + _element("tbody", "".join(rows))
    kind = "heads dense" if dense else "heads"
    return _element("section", _element("table", body, kind, data_columns=str(len(table.columns))), "scroll")


def _cell(table: HeadTable, layer: int, i: int, value: float | None) -> str:
    total = ["total"] if i >= table.heads else []
    if value is None:
        return _element("td", "", " ".join(["unknown", *total]))
    level = table.level(value)
    names = [COLOURS[table.measure], *total, *(["strong"] if level > STRONG else [])]
    return _element(
        "td",
        str(round(100 * value) or "·"),
        " ".join(names),
        data_cell=f"{table.kind}.{layer}.{table.columns[i]}",
        style=f"--level:{0.04 + 0.9 * level:.2f}",
        title=percent(value),
    )


def _cells(c: Comparison) -> Iterator[tuple[str, dict[str, Any]]]:
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


def _parts(c: Comparison) -> str:
    found = largest_parts(c, LISTED)
    measures = dict.fromkeys(table.measure for tables in head_tables(c).values() for table in tables)
    meanings = "".join(_element("p", _both(*MEANINGS[measure]), "note") for measure in measures)
    if not found:
        return meanings
    groups = [part for part in found if not part.step], [part for part in found if part.step]
    tables = "".join(_element("section", _part_rows(group, c), "scroll") for group in groups if group)
    return (
        _element("h2", _both("Parts that carry the change"))
        + _element("p", _both(kept_sentence(c), kept_sentence_zh(c)))
        + _element("p", _both(cancel_sentence(c), cancel_sentence_zh(c)), "note")
        + _element("div", tables, "columns")
        + meanings
    )


def _part_rows(parts: Sequence[PartChange], c: Comparison) -> str:
    towers, rows = list(c.depth), []
    for part in parts:
        share = part.share or 0.0
        rows.append(
            _row(
                _element("th", _both(part_name(part, towers), part_name_zh(part, towers)), scope="row"),
                _number(percent(share)),
                _element("td", _bar(share, part.alone)),
                _number("" if part.alone is None else percent(part.alone)),
                _number("" if part.energy is None else percent(part.energy)),
            )
        )
    return _listing(("part", "share", "", "alone", "weights"), rows)


def _token_facts(token: TokenChange) -> dict[str, Any]:
    return {
        "label": token.label, "change": token.change, "before": token.before, "after": token.after,
        "top_before": token.top_before, "top_after": token.top_after,
    }  # fmt: skip
