"""Saving and drawing traces: a picture, an HTML page or the trace itself, by the suffix of the file."""

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
class HeadSelection:
    """The layer and head that a picture shows."""

    kind: AttentionKind
    given_layer: int | None  # None: the last layer; an alignment selects its own
    layer: int
    head: int | None  # None: the mean of the heads
    word: int | None = None  # the token that arcs start from
    other: tuple[int, int] | None = None  # layer and head of the second matrix in the view "two"


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
    """`view` is one of `VIEWS`; the default is the alignment of an encoder-decoder, else the heat map."""
    path = Path(path)
    if path.suffix not in SUFFIXES:
        raise InputError(f"a trace can be saved as {', '.join(SUFFIXES)}; given {path.name}")
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
    """Draw one view of a trace; see `VIEWS`."""
    aligns = "cross" in trace.kinds and kind in (None, "cross") and layer is None and head is None
    view = view or ("alignment" if aligns else "heat")
    if view not in VIEWS:
        raise InputError(f"there is no view {view!r}; {nearest(view, VIEWS)}")
    kind = kind or trace.kinds[-1]
    number = -1 if layer is None else layer
    trace.address(kind, number)  # raises if there is no such layer
    token = _token_index(trace, kind, word)
    selection = HeadSelection(kind, layer, number % trace.layers(kind), head, token, other)
    return VIEWS[view](trace, selection)


def labels(tokens: list[Token]) -> list[str]:
    return [token.label for token in tokens]


def _token_index(trace: TraceData, kind: AttentionKind, word: int | str | None) -> int | None:
    """The index of a token given by number or by label; of equal labels, the last one."""
    rows = labels(trace.sides(kind)[0])
    if word is None or isinstance(word, int):
        if word is not None and not -len(rows) <= word < len(rows):
            raise InputError(f"there is no token {word}; there are {len(rows)}, from 0")
        return word if word is None else word % len(rows)
    if word not in rows:
        raise InputError(f"no token is {word!r}; {nearest(word, set(rows))}")
    return len(rows) - 1 - rows[::-1].index(word)


def _title(selection: HeadSelection) -> str:
    which = {"self": "", "decoder": "decoder, ", "cross": "cross-attention, "}[selection.kind]
    head = "mean of all heads" if selection.head is None else f"head {selection.head}"
    return f"{which}layer {selection.layer}, {head}"


def _matrix(trace: TraceData, selection: HeadSelection) -> Tensor:
    weights = trace.attention(selection.kind, selection.layer, selection.head)
    return weights if selection.head is not None else weights.mean(0)


def _heat(trace: TraceData, selection: HeadSelection) -> pictures.Picture:
    return pictures.heat_map(_matrix(trace, selection), *trace.labels(selection.kind), _title(selection))


def _grid(trace: TraceData, selection: HeadSelection) -> pictures.Picture:
    scores = head_scores(trace, selection.kind)
    layers, heads = trace.layers(selection.kind), trace.heads(selection.kind)
    marks = [[scores.role(i, h) for h in range(heads)] for i in range(layers)]
    return pictures.head_grid(trace.attention(selection.kind), f"{trace.info.title}: every head", marks)


def _two(trace: TraceData, selection: HeadSelection) -> pictures.Picture:
    heads = trace.heads(selection.kind)
    head = selection.head or 0
    second = selection.other or (selection.layer, (head + 1) % heads)
    pair = [(selection.layer, head), second]
    left, right = (trace.attention(selection.kind, *which) for which in pair)
    titles = tuple(f"layer {layer}, head {number}" for layer, number in pair)
    return pictures.side_by_side(left, right, *trace.labels(selection.kind), (titles[0], titles[1]))


def _arcs(trace: TraceData, selection: HeadSelection) -> pictures.Picture:
    if selection.kind == "cross":
        raise InputError("arcs stay within one text; for two texts use the view lines or alignment")
    rows, _ = trace.sides(selection.kind)
    word = len(rows) - 1 if selection.word is None else selection.word
    title = f"what {rows[word].label!r} attends to: {_title(selection)}"
    return pictures.arcs(_matrix(trace, selection)[word], labels(rows), word, title)


def _lines(trace: TraceData, selection: HeadSelection) -> pictures.Picture:
    return pictures.bipartite(_matrix(trace, selection), *trace.labels(selection.kind), _title(selection))


def _alignment(trace: TraceData, selection: HeadSelection) -> pictures.Picture:
    links = alignment(trace, selection.given_layer, selection.head)
    target = "".join(token.text for token in links.target if not token.special)
    title = f"{''.join(_spaced(links.source))} → {target}"
    return pictures.aligned(links.weights_QK, labels(links.target), labels(links.source), title)


def _spaced(tokens: list[Token]) -> list[str]:
    """The text of the tokens, with the spaces between them restored from their offsets."""
    plain = [token for token in tokens if not token.special]
    gaps = [0, *(b.start - a.end for a, b in pairwise(plain))]
    return [" " * max(gap, 0) + token.text for gap, token in zip(gaps, plain, strict=True)]


def _logit_lens(trace: TraceData, selection: HeadSelection) -> pictures.Picture:
    tokens = trace.target_tokens or trace.tokens
    lens = trace.logit_lens()
    names = labels(tokens) if lens.ids.shape[1] == len(tokens) else ["the whole text"]
    # Above the table: the generated tokens, and the prediction after the last one.
    generated = [frame.token.label for frame in frames(trace)] if trace.info.generates else []
    prompt = [""] * (len(names) - len(generated) - 1)
    answers = [*prompt, *generated, lens.labels[-1][-1][0]] if generated else []
    return pictures.logit_lens_table(lens, names, f"{trace.info.title}: logit lens", answers)


def _tree(trace: TraceData, selection: HeadSelection) -> pictures.Picture:
    if trace.tree is None or not trace.tree.branches:
        raise InputError("this trace has no beam search to draw; trace with beams=4 (--beams 4)")
    return pictures.beam_tree(trace.tree.branches, f"beam search, {len(trace.tree.answers)} answers")


def _rollout(trace: TraceData, selection: HeadSelection) -> pictures.Picture:
    if selection.kind == "cross":
        raise InputError("rollout multiplies the layers of one stack; use kind self or decoder")
    trace.require_every_token("rollout")
    rows, _ = trace.sides(selection.kind)
    names = labels(rows)
    return pictures.heat_map(
        rollout(trace.attention(selection.kind)), names, names, "attention rollout", top=None
    )


def _importance(trace: TraceData, selection: HeadSelection) -> pictures.Picture:
    importance = head_importance(trace, selection.kind)
    unit = "change of the answer in bits" if trace.info.has_head else "relative change of the states"
    return pictures.table_of_heads(importance, "head importance: one head ablated at a time", unit, "Oranges")


def _entropy(trace: TraceData, selection: HeadSelection) -> pictures.Picture:
    return pictures.table_of_heads(head_scores(trace, selection.kind).entropy, "entropy of the heads", "bits")


def _routing(trace: TraceData, selection: HeadSelection) -> pictures.Picture:
    side = trace.side_of(selection.kind)
    layers = trace.expert_layers(side)
    routing_LTE = trace.routing(side=side)  # raises if there are no experts
    if selection.given_layer is not None:
        layers, routing_LTE = [selection.layer], trace.routing(selection.layer, side)[None]
    names = labels(trace.sides(selection.kind)[0])
    title = f"{trace.info.title}: which experts the tokens went to"
    return pictures.expert_map(routing_LTE, layers, names, title)


VIEWS: dict[str, Callable[[TraceData, HeadSelection], pictures.Picture]] = {
    "heat": _heat,
    "grid": _grid,
    "two": _two,
    "arcs": _arcs,
    "lines": _lines,
    "alignment": _alignment,
    "logits": _logit_lens,
    "tree": _tree,
    "rollout": _rollout,
    "importance": _importance,
    "entropy": _entropy,
    "routing": _routing,
}
