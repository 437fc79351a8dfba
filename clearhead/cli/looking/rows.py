"""A trace as terminal output and as JSON. Columns are aligned for wide characters."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text
from torch import Tensor

from ...errors import InputError, nearest
from ...lens import (
    CAVEAT,
    AnswerChange,
    AttentionKind,
    Frame,
    TopPredictions,
    Trace,
    head_importance,
    head_scores,
    routing_facts,
    statistics,
    switch,
)
from ..console import OUT, table

CELL, NAME = 6, 12  # cells of a column, and of the name of a row
SHADES = ("", "on #e3edf7", "on #bcd4ea", "on #7fb0d8", "on #3f86be white", "on #0b4f94 white")


def tokens(trace: Trace) -> None:
    """The input and the output tokens; special tokens dimmed."""
    OUT.print(f"{trace!r}", style="bold", markup=False)
    for name, line in (("read", trace.tokens), ("fed", trace.target_tokens)):
        if not line:
            continue
        shown = Text(f"{name:<5}")
        for i, token in enumerate(line[:200]):
            shown.append(f"{i}:", style="dim")
            shown.append(token.label + " ", style="dim" if token.special else "")
        if len(line) > 200:
            shown.append(f"… {len(line) - 200} more", style="dim")
        OUT.print(shown)


def weights(trace: Trace, kind: AttentionKind, layer: int, head: int | None, word: str | None) -> None:
    """The matrix where it fits the terminal, else the strongest links of every row."""
    weights_HQK = trace.attention(kind, layer, head)
    matrix = weights_HQK if head is not None else weights_HQK.mean(0)
    across, down = trace.labels(kind)[1], trace.labels(kind)[0]
    which = "all heads together" if head is None else f"head {head}"
    OUT.print(f"\n{kind} attention, layer {layer % trace.layers(kind)}, {which}", style="bold")
    if word is not None:
        _print_token(matrix, word, down, across)
    elif NAME + CELL * len(across) <= OUT.width and len(down) <= 60:
        _print_matrix(matrix, down, across)
    else:
        _print_links(matrix, down, across, top=4)
    _caveat(trace, kind, layer % trace.layers(kind), head or 0)


def _caveat(trace: Trace, kind: AttentionKind, layer: int, head: int) -> None:
    OUT.print(CAVEAT.format(switch(trace, kind, layer, head)), style="dim", soft_wrap=False)


def _print_token(matrix: Tensor, word: str, down: list[str], across: list[str]) -> None:
    """What one token attends to; and for a token of the source, what attends to it."""
    at, is_row = token_index(word, down, across)
    if is_row:
        _print_links(matrix[at : at + 1], [down[at]], across, top=len(across))
    else:
        _print_links(matrix.T[at : at + 1], [across[at]], down, top=len(down), arrow="←")


def token_index(word: str, down: list[str], across: list[str]) -> tuple[int, bool]:
    """The last token with that text or index, and whether it is a query."""
    if word.isdigit() and int(word) < len(down):
        return int(word), True
    for labels in (down, across):
        if word in labels:
            return len(labels) - 1 - labels[::-1].index(word), labels is down
    raise InputError(f"no token is {word!r}; {nearest(word, {*down, *across})}")


def _print_matrix(matrix: Tensor, down: list[str], across: list[str]) -> None:
    OUT.print(" " * NAME + "".join(" " + _align_right(label, CELL - 1) for label in across), markup=False)
    for label, row in zip(down, matrix.tolist(), strict=True):
        line = Text(_align_right(label, NAME - 1) + " ")
        for value in row:
            shade = SHADES[min(int(math.sqrt(value) * len(SHADES)), len(SHADES) - 1)]
            line.append(f"{value:>{CELL}.2f}" if value >= 0.005 else " " * (CELL - 1) + "·", style=shade)
        OUT.print(line)


def _print_links(matrix: Tensor, down: list[str], across: list[str], top: int, arrow: str = "→") -> None:
    wide = min(max(map(cell_len, down)), 20)
    for label, row in zip(down, matrix, strict=True):
        best = row.topk(min(top, len(across)))
        pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        links = " · ".join(f"{across[k]} {value:.2f}" for k, value in pairs if value >= 0.005)
        OUT.print(f"{_align_right(label, wide)} {arrow} {links}", markup=False)


def _align_right(label: str, cells: int) -> str:
    """A label right-aligned in `cells` cells; wide characters take two."""
    short = label if cell_len(label) <= cells else set_cell_size(label, cells - 1).rstrip() + "…"
    return " " * max(cells - cell_len(short), 0) + short


def print_answer(predictions: TopPredictions, *, generates: bool) -> None:
    if predictions.said:
        OUT.print(f"output {predictions.said}", markup=False)
    if predictions.best:
        best = " · ".join(f"{label} {p:.3f}" for label, p in predictions.best)
        OUT.print(f"{'next ' if generates else 'label'}  {best}", markup=False)


def before_and_after(comparison: AnswerChange, words: str) -> None:
    OUT.print(f"\nwithout {words}", style="bold", markup=False)
    listing = table("before", "", "after", "", right=(1, 3))
    for i in range(max(len(comparison.before.best), len(comparison.after.best))):
        cells: list[str] = []
        for side in (comparison.before, comparison.after):
            label, p = side.best[i] if i < len(side.best) else ("", math.nan)
            cells += [label.replace("[", "\\["), f"{p:.3f}" if label else ""]
        listing.add_row(*cells)
    if comparison.before.best and comparison.before.said is None:
        OUT.print(listing)
    for name, side in (("before", comparison.before), ("after", comparison.after)):
        if side.said is not None:
            OUT.print(f"{name:<7}{side.said}", markup=False)
    moved = (
        "nothing moved"
        if comparison.moved == 0
        else f"the answer moved by {comparison.moved:.3g} {comparison.unit}"
    )
    same = comparison.before.said is not None and comparison.before.said == comparison.after.said
    if comparison.moved and same:
        moved = f"the text is the same; its probabilities moved by {comparison.moved:.3g} {comparison.unit}"
    OUT.print(moved)
    if same and "mask" in words.split():
        OUT.print(
            "Without the mask the text stays the same: decoding adds one token at a time, so there is no "
            "future to hide. The probabilities are those of the whole text in one pass, where there is.",
            style="dim",
        )


def generated_text(trace: Trace) -> str:
    """The text that the model generated."""
    ids = [token.id for token in (trace.target_tokens or trace.tokens)[trace.input.prompt :]]
    if trace.tokenizer is None:
        return " ".join(map(str, ids))
    return trace.tokenizer.decode(ids)


def print_frames(trace: Trace) -> None:
    listing = table(
        "step", "token", "p", "attends to (last layer)", "other candidates", right=(0, 2), no_wrap=(1,)
    )
    for frame in trace.frames:
        looks = frame_facts(frame)["looks"]
        others = [f"{label} {p:.2f}" for label, i, p in frame.candidates if i != frame.token.id][:3]
        cells = (frame.token.label, " · ".join(f"{w} {v:.2f}" for w, v in looks[:2]), " · ".join(others))
        one, two, three = (cell.replace("[", "\\[") for cell in cells)
        listing.add_row(str(frame.step), one, f"{frame.probability:.2f}", two, three)
    OUT.print(listing)
    OUT.print(f"output {generated_text(trace)}", markup=False)


def frame_facts(frame: Frame) -> dict[str, Any]:
    kind = frame.trace.kinds[-1]
    weights_K = frame.attention(kind).mean(0)
    labels = frame.trace.labels(kind)[1]
    best = weights_K.topk(min(3, len(weights_K)))
    looks = [
        (labels[k], round(v, 4)) for k, v in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]
    return {
        "step": frame.step, "token": frame.token.label, "id": frame.token.id,
        "probability": frame.probability, "candidates": frame.candidates, "looks": looks,
    }  # fmt: skip


def beams(trace: Trace) -> None:
    assert trace.tree is not None
    fates = [branch.fate for branch in trace.tree.branches]
    counts = ", ".join(f"{fates.count(fate)} {fate}" for fate in ("kept", "finished", "pruned"))
    OUT.print(f"beam search looked at {len(fates)} hypotheses: {counts}")
    listing = table("score", "answer", right=(0,))
    for ids, score in trace.tree.answers:
        text = trace.tokenizer.decode(ids) if trace.tokenizer else " ".join(map(str, ids))
        listing.add_row(f"{score:.3f}", text.replace("[", "\\["))
    OUT.print(listing)
    OUT.print("draw the tree with --save tree.svg", style="dim")


def tree_facts(trace: Trace) -> dict[str, Any]:
    assert trace.tree is not None
    branches = [{**branch._asdict(), "token": branch.token.label} for branch in trace.tree.branches]
    return {"branches": branches, "answers": [{"ids": i, "score": s} for i, s in trace.tree.answers]}


def heads(trace: Trace, kind: AttentionKind) -> None:
    scores = head_scores(trace, kind)
    names = ("entropy", "distance", "previous", "first", "itself", "induction")
    listing = table("layer", "head", *names, "role", right=(0, 1, 2, 3, 4, 5, 6, 7))
    for layer in range(trace.layers(kind)):
        for head in range(trace.heads(kind)):
            values = [float(getattr(scores, name)[layer, head]) for name in names]
            shown = ["" if math.isnan(value) else f"{value:.2f}" for value in values]
            listing.add_row(str(layer), str(head), *shown, scores.role(layer, head))
    OUT.print(listing)


def head_facts(trace: Trace, kind: AttentionKind) -> dict[str, Any]:
    return {name: rounded_values(x) for name, x in vars(head_scores(trace, kind)).items()}


def importance(trace: Trace, kind: AttentionKind, err: Console) -> None:
    def show_progress(done: int, of: int) -> None:
        err.print(f"layer {done} of {of}", end="\r" if err.is_terminal and done < of else "\n", style="dim")

    importance_LH = head_importance(trace, kind, show_progress)
    order = importance_LH.flatten().argsort(descending=True).tolist()
    unit = "bits" if trace.info.has_head else "of the length of the states"
    OUT.print(f"\nhow much the output changes when a head is ablated ({unit})", style="bold")
    largest = max(float(importance_LH.max()), 1e-12)
    for place in order[:15]:
        layer, head = divmod(place, importance_LH.shape[1])
        value = float(importance_LH[layer, head])
        name = switch(trace, kind, layer, head)
        OUT.print(f"{name:<18}{value:9.4f} {'█' * round(40 * value / largest)}")
    _caveat(trace, kind, *divmod(order[0], importance_LH.shape[1]))


def importance_facts(trace: Trace, kind: AttentionKind) -> Any:
    return rounded_values(head_importance(trace, kind))


def logits(trace: Trace) -> None:
    lens = trace.logit_lens()
    read = (trace.target_tokens or trace.tokens) if lens.ids.shape[1] > 1 else []
    names = [token.label for token in read] or ["the whole text"]
    last = range(max(0, len(names) - 8), len(names))
    listing = table("", *(names[t].replace("[", "\\[") for t in last))
    for layer in range(len(lens.labels) - 1, -1, -1):
        name = f"layer {layer - 1}" if layer else "embedding"
        cells = [f"{lens.labels[layer][t][0]} {float(lens.probabilities[layer, t, 0]):.2f}" for t in last]
        listing.add_row(name, *(cell.replace("[", "\\[") for cell in cells))
    OUT.print(listing)


def logit_facts(trace: Trace) -> dict[str, Any]:
    lens = trace.logit_lens()
    return {"labels": lens.labels, "probabilities": lens.probabilities.tolist()}


def routing(trace: Trace, kind: AttentionKind, only: int | None = None, *, saved: bool = False) -> None:
    """The experts of the last tokens, by layer, and the load of every expert; of all layers, or one."""
    facts = routing_facts(trace, kind)
    shown = [i for i, layer in enumerate(facts["layers"]) if only in (None, layer)]
    facts |= {name: [facts[name][i] for i in shown] for name in ("layers", "chosen", "load")}
    names = facts["tokens"]
    last = range(max(0, len(names) - 8), len(names))
    listing = table("", *(names[t].replace("[", "\\[") for t in last))
    for layer, choices in zip(facts["layers"], facts["chosen"], strict=True):
        cells = [" ".join(f"{e}:{weight:.2f}" for e, weight in choices[t]) or "–" for t in last]
        listing.add_row(f"layer {layer}", *cells)
    OUT.print(f"\nexperts of the {facts['side']}, with their weights", style="bold")
    OUT.print(listing)
    load = table("load", *map(str, range(facts["experts"])), right=tuple(range(1, facts["experts"] + 1)))
    for layer, shares in zip(facts["layers"], facts["load"], strict=True):
        load.add_row(f"layer {layer}", *(f"{share:.0%}" for share in shares))
    OUT.print(load)
    if not saved:
        OUT.print("draw all tokens with --save experts.svg", style="dim")
    others = [other for other in trace.kinds if other != kind and trace.side_of(other) != facts["side"]]
    if any(trace.expert_layers(trace.side_of(other)) for other in others):
        OUT.print(f"the experts of the other tower: --kind {others[0]}", style="dim")


def activations(trace: Trace) -> None:
    listing = table(
        "activation", "shape", "mean", "spread", "largest", "zero", right=(2, 3, 4, 5), no_wrap=(0,)
    )
    for row in statistics(trace):
        not_finite = f" [red]{row.non_finite} not finite[/]" if row.non_finite else ""
        shape = " x ".join(map(str, row.shape))
        listing.add_row(
            row.address,
            shape,
            f"{row.mean:.3f}",
            f"{row.std:.3f}",
            f"{row.largest:.3g}{not_finite}",
            f"{row.zero:.0%}",
        )
    OUT.print(listing)


def activation_facts(trace: Trace) -> list[dict[str, Any]]:
    return [asdict(row) for row in statistics(trace)]


def rounded_values(x: Tensor) -> Any:
    """Numbers for JSON, which has no NaN."""

    def plain(value: Any) -> Any:
        if isinstance(value, list):
            return [plain(item) for item in value]
        return None if not math.isfinite(value) else round(value, 6)

    return plain(x.tolist())
