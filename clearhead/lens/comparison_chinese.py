"""What `comparison_view` says about a comparison, in Chinese: names of parts, and sentences."""

from __future__ import annotations

from collections.abc import Sequence

from .comparison import Comparison, PartChange
from .comparison_view import OUTER_NAMES, cancels, kept_parts, percent

STEP_NAMES_ZH = {"attn": "注意力", "cross": "交叉注意力", "ff": "前馈层", "aside": "卷积"}
OUTER_NAMES_ZH = {"embed": "词嵌入", "positions": "位置", "virtual": "虚拟 token", "norm": "最后的归一化",
                  "project": "投影", "head": "输出头", "second": "第二个头"}  # fmt: skip
TOWER_NAMES_ZH = {"encoder": "编码器", "decoder": "解码器"}


def part_name_zh(part: PartChange, towers: Sequence[str] = ()) -> str:
    """The same in Chinese."""
    last = part.address.rpartition(".")[2]
    several = len(towers) > 1 and part.address not in OUTER_NAMES
    where = TOWER_NAMES_ZH.get(part.tower, part.tower) if several else ""
    if part.layer is None:
        return where + OUTER_NAMES_ZH.get(last, last)
    layer = f"{where}第 {part.layer} 层"
    if not part.step:
        return layer
    if part.head is None:
        return f"{layer}，{STEP_NAMES_ZH.get(part.step, part.step)}"
    return f"{layer}，{'交叉注意力' if part.step == 'cross' else ''}第 {part.head} 头"


def change_sentence_zh(c: Comparison) -> str:
    if c.change == 0:
        return "没有变化：输出相同"
    where = "每个 token " if c.kind in ("words", "tags", "states") else ""
    by_kl = c.kind in ("words", "tags", "labels", "decisions", "span")
    unit = {"score": "差的平方", "states": "状态距离的平方"}.get(c.kind, "")
    size = (
        f"KL(after || before) {where}{c.mean_change:.3g} nats"
        if by_kl
        else f"{where}变化 {c.mean_change:.3g}（{unit}）"
    )
    if c.switched is not None:
        count = sum(token.is_switched for token in c.predicted)
        size += f"；{len(c.predicted)} 个 token 中有 {count} 个最可能的猜测变了（{percent(c.switched)}）"
    return size


def kept_sentence_zh(c: Comparison) -> str:
    if (kept := kept_parts(c)) is None:
        return ""
    parts, share, outer = kept
    listed = "、".join(part_name_zh(part, list(c.depth)) for part in parts)
    if len(parts) == outer:
        return f"全部变化都在{listed}"
    return f"仅{listed}就造成 {percent(share)} 的变化：{outer} 个部分中的 {len(parts)} 个"


def cancel_sentence_zh(c: Comparison) -> str:
    if (largest := cancels(c)) is None:
        return ""
    return f"这里各部分互相抵消：其中一个部分单独移动输出的距离，是全部一起的 {largest:.1f} 倍，所以份额很大"
