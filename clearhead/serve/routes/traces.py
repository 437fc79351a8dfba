"""Attention: a text through a model, and every view of what happened inside, each computed when asked for."""

from __future__ import annotations

import time
from typing import Annotated, Any, Literal

import torch
from fastapi import APIRouter, Query
from pydantic import BaseModel, Field
from starlette.responses import Response

from ...bundle import Bundle
from ...bundle.generation import text_generator
from ...errors import InputError
from ...lens.guesses import logit_lens
from ...lens.heads import head_scores
from ...lens.tokens import Token, of_ids
from ...lens.trace import Trace
from ...nn.model import PairModel
from ..answers import without_head
from ..desk import Held
from ..facts import causal, generates, kinds, vocabulary
from ..files import export
from ..lens import lens_cell, lens_window
from ..saying import message
from ..studio import Studio
from ..wire import answer, packed, roots, thumbnail_size, thumbnails

LONGEST = 2048  # tokens of a trace: beyond it one layer's weights alone fill a gigabyte
Kind = Literal["self", "decoder", "cross"]
Id = Annotated[int, Field(ge=0, le=10_000_000)]
Index = Annotated[int, Query(ge=0, le=1_000_000)]


class Asked(BaseModel):
    model: str = Field(min_length=1, max_length=120)
    text: str = Field(min_length=1, max_length=100_000)
    target: str | None = Field(default=None, max_length=100_000)
    target_ids: list[Id] | None = Field(default=None, max_length=2048)  # an answer token by token
    vocabulary: str | None = Field(default=None, max_length=64)  # the one `target_ids` are of
    chat: bool = False  # the text is a message; the checkpoint's template writes the prompt
    edit: str | None = Field(default=None, max_length=200)  # another kernel, such as Window(left=4)
    generate: bool = False
    timed: bool = False  # also measure an unwatched pass
    max_new: int = Field(default=32, ge=1, le=256)


class Head(BaseModel):
    kind: Kind
    layer: int = Field(ge=0, le=10_000)
    head: int = Field(ge=0, le=10_000)


def routes(studio: Studio) -> APIRouter:
    router, desk = APIRouter(prefix="/api/traces", tags=["attention"]), studio.desk

    @router.post("")
    def trace(asked: Asked) -> dict[str, Any]:
        with desk.turn():
            bundle = studio.shelf.bundle(asked.model, asked.edit)
            began = time.perf_counter()
            held = desk.keep(traced(bundle, asked), asked.model_dump(), began)
            told = {**about(bundle, held), "own": _own(bundle, held)}
            return {**told, "seconds": _pass(bundle, held.trace)} if asked.timed else told

    @router.get("/{id}/overview")
    def overview(id: str, kind: Kind = "self") -> Response:
        """Every head as a thumbnail, and its scores."""
        held = desk.trace(id)
        with desk.turn():
            return answer(_once(held, ("overview", kind), lambda: _overview(held.trace, kind)))

    @router.get("/{id}/head")
    def head(id: str, layer: Index, head: Index, kind: Kind = "self") -> Response:
        held = desk.trace(id)
        with desk.turn():
            return answer(packed(sqrt=roots(held.trace.attention(kind, layer, head))))

    @router.get("/{id}/row")
    def row(id: str, layer: Index, head: Index, q: Index, kind: Kind = "self") -> Response:
        """One query's weights, exact to half precision."""
        held = desk.trace(id)
        with desk.turn():
            weights = held.trace.attention(kind, layer, head)
            return answer(packed(row=weights[_within("row", q, len(weights))].half()))

    @router.get("/{id}/cell")
    def cell(id: str, layer: Index, head: Index, q: Index, k: Index, kind: Kind = "self") -> dict[str, Any]:
        """One weight, taken apart."""
        held = desk.trace(id)
        with desk.turn():
            return _cell(held.trace, kind, layer, head, q, k)

    @router.get("/{id}/lens")
    def lens(id: str, start: Index = 0, count: Annotated[int, Query(ge=1, le=64)] = 12) -> dict[str, Any]:
        """What each layer would have said, for a window of positions."""
        held = desk.trace(id)
        with desk.turn():
            return lens_window(held, start, count)

    @router.get("/{id}/lens/top")
    def lens_top(id: str, layer: Index, position: Index) -> dict[str, Any]:
        held = desk.trace(id)
        with desk.turn():
            return {"top": lens_cell(held, layer, position)}

    @router.post("/{id}/without")
    def without(id: str, head: Head) -> dict[str, Any]:
        """The answer with one head switched off."""
        held = desk.trace(id)
        with desk.turn():
            bundle = studio.shelf.bundle(held.asked["model"], held.asked["edit"])
            return without_head(bundle, held.trace, head.kind, head.layer, head.head)

    @router.get("/{id}/file/{ending}")
    def file(
        id: str,
        ending: Literal["csv", "html", "safetensors"],
        layer: Index,
        head: Index,
        kind: Kind = "self",
    ) -> Response:
        held = desk.trace(id)
        with desk.turn():
            return export(held.trace, ending, kind, layer, head)

    return router


def traced(bundle: Bundle, asked: Asked) -> Trace:
    """One text, with an answer that was given as words or as tokens, or with the model's own."""
    _fits(bundle, asked)
    if asked.vocabulary and asked.target_ids and asked.vocabulary != vocabulary(bundle):
        raise InputError("these token ids are of another vocabulary; give the answer as text")
    if asked.chat:
        return _traced_chat(bundle, asked)
    if asked.target_ids and isinstance(bundle.model, PairModel):
        framed = bundle.trace(asked.text, max_new_tokens=1).fed  # as this model's texts begin and end
        assert framed.target_ids is not None
        return bundle.trace(list(framed.ids), [*framed.target_ids[: framed.prompt], *asked.target_ids])
    target = asked.target_ids or asked.target or None
    if isinstance(bundle.model, PairModel) and not generates(bundle):
        target = bundle.encode(asked.target or asked.text)  # without a head it reads and says nothing
    return bundle.trace(asked.text, target, generate=asked.generate, max_new_tokens=asked.max_new)


def _traced_chat(bundle: Bundle, asked: Asked) -> Trace:
    """The message as the template writes it, and an answer behind it, where there is one."""
    ids = text_generator(bundle, {}).encode_prompts([message(asked.text)])[0]
    if isinstance(bundle.model, PairModel):
        raise InputError("chat templates are for models that continue a text; leave `chat` out")
    target = asked.target_ids or (bundle.encode(asked.target) if asked.target else None)
    return bundle.trace(ids, target, generate=asked.generate, max_new_tokens=asked.max_new)


def about(bundle: Bundle, held: Held) -> dict[str, Any]:
    trace = held.trace
    said = trace.target_tokens
    return {
        "id": held.id,
        "model": held.asked["model"],
        "text": held.asked["text"],
        "source": [_token(t) for t in trace.tokens],
        "target": [_token(t) for t in said],
        "said": [_token(t) for t in _words(trace)],
        "prompt": 0 if said else trace.fed.prompt if _goes_on(held) else len(trace.tokens),
        "kinds": kinds(bundle),
        "causal": causal(bundle),
        "answer": _answer(bundle, held),
        "seconds": held.seconds,
        "bytes": held.size,
        "lens": _has_lens(trace),
        "vocabulary": vocabulary(bundle),
        "chat": held.asked["chat"],
        "notes": list(trace.notes),
    }


def _has_lens(trace: Trace) -> bool:
    """Whether the head can read every layer: one token is tried, and the lens refuses what it cannot."""
    try:
        logit_lens(trace.needs_model("the lens"), trace.hidden(0)[None, :1], None, 1)
    except InputError:
        return False
    return True


def _token(token: Token) -> dict[str, Any]:
    return token._asdict()


def _last_word(trace: Trace) -> list[Token]:
    """What the decoder says behind its last token: usually that it is done."""
    return of_ids([int(trace.answer[-1].argmax())], trace.tokenizer)


def _words(trace: Trace) -> list[Token]:
    """What each row of the decoder said: the next token. Without a head, what it read."""
    read = trace.target_tokens
    return [*read[1:], *_last_word(trace)] if read and trace.about.has_head else read


def _goes_on(held: Held) -> bool:
    """Whether something was said behind the text, by the model or by hand."""
    return bool(held.asked["generate"] or held.asked["target"] or held.asked["target_ids"])


def _answer(bundle: Bundle, held: Held) -> str:
    """The model's answer in words, where it has one for a whole text."""
    trace = held.trace
    if generates(bundle) and (trace.target_tokens or _goes_on(held)):
        tokens = trace.target_tokens[1:] or trace.tokens[trace.fed.prompt :]
        return bundle.tokenizer.decode([t.id for t in tokens]) if bundle.tokenizer else ""
    if generates(bundle):
        return _last_word(trace)[0].text
    if trace.answer.ndim == 1 and bundle.task == "labels":
        names = bundle.config.get("id2label") or {}
        best = int(trace.answer.argmax())
        return str(names.get(str(best), names.get(best, best)))
    return ""


def _own(bundle: Bundle, held: Held) -> str:
    """What the model says by itself, also where the words of the trace were put into its mouth."""
    given = held.asked["target"] or held.asked["target_ids"]
    if not given or not isinstance(bundle.model, PairModel):
        return _answer(bundle, held)
    return str(bundle.generate(held.asked["text"], max_new_tokens=held.asked["max_new"]))


@torch.inference_mode()
def _pass(bundle: Bundle, trace: Trace) -> float:
    """Seconds of one pass over these tokens that nobody watches; the best of three."""
    fed, taken = trace.fed, []
    inputs = [torch.tensor([list(ids)]) for ids in (fed.ids, fed.target_ids) if ids is not None]
    for _ in range(3):
        began = time.perf_counter()
        bundle.model(*inputs)
        taken.append(time.perf_counter() - began)
    return min(taken)


def _fits(bundle: Bundle, asked: Asked) -> None:
    count = len(bundle.encode(asked.text)) + (len(bundle.encode(asked.target)) if asked.target else 0)
    if count > LONGEST:
        raise InputError(f"the text has {count:,} tokens; the studio shows up to {LONGEST:,}: shorten it")


def _within(what: str, number: int, count: int) -> int:
    if number >= count:
        raise InputError(f"there is no {what} {number}; there are {count}, from 0")
    return number


def _once(held: Held, key: Any, make: Any) -> bytes:
    if key not in held.parts:
        held.parts[key] = make()
    made: bytes = held.parts[key]
    return made


def _overview(trace: Trace, kind: Kind) -> bytes:
    layers, heads = trace.layers(kind), trace.heads(kind)
    size = thumbnail_size(layers * heads)
    thumbs = [thumbnails(trace.attention(kind, layer), size) for layer in range(layers)]
    scores = {f"score.{name}": x.float() for name, x in vars(head_scores(trace, kind)).items()}
    return packed(thumbs=torch.stack(thumbs), **{k: x for k, x in scores.items() if not x.isnan().all()})


def _cell(trace: Trace, kind: Kind, layer: int, head: int, q: int, k: int) -> dict[str, Any]:
    steps = trace.steps(kind, layer, head)
    q, k = _within("row", q, len(steps.q_QE)), _within("column", k, len(steps.k_KE))
    dot = float(steps.scores[q, k])
    return {
        "q": steps.q_QE[q].float().tolist(),
        "k": steps.k_KE[k].float().tolist(),
        "dot": dot,
        "scale": steps.scale,
        "scaled": dot * steps.scale,
        "bias": 0.0
        if trace.call(kind, layer).bias is None
        else float(steps.scaled[q, k]) - dot * steps.scale,
        "masked": bool(torch.isinf(steps.masked[q, k])),
        "weight": float(steps.weights[q, k]),
    }
