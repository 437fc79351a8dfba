"""A comparison as terminal output: the text, its tokens, texts, attention and parts; as wide as the terminal.

Colours are for terminals; elsewhere the tokens that changed have a mark behind them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.markup import escape
from rich.text import Text

from ...lens import (
    Comparison,
    Direction,
    TokenChange,
    change_sentence,
    common_beginning,
    direction,
    percent,
    probability,
    scale_top,
    shade,
    small_number,
    texts_title,
)
from ..console import OUT, READABLE_WIDTH, printable, table
from .comparison_tables import (
    SHADE_INK,
    SHADE_RAMPS,
    bar_of,
    heading,
    on_one_line,
    print_attention,
    print_parts,
    shade_level,
)

CHANGE_MARKS = " ▁▃▅▇"
PRINTED_TOKENS = 400


def print_comparison(c: Comparison, top: int) -> None:
    """The whole page; `top` tokens, heads and parts are listed."""
    width = min(OUT.width, READABLE_WIDTH)
    _print_title(c)
    _print_text(c, width)
    _print_summary(c)
    _print_labels(c)
    _print_tokens(c, top)
    _print_texts(c, width)
    print_attention(c, top)
    print_parts(c, top)


def _print_title(c: Comparison) -> None:
    OUT.print(f"{c.names[0]} → {c.names[1]}", style="bold", markup=False)
    OUT.print(" · ".join(filter(None, (c.title, c.tuning))), style="dim", markup=False, soft_wrap=False)
    if c.source:
        OUT.print(" ".join(token.label for token in c.source if not token.special), style="dim", markup=False,
                  soft_wrap=False)  # fmt: skip


def _print_text(c: Comparison, width: int) -> None:
    """The text, in which the colour of a token says how much its prediction changed."""
    OUT.print()
    top = scale_top(c)
    for line in _lines(list(_tokens(c.tokens[:PRINTED_TOKENS], top)), width - 2):
        OUT.print(Text("  ") + line, soft_wrap=True)
    if len(c.tokens) > PRINTED_TOKENS:
        OUT.print(f"  … {len(c.tokens) - PRINTED_TOKENS} tokens more", style="dim")
    OUT.print()
    OUT.print(_legend(c, top), soft_wrap=False)


def _tokens(tokens: Sequence[TokenChange], top: float) -> Iterator[tuple[bool, Text]]:
    """Every token with its colour, and whether a space stands before it."""
    for token in tokens:
        word = printable(token.label or ("▢" if token.change is not None else ""))
        level = shade_level(shade(token, top), 5)
        if token.change is None or (token.special and level == 0):
            yield token.space, Text(word, style="dim")
        elif OUT.color_system is None:
            yield token.space, Text(word + CHANGE_MARKS[level].strip())
        else:
            yield (
                token.space,
                Text(word, style=f"{SHADE_INK} on {SHADE_RAMPS[direction(token)][level]}" if level else ""),
            )


def _lines(tokens: list[tuple[bool, Text]], width: int) -> Iterator[Text]:
    """Lines that break between words; within a word only where it is longer than a line."""
    line, word, space = Text(), Text(), False
    for before, token in [*tokens, (True, Text())]:
        if before or word.cell_len + token.cell_len > width:
            if line.cell_len and line.cell_len + space + word.cell_len > width:
                yield line
                line, space = Text(), False
            line = line + Text(" " if space and line.cell_len else "") + word
            word, space = Text(), before
        word = word + token
    yield line


def _legend(c: Comparison, top: float) -> Text:
    predicted = any(token.top_before for token in c.tokens)
    what = "its prediction changed" if predicted else "its state moved"
    legend = Text("  ")
    colours: Sequence[tuple[Direction, str]] = (("other", f"how much {what}"),)
    if OUT.color_system is None:
        legend.append("▁▃▅▇")
    elif any(token.before is not None for token in c.tokens):
        colours = (("less", "less likely than before"), ("more", "more likely"))
    for name, meaning in colours:
        for colour in SHADE_RAMPS[name][1:] if OUT.color_system is not None else ():
            legend.append("  ", style=f"on {colour}")
        legend.append(f" {meaning}   ", style="dim")
    legend.append(f"darkest: {top:.2g} {'nats' if predicted else 'of its length'}", style="dim")
    return legend


def _print_summary(c: Comparison) -> None:
    OUT.print()
    for name, (before, after) in c.summary.items():
        OUT.print(f"{name:<29}{before:8.3f}  →  {after:.3f}", markup=False)
    if c.cosine is not None:
        OUT.print(f"{'cosine of both vectors':<29}{c.cosine:8.3f}", markup=False)
    OUT.print(change_sentence(c), markup=False, soft_wrap=False)


def _print_labels(c: Comparison) -> None:
    if not c.labels:
        return
    rows = table("" if c.kind != "score" else "output", "before", "", "after", "", right=(1, 3))
    for label in c.labels[:12]:
        bars = ["", ""] if c.kind == "score" else [bar_of(label.before), bar_of(label.after)]
        rows.add_row(
            escape(label.name), f"{label.before:.3f}", f"[dim]{bars[0]}[/]", f"{label.after:.3f}", bars[1]
        )
    OUT.print()
    OUT.print(rows)


def _print_tokens(c: Comparison, top: int) -> None:
    found = [token for token in c.most_changed(top) if token.change]
    if not found:
        return
    if not any(token.top_before for token in found):
        heading("tokens whose state moved most")
        OUT.print(
            "  " + " · ".join(f"{t.label} {percent(t.change or 0)}" for t in found),
            markup=False,
            soft_wrap=False,
        )
        return
    heading("tokens whose prediction changed most")
    own = any(token.before is not None for token in found)
    columns = ("nats", "token", *(("probability",) if own else ()), "guess before", "after")
    rows = table(*columns, right=(0,), no_wrap=(0, 1, 2) if own else (0, 1))
    for token in found:
        known = (
            f"{probability(token.before)} → {probability(token.after)}" if token.before is not None else ""
        )
        guesses = [Text(f"{word} {probability(p)}") for word, p in (token.top_before[0], token.top_after[0])]
        guesses[1].stylize("bold" if token.is_switched else "")
        label = escape(token.label or "next")
        rows.add_row(small_number(token.change or 0.0), label, *((known,) if own else ()), *guesses)
    OUT.print(rows)


def _print_texts(c: Comparison, width: int) -> None:
    if c.texts is None:
        return
    heading(texts_title(c).lower())
    same = common_beginning(c.texts.before, c.texts.after)
    for name, text in (("before", c.texts.before), ("after", c.texts.after)):
        shown = Text(
            printable(on_one_line(text[:same])), style="dim" if c.texts.before != c.texts.after else ""
        )
        shown.append(printable(on_one_line(text[same:])), style="default not dim")
        for i, line in enumerate(shown.wrap(OUT, width - 8)):
            OUT.print(Text(f"{'' if i else name:<8}", style="dim") + line)
    if c.texts.before == c.texts.after:
        OUT.print("the same text", style="dim")
