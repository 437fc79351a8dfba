"""Saving a trace: a file name in; a picture, a page or the trace itself out, by its suffix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from torch import Tensor

from ..errors import InputError, SaveError, nearest
from . import pictures
from .alignment import alignment
from .file import write_trace
from .frames import frames
from .heads import head_scores
from .importance import head_importance
from .page import page
from .record import AttentionKind
from .rollout import rollout
from .tokens import Token
from .trace_data import TraceData

SUFFIXES = (".png", ".svg", ".pdf", ".html", ".safetensors")


@dataclass(frozen=True)
class Chosen:
    """What a picture is of. Without a head, the heads of the layer are taken together."""

    kind: AttentionKind
    layer: int
    head: int | None
    word: int | None = None  # the token that arcs start from
    other: tuple[int, int] | None = None  # layer and head to put beside the chosen one


def save_trace(
    trace: TraceData,
    path: str | Path,
    *,
    view: str | None = None,
    kind: AttentionKind | None = None,
    layer: int | None = None,
    head: int | None = None,
    word: int | str | None = None,
    other: tuple[int, int] | None = None,
) -> Path:
    """`view` is one of `VIEWS`; the default is the alignment of a translator, else the heat map."""
    path = Path(path)
    if path.suffix not in SUFFIXES:
        raise InputError(f"a trace is saved as {', '.join(SUFFIXES)}; given {path.name}")
    if not path.parent.is_dir():
        raise InputError(f"there is no folder {path.parent} to save {path.name} in")
    if path.suffix == ".safetensors":
        return write_trace(trace, path)
    if path.suffix == ".html":
        try:
            path.write_text(page(trace, kind, layer, head), encoding="utf-8")
        except OSError as error:
            raise SaveError(f"{path} cannot be written: {error.strerror}") from None
        return path
    return draw_trace(trace, view, kind=kind, layer=layer, head=head, word=word, other=other).save(path)


def draw_trace(
    trace: TraceData,
    view: str | None = None,
    *,
    kind: AttentionKind | None = None,
    layer: int | None = None,
    head: int | None = None,
    word: int | str | None = None,
    other: tuple[int, int] | None = None,
) -> pictures.Picture:
    """One picture of a trace."""
    aligns = "cross" in trace.kinds and kind in (None, "cross") and layer is None and head is None
    view = view or ("alignment" if aligns else "heat")
    if view not in VIEWS:
        raise InputError(f"there is no view {view!r}; {nearest(view, VIEWS)}")
    kind = kind or trace.kinds[-1]
    trace.call(kind, -1 if layer is None else layer)  # refuses a layer that is not there
    at = -1 if layer is None else layer
    chosen = Chosen(kind, at % trace.layers(kind), head, _word(trace, kind, word), other)
    return VIEWS[view](trace, chosen, layer)


def labels(tokens: list[Token]) -> list[str]:
    return [token.label for token in tokens]


def _word(trace: TraceData, kind: AttentionKind, word: int | str | None) -> int | None:
    """A token by its number or by its text, the last one that has it."""
    rows = labels(trace.sides(kind)[0])
    if word is None or isinstance(word, int):
        if word is not None and not -len(rows) <= word < len(rows):
            raise InputError(f"there is no token {word}; there are {len(rows)}, from 0")
        return word if word is None else word % len(rows)
    if word not in rows:
        raise InputError(f"no token is {word!r}; {nearest(word, set(rows))}")
    return len(rows) - 1 - rows[::-1].index(word)


def name_of(trace: TraceData, chosen: Chosen) -> str:
    which = {"self": "", "decoder": "decoder, ", "cross": "cross-attention, "}[chosen.kind]
    head = "all heads together" if chosen.head is None else f"head {chosen.head}"
    return f"{which}layer {chosen.layer}, {head}"


def _matrix(trace: TraceData, chosen: Chosen) -> Tensor:
    weights = trace.attention(chosen.kind, chosen.layer, chosen.head)
    return weights if chosen.head is not None else weights.mean(0)


def _heat(trace: TraceData, chosen: Chosen, layer: int | None) -> pictures.Picture:
    return pictures.heat_map(_matrix(trace, chosen), *trace.labels(chosen.kind), name_of(trace, chosen))


def _grid(trace: TraceData, chosen: Chosen, layer: int | None) -> pictures.Picture:
    scores = head_scores(trace, chosen.kind)
    layers, heads = trace.layers(chosen.kind), trace.heads(chosen.kind)
    marks = [[scores.role(i, h) for h in range(heads)] for i in range(layers)]
    return pictures.head_grid(trace.attention(chosen.kind), f"{trace.info.title}: every head", marks)


def _two(trace: TraceData, chosen: Chosen, layer: int | None) -> pictures.Picture:
    heads = trace.heads(chosen.kind)
    head = chosen.head or 0
    beside = chosen.other or (chosen.layer, (head + 1) % heads)
    pair = [(chosen.layer, head), beside]
    one, two = (trace.attention(chosen.kind, at, which) for at, which in pair)
    titles = tuple(f"layer {at}, head {which}" for at, which in pair)
    return pictures.side_by_side(one, two, *trace.labels(chosen.kind), (titles[0], titles[1]))


def _arcs(trace: TraceData, chosen: Chosen, layer: int | None) -> pictures.Picture:
    if chosen.kind == "cross":
        raise InputError("arcs stay within one text; for two texts there are lines and the alignment")
    rows, _ = trace.sides(chosen.kind)
    word = len(rows) - 1 if chosen.word is None else chosen.word
    title = f"where {rows[word].label!r} looks: {name_of(trace, chosen)}"
    return pictures.arcs(_matrix(trace, chosen)[word], labels(rows), word, title)


def _lines(trace: TraceData, chosen: Chosen, layer: int | None) -> pictures.Picture:
    return pictures.bipartite(_matrix(trace, chosen), *trace.labels(chosen.kind), name_of(trace, chosen))


def _alignment(trace: TraceData, chosen: Chosen, layer: int | None) -> pictures.Picture:
    found = alignment(trace, layer, chosen.head)
    target = "".join(token.text for token in found.target if not token.special)
    source = "".join(_spaced(found.source))
    title = f"{source} → {target}"
    return pictures.aligned(found.weights_QK, labels(found.target), labels(found.source), title)


def _spaced(tokens: list[Token]) -> list[str]:
    """The text of the tokens with the gaps between them, as the offsets say."""
    plain = [token for token in tokens if not token.special]
    gaps = [0, *(b.start - a.end for a, b in pairwise(plain))]
    return [" " * max(gap, 0) + token.text for gap, token in zip(gaps, plain, strict=True)]


def _guesses(trace: TraceData, chosen: Chosen, layer: int | None) -> pictures.Picture:
    read = trace.target_tokens or trace.tokens
    found = trace.logit_lens()
    names = labels(read) if found.ids.shape[1] == len(read) else ["the whole text"]
    generated = [frame.token.label for frame in frames(trace)] if trace.info.generates else []
    before = [""] * (len(names) - len(generated) - 1)
    answers = [*before, *generated, found.labels[-1][-1][0]] if generated else []
    return pictures.guess_table(found, names, f"{trace.info.title}: logit lens", answers)


def _tree(trace: TraceData, chosen: Chosen, layer: int | None) -> pictures.Picture:
    if trace.tree is None or not trace.tree.branches:
        raise InputError("there is no beam search to draw; trace with beams=4 (--beams 4)")
    return pictures.beam_tree(trace.tree.branches, f"beam search, {len(trace.tree.answers)} answers")


def _rollout(trace: TraceData, chosen: Chosen, layer: int | None) -> pictures.Picture:
    if chosen.kind == "cross":
        raise InputError("rollout multiplies the layers of one tower; choose kind self or decoder")
    rows, _ = trace.sides(chosen.kind)
    names = labels(rows)
    return pictures.heat_map(
        rollout(trace.attention(chosen.kind)), names, names, "attention rollout", top=None
    )


def _importance(trace: TraceData, chosen: Chosen, layer: int | None) -> pictures.Picture:
    found = head_importance(trace, chosen.kind)
    unit = "bits the answer moves" if trace.info.has_head else "relative move of the states"
    return pictures.table_of_heads(found, "head importance: each head silent in turn", unit, "Oranges")


def _entropy(trace: TraceData, chosen: Chosen, layer: int | None) -> pictures.Picture:
    return pictures.table_of_heads(head_scores(trace, chosen.kind).entropy, "entropy of the heads", "bits")


VIEWS: dict[str, Callable[[TraceData, Chosen, int | None], pictures.Picture]] = {
    "heat": _heat,
    "grid": _grid,
    "two": _two,
    "arcs": _arcs,
    "lines": _lines,
    "alignment": _alignment,
    "logits": _guesses,
    "tree": _tree,
    "rollout": _rollout,
    "importance": _importance,
    "entropy": _entropy,
}
