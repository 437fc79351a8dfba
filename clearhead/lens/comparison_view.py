"""What the terminal, pictures and pages show of a comparison: shades of tokens, tables, sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from .comparison import Comparison, PartChange
from .output_change import TokenChange
from .record import AttentionKind

Direction = Literal["more", "less", "other"]
Measure = Literal["moved", "energy", "share"]

# The darkest shade stands for at least this change, so that a text that hardly changed stays pale.
LEAST_TOP = 0.5
LEAST_TOP_OF_STATES = 0.25
CANCELLED = 1.5  # a share from which parts are said to cancel each other
MOST = 0.9  # of the change: as many parts are named as make it together
LEAST_CELL = {"moved": 0.1, "energy": 0.02, "share": 0.1}  # the same for tables
KIND_NAMES: dict[AttentionKind, str] = {
    "self": "attention", "decoder": "decoder attention", "cross": "cross-attention",
}  # fmt: skip
STEP_NAMES = {"attn": "attention", "cross": "cross-attention", "ff": "feed-forward", "aside": "convolution"}
OUTER_NAMES = {"embed": "embedding", "positions": "positions", "virtual": "virtual tokens",
               "norm": "last norm", "project": "projection", "head": "output head",
               "second": "second head"}  # fmt: skip
CAPTIONS: dict[Measure, str] = {
    "moved": "attention that moved", "energy": "change of the weights", "share": "share of the change",
}  # fmt: skip
MEANINGS: dict[Measure, str] = {
    "moved": "half the sum of the differences of a row of attention, mean of the rows: 100 % is all of it",
    "energy": "|dW| / |W| of the rows and columns of a head, or of all weights of a part",
    "share": "how much of it goes away if this part alone is as before; parts act together, so shares do "
    "not add up to 100 %",
}  # fmt: skip


@dataclass(frozen=True)
class HeadTable:
    """One number for each layer and column: a head, or `attn`, `ff`, `layer`. None: not known."""

    measure: Measure
    kind: AttentionKind
    columns: tuple[str, ...]
    heads: int  # the first columns
    rows: tuple[tuple[float | None, ...], ...]

    @property
    def top(self) -> float:
        """What the darkest shade stands for."""
        known = [value for row in self.rows for value in row if value is not None]
        return max(LEAST_CELL[self.measure], *known) if known else LEAST_CELL[self.measure]

    @property
    def tint(self) -> Direction:
        """The colour that goes with its measure."""
        tints: dict[Measure, Direction] = {"moved": "more", "energy": "other", "share": "less"}
        return tints[self.measure]

    def level(self, value: float | None) -> float:
        """From 0 to 1; shares by their root, since few parts have most of them."""
        known = min(max(value or 0.0, 0.0) / self.top, 1.0)
        return math.sqrt(known) if self.measure == "share" else known


def scale_top(c: Comparison) -> float:
    """The change that the darkest shade of a token stands for."""
    floor = LEAST_TOP if any(token.top_before for token in c.tokens) else LEAST_TOP_OF_STATES
    return max([floor, *(token.change for token in c.tokens if token.change is not None)])


def shade(token: TokenChange, top: float) -> float:
    """From 0 to 1; the root, so that small changes can be told from none."""
    return math.sqrt(min(max(token.change or 0.0, 0.0) / top, 1.0))


def direction(token: TokenChange) -> Direction:
    """Whether the token became more likely, or less; of other changes there is no direction."""
    if token.before is None or token.after is None:
        return "other"
    return "more" if token.after >= token.before else "less"


def head_tables(c: Comparison) -> dict[AttentionKind, list[HeadTable]]:
    """The tables of every kind of attention: how much it moved, the energy and the share of its parts."""
    found: dict[AttentionKind, list[HeadTable]] = {}
    for kind, change in c.attention.items():
        tower, step = change.address.split(".")[0], change.address.rpartition(".")[2]
        found[kind] = []
        if change.is_known:
            rows = tuple(tuple(None if math.isnan(x) else x for x in row) for row in change.moved_LH.tolist())
            names = tuple(map(str, range(len(rows[0]))))
            found[kind].append(HeadTable("moved", kind, names, len(names), rows))
        measures: tuple[Measure, ...] = ("energy", "share")
        found[kind] += [table for each in measures if (table := _part_table(c, kind, tower, step, each))]
    return {kind: tables for kind, tables in found.items() if tables}


def _part_table(
    c: Comparison, kind: AttentionKind, tower: str, step: str, measure: Measure
) -> HeadTable | None:
    inside = [part for part in c.parts if part.tower == tower and part.layer is not None]
    heads = 1 + max((part.head for part in inside if part.head is not None and part.step == step), default=-1)
    steps = (
        [step]
        if step == "cross"
        else [s for s in dict.fromkeys(p.step for p in inside) if s not in ("", "cross")]
    )
    columns = [*map(str, range(heads)), *steps, *([] if step == "cross" else ["layer"])]
    at = {
        (part.layer, _column(part)): getattr(part, measure)
        for part in inside
        if part.head is None or part.step == step
    }
    rows = tuple(tuple(at.get((layer, name)) for name in columns) for layer in range(c.depth[tower]))
    known = any(value is not None for row in rows for value in row)
    return HeadTable(measure, kind, tuple(columns), heads, rows) if known else None


def _column(part: PartChange) -> str:
    return str(part.head) if part.head is not None else part.step or "layer"


def kind_name(c: Comparison, kind: AttentionKind) -> str:
    """A kind of attention in words; that of an encoder is called so where there are others."""
    return "encoder attention" if kind == "self" and len(c.attention) > 1 else KIND_NAMES[kind]


def part_name(part: PartChange, towers: Sequence[str] = ()) -> str:
    """A part in words: `layer 3, head 7`; with the name of its tower, if there are several."""
    last = part.address.rpartition(".")[2]
    where = f"{part.tower} " if len(towers) > 1 and part.address not in OUTER_NAMES else ""
    if part.layer is None:
        return where + OUTER_NAMES.get(last, last)
    if not part.step:
        return f"{where}layer {part.layer}"
    if part.head is None:
        return f"{where}layer {part.layer}, {STEP_NAMES.get(part.step, part.step)}"
    return f"{where}layer {part.layer}, {'cross ' if part.step == 'cross' else ''}head {part.head}"


def largest_parts(c: Comparison, count: int) -> list[PartChange]:
    """The parts with the largest shares: whole layers and what is in none, then what is inside of layers."""
    known = [part for part in c.parts if part.share is not None]
    order = sorted(known, key=lambda part: -(part.share or 0.0))
    outer = [part for part in order if not part.step][:count]
    return [*outer, *[part for part in order if part.step][:count]]


def kept_parts(c: Comparison) -> tuple[list[PartChange], float, int] | None:
    """The few parts that make most of the change by themselves, how much that is, and how many there are."""
    if not c.kept:
        return None
    best = next((kept for kept in c.kept if kept.share >= MOST), c.kept[-1])
    parts = [part for address in best.addresses if (part := c.part(address)) is not None]
    return parts, best.share, sum(not part.step for part in c.parts)


def cancels(c: Comparison) -> float | None:
    """The largest share, if a single part moves the output much further than all of them together."""
    largest = max((part.share for part in c.parts if part.share is not None), default=0.0)
    return largest if largest > CANCELLED else None


def cancel_sentence(c: Comparison) -> str:
    """What shares above 100 % mean, where there are some."""
    if (largest := cancels(c)) is None:
        return ""
    return (
        f"parts cancel each other here: one alone moves the output {largest:.1f} times as far as all of them "
        f"together, so shares are large"
    )


def kept_sentence(c: Comparison) -> str:
    """What a few parts make of the change by themselves; empty where nothing was measured."""
    if (kept := kept_parts(c)) is None:
        return ""
    parts, share, outer = kept
    names = [part_name(part, list(c.depth)) for part in parts]
    unit = "layers" if all(part.layer is not None for part in c.parts) else "parts"
    if len(names) > 1 and all(name.startswith("layer ") for name in names):
        names = [names[0].replace("layer", "layers", 1), *(name.removeprefix("layer ") for name in names[1:])]
    listed = ", ".join(names[:-1]) + (" and " if len(names) > 1 else "") + names[-1]
    if len(parts) == outer:
        return f"all of the change is in {listed}"
    verb = "makes" if len(parts) == 1 else "make"
    return f"{listed} alone {verb} {percent(share)} of the change: {len(parts)} of {outer} {unit}"


def percent(share: float) -> str:
    number = 100 * share
    return f"{number:.0f} %" if abs(number) >= 9.5 else f"{number:.1f} %" if abs(number) >= 0.05 else "0 %"


def change_sentence(c: Comparison) -> str:
    """The whole change as one sentence."""
    if c.change == 0:
        return "nothing changed: the outputs are equal"
    where = {"words": "per token", "tags": "per token", "states": "per token"}.get(c.kind, "")
    size = f"changed by {c.mean_change:.3g} {c.unit} {where}".strip()
    if c.kind in ("words", "tags", "labels", "decisions", "span"):
        size = f"KL(after || before) {c.mean_change:.3g} nats {where}".strip()
    if c.switched is not None:
        count = sum(token.is_switched for token in c.predicted)
        size += f"; the best guess changed for {count} of {len(c.predicted)} tokens ({percent(c.switched)})"
    return size


def texts_title(c: Comparison) -> str:
    """What the two texts of a comparison are."""
    if c.kind == "span":
        return "The answer"
    return "The text, continued" if c.texts is not None and c.texts.prompt else "What is generated"


def common_beginning(one: str, two: str) -> int:
    """How many characters two texts have in common at their beginning."""
    return next(
        (i for i, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two))
    )


def probability(p: float | None) -> str:
    """A probability in three characters or a few more, so that small ones can be told from zero."""
    if p is None:
        return ""
    return f"{p:.2f}" if p >= 0.005 else f"{p:.0e}".replace("e-0", "e-") if p > 0 else "0"


def small_number(x: float) -> str:
    return f"{x:.2f}" if x >= 0.1 or x == 0 else f"{x:.2g}"
