"""Markup of the page of a comparison: elements, table cells and bars, in English and Chinese."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from .comparison_view import Measure

CHINESE: dict[str, str] = {
    "The text": "文字", "In numbers": "数字", "Predictions that changed most": "变化最大的预测",
    "The text, continued": "续写的文字", "What is generated": "生成的文字", "The answer": "答案",
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
    "attention": "注意力", "encoder attention": "编码器注意力",
    "decoder attention": "解码器注意力", "cross-attention": "交叉注意力",
    "Point at a token, or use the arrow keys.": "指向一个 token，或用方向键。",
    "Point at a cell, or use the arrow keys.": "指向一格，或用方向键。",
}  # fmt: skip
MEASURE_MEANINGS: dict[Measure, tuple[str, str]] = {
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


def both_languages(text: str, zh: str | None = None) -> str:
    """A text in both languages, of which the page shows one."""
    other = CHINESE.get(text, text) if zh is None else zh
    if other == text:
        return escape(text)
    return f'<span lang="en">{escape(text)}</span><span lang="zh">{escape(other)}</span>'


def element(name: str, inside: str, kind: str = "", **attributes: str) -> str:
    """An element whose content is markup; `kind` is its class."""
    given = {"class": kind} | attributes if kind else attributes
    written = "".join(f' {key.replace("_", "-")}="{escape(value)}"' for key, value in given.items())
    return f"<{name}{written}>{inside}</{name}>"


def table_row(*cells: str) -> str:
    return element("tr", "".join(cells))


def number_cell(text: str) -> str:
    return element("td", text, "number")


def mono_cell(text: str, kind: str = "") -> str:
    return element("td", escape(text), f"mono {kind}".strip())


def listing(heads: Iterable[str], rows: Iterable[str], caption: str = "") -> str:
    names = table_row(*(element("th", both_languages(head) if head else "", scope="col") for head in heads))
    body = element("thead", names) + element("tbody", "".join(rows))
    return element("table", (element("caption", both_languages(caption)) if caption else "") + body)


def share_bar(share: float, line: float | None, kind: str = "") -> str:
    """A bar, and an upright line at another number."""
    width, place = (100 * min(max(x, 0.0), 1.0) for x in (share, line or 0.0))
    mark = "" if line is None else element("u", "", style=f"left:calc({place:.1f}% - 1px)")
    inside = element("i", "", style=f"width:{width:.1f}%") + mark
    return element("span", inside, f"bar {kind}".strip(), aria_hidden="true")
