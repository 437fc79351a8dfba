"""`clearhead look MODEL TEXT`: the tokens, their attention, and the effect of ablating a part."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...bundle import Bundle, load
from ...errors import InputError
from ...lens import VIEWS, AttentionKind, Comparison, Trace, answer_of, compare, open_trace, trace_ids
from ..console import ERR, OUT, print_json
from ..options import edits, is_edit
from . import rows


@dataclass(frozen=True)
class Wanted:
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
    view: str | None
    save: Path | None

    @property
    def changes(self) -> bool:
        return bool(self.without or self.inside)

    @property
    def inside(self) -> list[str]:
        """The edits of activations; the rest of `set` edits the model."""
        return [word for word in self.set if not is_edit(word)]

    def values(self) -> dict[str, str]:
        pairs = [word.partition("=") for word in self.inside]
        wrong = [word for word, pair in zip(self.inside, pairs, strict=True) if not pair[2]]
        if wrong:
            raise InputError(
                f"--set takes ADDRESS=VALUE, such as tower.blocks.0.ff.out=0; given {wrong[0]!r}"
            )
        return {address: value for address, _, value in pairs}


def show_text(model: str, text: str | None, wanted: Wanted, *, json: bool) -> None:
    if wanted.view is not None and wanted.view not in VIEWS:
        raise InputError(f"there is no view {wanted.view!r}; there are {', '.join(VIEWS)}")
    bundle, trace = _traced(model, text, wanted)
    compared = _compared(bundle, trace, text, wanted) if wanted.changes else None
    _check(trace, wanted)
    saved = _saved(trace, wanted)
    if json:
        print_json(_facts(bundle, trace, wanted, compared) | {"saved": saved})
        return
    rows.tokens(trace)
    for note in trace.notes:
        ERR.print(f"note: {note}", style="yellow", markup=False)
    if compared is not None:
        rows.before_and_after(compared, " ".join((*wanted.without, *wanted.inside)))
    else:
        _show(trace, wanted, _names(bundle))
    if saved is not None:
        OUT.print(f"saved {saved}", markup=False)


def _traced(model: str, text: str | None, wanted: Wanted) -> tuple[Bundle | None, Trace]:
    if model.endswith(".safetensors") and Path(model).is_file():
        if text is not None or wanted.changes:
            raise InputError(f"{model} is a saved trace; for another text or an edit, give the model")
        return None, open_trace(model)
    if text is None or not text.strip():
        raise InputError('give a text to look at: clearhead look FOLDER "the animal was tired"')
    bundle = load(model, edit=edits([word for word in wanted.set if is_edit(word)]))
    trace = bundle.trace(
        text, wanted.target, generate=wanted.generate, beams=wanted.beams, max_new_tokens=wanted.new
    )
    return bundle, trace


def _check(trace: Trace, wanted: Wanted) -> None:
    """Whatever does not exist is an error before the first line is printed."""
    kind = wanted.kind or trace.kinds[-1]
    trace.attention(kind, -1 if wanted.layer is None else wanted.layer, wanted.head)
    if wanted.word is not None:
        rows.place_of(wanted.word, *trace.labels(kind))


def _compared(bundle: Bundle | None, before: Trace, text: str | None, wanted: Wanted) -> Comparison:
    """The same tokens through the edited model; for a model that generates, also its own output."""
    assert bundle is not None and text is not None
    changed = bundle.without(*wanted.without, set=wanted.values())
    after = trace_ids(changed.model, before.input, tokenizer=bundle.tokenizer, title=before.info.title)
    found = compare(before, after, _names(bundle))
    if before.info.generates and wanted.target is None and (before.target_tokens or wanted.generate):
        alone = changed.trace(text, generate=wanted.generate, beams=wanted.beams, max_new_tokens=wanted.new)
        texts = [rows.generated_text(trace) for trace in (before, alone)]
        return Comparison(
            type(found.before)(found.before.best, texts[0]), type(found.after)(found.after.best, texts[1]),
            found.moved, found.unit,
        )  # fmt: skip
    return found


def _names(bundle: Bundle | None) -> dict[int, str]:
    return {} if bundle is None else bundle.labels


def _saved(trace: Trace, wanted: Wanted) -> Path | None:
    if wanted.save is None:
        return None
    named = wanted.word
    word = int(named) if named is not None and named.isdigit() else named
    view = wanted.view or ("arcs" if word is not None else "tree" if wanted.beams else None)
    return trace.save(
        wanted.save, view=view, kind=wanted.kind, layer=wanted.layer, head=wanted.head, word=word
    )


def _show(trace: Trace, wanted: Wanted, names: dict[int, str]) -> None:
    kind, layer = wanted.kind or trace.kinds[-1], -1 if wanted.layer is None else wanted.layer
    if wanted.heads:
        rows.heads(trace, kind)
    elif wanted.importance:
        rows.importance(trace, kind, ERR)
    elif wanted.logits:
        rows.logits(trace)
    elif wanted.activations:
        rows.activations(trace)
    elif wanted.beams:
        rows.beams(trace)
    elif wanted.generate:
        rows.print_frames(trace)
    else:
        rows.weights(trace, kind, layer, wanted.head, wanted.word)
        rows.print_answer(answer_of(trace, names))


def _facts(
    bundle: Bundle | None, trace: Trace, wanted: Wanted, compared: Comparison | None
) -> dict[str, Any]:
    kind, layer = wanted.kind or trace.kinds[-1], -1 if wanted.layer is None else wanted.layer
    weights = trace.attention(kind, layer, wanted.head)
    facts: dict[str, Any] = {
        "title": trace.info.title,
        "notes": list(trace.notes),
        "tokens": [token._asdict() for token in trace.tokens],
        "target_tokens": [token._asdict() for token in trace.target_tokens],
        "attention": {
            "kind": kind, "layer": layer % trace.layers(kind), "head": wanted.head,
            "rows": trace.labels(kind)[0], "columns": trace.labels(kind)[1],
            "weights": rows.rounded_values(weights if wanted.head is not None else weights.mean(0)),
        },
        "answer": asdict(answer_of(trace, _names(bundle))),
    }  # fmt: skip
    if compared is not None:
        facts["changed"] = asdict(compared)
    if wanted.generate or wanted.beams:
        facts["frames"] = [rows.frame_facts(frame) for frame in trace.frames]
    if trace.tree is not None:
        facts["tree"] = rows.tree_facts(trace)
    for name, make in (("heads", rows.head_facts), ("importance", rows.importance_facts)):
        if getattr(wanted, name):
            facts[name] = make(trace, kind)
    if wanted.logits:
        facts["logits"] = rows.logit_facts(trace)
    if wanted.activations:
        facts["activations"] = rows.activation_facts(trace)
    return facts
