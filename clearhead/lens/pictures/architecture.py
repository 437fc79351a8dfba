"""Architecture diagrams of any spec: towers as stacks of boxes from bottom to top, with tensor shapes."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import fill
from typing import Any

from ...nn import (
    Adaptive,
    Attention,
    Block,
    Experts,
    FeedForward,
    Head,
    Labels,
    Model,
    NoPositions,
    Pooled,
    Projection,
    Softmax,
    Span,
    Tags,
    TokenHead,
    TokenMixer,
    Tokens,
    Tower,
)
from ...nn.norm import Norm
from ..describe import describe_positions
from .canvas import FAINT, INK, Picture, picture

FILL = {"embed": "#fde8cf", "place": "#fdf3d8", "attn": "#dbe9f7", "cross": "#e5def4", "ff": "#dff0df",
        "norm": "#f1f1ec", "head": "#f7dede"}  # fmt: skip
WIDE, HIGH, STEP, APART = 3.6, 0.5, 0.8, 5.9
ABOVE = 0.5  # from the last box of the encoder to the line to the decoder
PURPLE = "#7a5cc0"
HEADS: dict[type[Head], str] = {
    TokenHead: "output projection", Labels: "classification head", Tags: "token classification head",
    Span: "question answering head", Pooled: "pooling",
}  # fmt: skip


@dataclass(frozen=True)
class Box:
    kind: str
    text: str
    shape: str = ""  # of the output


def architecture(spec: Model, title: str = "") -> Picture:
    """Encoder on the left, decoder on the right. Shapes: B texts, S source tokens, T tokens."""
    sides = spec.towers
    last = list(sides)[-1]
    head = getattr(spec, "head", None)
    tallest = max(_height(tower, head if side == last else None) for side, tower in sides.items())

    def draw(figure: Any, axes: Any) -> None:
        ends = {}
        for column, (side, tower) in enumerate(sides.items()):
            length = "S" if tower is spec.source_tower else "T"
            ends[side] = _tower(axes, column * APART, side, tower, head if side == last else None, length)
        if spec.source_tower is not None:
            _encoder_output(axes, ends["encoder"][0], ends["decoder"][1])
        axes.set_xlim(-WIDE / 2 - 0.6, (len(sides) - 1) * APART + WIDE / 2 + 1.5)
        axes.set_ylim(-1.0, tallest * STEP + 0.6)
        axes.set_aspect("equal")
        axes.axis("off")
        axes.set_title(f"{title} · {spec.count():,} parameters".lstrip(" ·"), pad=4)

    return picture((len(sides) - 1) * APART * 0.62 + 4.4, tallest * STEP * 0.62 + 1.6, draw)


def layer(block: Block, shape: str, *, masked: bool = False) -> list[Box]:
    """The boxes of one layer from bottom to top: sub-layers and norms in their order."""
    parts = [Box("attn", f"{'masked ' if masked else ''}self-attention\n{_heads(block.attention)}")]
    if block.cross is not None:
        parts.append(Box("cross", f"cross-attention\n{_heads(block.cross)}"))
    parts.append(Box("ff", _feedforward(block.feedforward)))
    if block.aside is not None:
        parts.append(Box("attn", f"of the layer's input:\n{_heads(block.aside)}"))
    add = Box("norm", "add")
    stack: list[Box] = []
    for part in parts:
        own = block.attention_norm if part.kind == "attn" else None
        norm = Box("norm", _norm(own or block.norm))
        if block.order == "post":
            stack += [part, Box("norm", f"add & {norm.text}", shape)]
        elif block.order == "sandwich":
            stack += [norm, part, Box("norm", f"{norm.text} & add", shape)]
        elif block.order == "output":
            stack += [part, Box("norm", f"{norm.text} & add", shape)]
        elif block.order == "normed":
            stack += [norm, part, Box(add.kind, f"add to the {norm.text}", shape)]
        elif block.order == "parallel-shared":
            stack += [norm, part] if not stack else [part]
        elif block.order == "parallel":
            stack += [Box("norm", f"{norm.text} of the same input" if stack else norm.text), part]
        else:
            stack += [norm, part, Box(add.kind, add.text, shape)]
    return [*stack, Box("norm", "add all", shape)] if block.is_parallel else stack


def _norm(norm: Norm) -> str:
    return {"Layer": "LayerNorm", "NonParametric": "LayerNorm", "RMS": "RMSNorm", "NoNorm": "no norm"}.get(
        type(norm).__name__, type(norm).__name__
    )


def _feedforward(feedforward: FeedForward) -> str:
    if isinstance(feedforward, Experts):
        hidden, chosen = feedforward.expert.hidden, feedforward.router.chosen
        return f"{feedforward.count} experts, {chosen} per token\n{hidden} wide, {feedforward.expert.act}"
    wide, act = str(getattr(feedforward, "hidden", "")), getattr(feedforward, "act", "")
    return f"feed-forward ({type(feedforward).__name__})\n{wide} wide, {act}"


def _heads(attention: TokenMixer) -> str:
    if not isinstance(attention, Attention):
        return type(attention).__name__.lower()
    wording = f"{attention.heads} heads"
    if attention.kv_heads and attention.kv_heads != attention.heads:
        wording += f" over {attention.kv_heads} keys"
    if attention.window:
        wording += f", window {attention.window[0] + 1}"
    if isinstance(attention.project, Projection):
        wording += f", {type(attention.project).__name__}"
    if isinstance(attention.kernel, Softmax):
        return f"{wording}, sinks" if attention.kernel.sink else wording
    return f"{wording}, {type(attention.kernel).__name__}"


def _below(tower: Tower, length: str) -> list[Box]:
    vocab = f"\n{tower.embed.vocab:,} tokens" if isinstance(tower.embed, Tokens | Adaptive) else ""
    stack = [Box("embed", f"embedding{vocab}", f"(B, {length}, {tower.embed.table_width(tower.width)})")]
    if not isinstance(tower.positions, NoPositions):
        stack.append(Box("place", f"positions: {describe_positions(tower.positions)}"))
    return stack


def _above(tower: Tower, head: Any) -> list[Box]:
    stack = [] if tower.last_norm is None else [Box("norm", _norm(tower.last_norm))]
    if tower.last_width is not None:
        stack.append(Box("ff", "projection", f"(B, T, {tower.last_width})"))
    if head is not None:
        count = getattr(head, "vocab", None) or getattr(head, "count", None)
        tied = ", tied to the embedding" if getattr(head, "tied", False) else ""
        shape = f"(B, T, {count:,})" if getattr(head, "vocab", None) else f"→ {count}"
        stack.append(Box("head", f"{HEADS.get(type(head), type(head).__name__)}{tied}", shape))
    return stack


def distinct_layers(tower: Tower) -> tuple[list[Block], str]:
    """The layers to draw and a note on their number: one period of the pattern, or each kind once."""
    layers = [tower.pattern[i % len(tower.pattern)] for i in range(tower.depth)]
    for period in (1, 2, 3):
        if tower.depth % period == 0 and layers == layers[:period] * (tower.depth // period):
            return layers[:period], f"× {tower.depth // period}"
    kinds = list(dict.fromkeys(layers))
    return kinds[:3], f"{tower.depth} layers of {len(kinds)} kinds"


def _height(tower: Tower, head: Any) -> float:
    inner = sum(len(layer(block, "")) for block in distinct_layers(tower)[0])
    return len(_below(tower, "T")) + inner + len(_above(tower, head)) + 0.6


def _tower(
    axes: Any, x: float, side: str, tower: Tower, head: Any, length: str
) -> tuple[tuple[float, float], tuple[float, float] | None]:
    """Draw a tower; returns the top of its last box and the position of its cross-attention."""
    from matplotlib.patches import FancyBboxPatch

    shape, y, cross = f"(B, {length}, {tower.width})", 0.0, None
    axes.text(x, -0.62, f"{side}: ids (B, {length})", ha="center", va="center", fontsize=9, color=INK)
    for box in _below(tower, length):
        y = _box(axes, x, y, box)
    blocks, times = distinct_layers(tower)
    bottom = begin = y - 0.12
    for block in blocks:
        for box in layer(block, shape, masked=tower.causal):
            if box.kind == "cross":
                cross = (x - WIDE / 2, y + HIGH / 2)
            if box.shape:  # the residual connection ends here
                _residual(axes, x, begin, y + HIGH / 2)
                begin = y + HIGH + 0.1
            y = _box(axes, x, y, box)
    axes.add_patch(FancyBboxPatch(
        (x - WIDE / 2 - 0.22, bottom - 0.1), WIDE + 0.44, y - bottom - 0.1,
        boxstyle="round,pad=0,rounding_size=0.18",
        facecolor="none", edgecolor=FAINT, linestyle="--", linewidth=1,
    ))  # fmt: skip
    axes.text(x - WIDE / 2 - 0.1, y - 0.17, times, fontsize=10, va="bottom", color=INK)
    top = y - 0.2  # of the frame around the layers
    y += 0.25
    for box in _above(tower, head):
        y = _box(axes, x, y, box)
        top = y - STEP + HIGH
    return (x, top), cross


def _box(axes: Any, x: float, y: float, box: Box) -> float:
    """Draw a box and the arrow to it; returns the bottom of the next one."""
    from matplotlib.patches import FancyBboxPatch

    axes.add_patch(FancyBboxPatch(
        (x - WIDE / 2, y), WIDE, HIGH, boxstyle="round,pad=0,rounding_size=0.08", facecolor=FILL[box.kind],
        edgecolor=INK, linewidth=0.7,
    ))  # fmt: skip
    axes.annotate("", (x, y), (x, y - STEP + HIGH), arrowprops={"arrowstyle": "-|>", "color": INK, "lw": 0.7})
    text = box.text if "\n" in box.text else fill(box.text, 34)
    axes.text(x, y + HIGH / 2, text, ha="center", va="center", fontsize=7.5, linespacing=1.15)
    if box.shape:
        axes.text(x + WIDE / 2 + 0.32, y + HIGH / 2, box.shape, va="center", fontsize=7, color="#5b6772")
    return y + STEP


def _residual(axes: Any, x: float, start: float, end: float) -> None:
    """The line of a residual connection around a sub-layer."""
    side = x + WIDE / 2 + 0.1
    axes.plot([x, side, side], [start, start, end], color=INK, linewidth=0.6)
    arrow = {"arrowstyle": "-|>", "color": INK, "lw": 0.6}
    axes.annotate("", (x + WIDE / 2, end), (side, end), arrowprops=arrow)


def _encoder_output(axes: Any, start: tuple[float, float], end: tuple[float, float] | None) -> None:
    """The line from the top of the encoder to the cross-attention of the decoder."""
    if end is None:
        return
    turn, high = end[0] - 0.75, start[1] + ABOVE
    axes.plot([start[0], start[0], turn, turn], [start[1], high, high, end[1]], color=PURPLE, linewidth=1.3)
    axes.annotate("", end, (turn, end[1]), arrowprops={"arrowstyle": "-|>", "color": PURPLE, "lw": 1.3})
    name = "encoder output: keys and values"
    axes.text((start[0] + turn) / 2, high + 0.1, name, fontsize=7, ha="center", color=PURPLE)
