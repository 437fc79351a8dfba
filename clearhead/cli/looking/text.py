"""`clearhead look MODEL TEXT`: the tokens, their attention, and the effect of ablating a part."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...bundle import Bundle, load
from ...errors import InputError
from ...lens import (
    VIEWS,
    AnswerChange,
    AttentionKind,
    Trace,
    answer_of,
    compare_answers,
    open_trace,
    routing_facts,
    trace_ids,
)
from ..console import ERR, OUT, print_json
from ..opening import adapted
from ..options import AdapterOptions, edits, is_edit
from . import rows


@dataclass(frozen=True)
class LookOptions:
    """The options as typed."""

    target: str | None
    kind: AttentionKind | None
    layer: int | None
    head: int | None
    word: str | None
    generate: bool
    beams: int | None
    new: int
    without: tuple[str, ...]
    set: tuple[str, ...]
    heads: bool
    importance: bool
    logits: bool
    activations: bool
    routing: bool
    view: str | None
    save: Path | None

    @property
    def changes(self) -> bool:
        return bool(self.without or self.activation_edits)

    @property
    def activation_edits(self) -> list[str]:
        """The edits of activations; the rest of `set` edits the model."""
        return [word for word in self.set if not is_edit(word)]

    def values(self) -> dict[str, str]:
        pairs = [word.partition("=") for word in self.activation_edits]
        wrong = [word for word, pair in zip(self.activation_edits, pairs, strict=True) if not pair[2]]
        if wrong:
            raise InputError(
                f"--set takes ADDRESS=VALUE, such as tower.blocks.0.ff.out=0; given {wrong[0]!r}"
            )
        return {address: value for address, _, value in pairs}


def show_text(
    model: str, text: str | None, options: LookOptions, over: AdapterOptions, *, json: bool
) -> None:
    if options.view is not None and options.view not in VIEWS:
        raise InputError(f"there is no view {options.view!r}; there are {', '.join(VIEWS)}")
    bundle, trace = _run_trace(model, text, options, over)
    compared = _compare_with_edited(bundle, trace, text, options) if options.changes else None
    _check(trace, options)
    saved = _save(trace, options)
    if json:
        print_json(_facts(bundle, trace, options, compared) | {"saved": saved})
        return
    rows.tokens(trace)
    for note in trace.notes:
        ERR.print(f"note: {note}", style="yellow", markup=False)
    if compared is not None:
        rows.before_and_after(compared, " ".join((*options.without, *options.activation_edits)))
    else:
        _print_trace(trace, options, _names(bundle))
    if saved is not None:
        OUT.print(f"saved {saved}", markup=False)


def _run_trace(
    model: str, text: str | None, options: LookOptions, over: AdapterOptions
) -> tuple[Bundle | None, Trace]:
    if model.endswith(".safetensors") and Path(model).is_file():
        if text is not None or options.changes or over.adapter:
            raise InputError(f"{model} is a saved trace; for another text or an edit, give the model")
        return None, open_trace(model)
    if text is None or not text.strip():
        raise InputError('give a text to look at: clearhead look FOLDER "the animal was tired"')
    name, adapter = adapted(model, over)
    bundle = load(name, edit=edits([word for word in options.set if is_edit(word)]), **adapter)
    trace = bundle.trace(
        text, options.target, generate=options.generate, beams=options.beams, max_new_tokens=options.new
    )
    return bundle, trace


def _check(trace: Trace, options: LookOptions) -> None:
    """Whatever does not exist is an error before the first line is printed."""
    kind = options.kind or trace.kinds[-1]
    if options.routing:
        trace.routing(options.layer, side=trace.side_of(kind))
        if options.head is not None:
            raise InputError("--routing shows experts, which have no heads: leave out --head")
    elif not (options.logits or options.activations):
        trace.attention(kind, -1 if options.layer is None else options.layer, options.head)
    if options.word is not None:
        rows.token_index(options.word, *trace.labels(kind))


def _compare_with_edited(
    bundle: Bundle | None, before: Trace, text: str | None, options: LookOptions
) -> AnswerChange:
    """The same tokens through the edited model; for a model that generates, also its own output."""
    assert bundle is not None and text is not None
    edited = bundle.without(*options.without, set=options.values())
    after = trace_ids(edited.model, before.input, tokenizer=bundle.tokenizer, title=before.info.title)
    comparison = compare_answers(before, after, _names(bundle))
    if before.info.generates and options.target is None and (before.target_tokens or options.generate):
        generated = edited.trace(
            text, generate=options.generate, beams=options.beams, max_new_tokens=options.new
        )
        texts = [rows.generated_text(trace) for trace in (before, generated)]
        return AnswerChange(
            type(comparison.before)(comparison.before.best, texts[0]),
            type(comparison.after)(comparison.after.best, texts[1]),
            comparison.moved,
            comparison.unit,
        )
    return comparison


def _names(bundle: Bundle | None) -> dict[int, str]:
    return {} if bundle is None else bundle.labels


def _save(trace: Trace, options: LookOptions) -> Path | None:
    if options.save is None:
        return None
    word_or_index = options.word
    word = int(word_or_index) if word_or_index is not None and word_or_index.isdigit() else word_or_index
    shown = {"arcs": word is not None, "routing": options.routing, "tree": options.beams}
    view = options.view or next((name for name, here in shown.items() if here), None)
    return trace.save(
        options.save, view=view, kind=options.kind, layer=options.layer, head=options.head, word=word
    )


def _print_trace(trace: Trace, options: LookOptions, names: dict[int, str]) -> None:
    kind, layer = options.kind or trace.kinds[-1], -1 if options.layer is None else options.layer
    if options.heads:
        rows.heads(trace, kind)
    elif options.importance:
        rows.importance(trace, kind, ERR)
    elif options.logits:
        rows.logits(trace)
    elif options.activations:
        rows.activations(trace)
    elif options.routing:
        rows.routing(trace, kind, options.layer, saved=options.save is not None)
    elif options.beams:
        rows.beams(trace)
    elif options.generate:
        rows.print_frames(trace)
    else:
        rows.weights(trace, kind, layer, options.head, options.word)
        rows.print_answer(answer_of(trace, names), generates=trace.answer.ndim > 1)


def _facts(
    bundle: Bundle | None, trace: Trace, options: LookOptions, compared: AnswerChange | None
) -> dict[str, Any]:
    kind, layer = options.kind or trace.kinds[-1], -1 if options.layer is None else options.layer
    weights = trace.attention(kind, layer, options.head) if trace.heads(kind) else None
    facts: dict[str, Any] = {
        "title": trace.info.title,
        "notes": list(trace.notes),
        "tokens": [token._asdict() for token in trace.tokens],
        "target_tokens": [token._asdict() for token in trace.target_tokens],
        "attention": {
            "kind": kind, "layer": layer % trace.layers(kind), "head": options.head,
            "rows": trace.labels(kind)[0], "columns": trace.labels(kind)[1],
            "weights": rows.rounded_values(weights if options.head is not None else weights.mean(0)),
        } if weights is not None else None,
        "answer": asdict(answer_of(trace, _names(bundle))),
    }  # fmt: skip
    if compared is not None:
        facts["changed"] = asdict(compared)
    if options.generate or options.beams:
        facts["frames"] = [rows.frame_facts(frame) for frame in trace.frames]
    if trace.tree is not None:
        facts["tree"] = rows.tree_facts(trace)
    for name, make in (("heads", rows.head_facts), ("importance", rows.importance_facts)):
        if getattr(options, name):
            facts[name] = make(trace, kind)
    if options.logits:
        facts["logits"] = rows.logit_facts(trace)
    if options.activations:
        facts["activations"] = rows.activation_facts(trace)
    if options.routing:
        facts["routing"] = routing_facts(trace, kind)
    return facts
