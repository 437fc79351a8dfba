"""Attention: a text through a model, and every view of the forward pass, each computed on request."""

from __future__ import annotations

import time
from typing import Annotated, Any, Literal

import torch
from fastapi import APIRouter, Query
from pydantic import BaseModel, Field
from starlette.responses import Response

from ...bundle import Bundle, text_generator
from ...errors import InputError
from ...lens import AttentionKind, Token, Trace, head_scores, logit_lens, of_ids, routing_facts
from ..answers import without_head
from ..compute_queue import CachedTrace, ComputeQueue
from ..facts import attention_kinds, causal_kinds, vocabulary
from ..generation import TokenId, as_chat
from ..logit_lens import lens_cell, lens_window
from ..studio import Studio
from ..wire import binary_response, export_trace, thumbnail_size, thumbnails, to_root_bytes, to_safetensors

MAX_TRACE_TOKENS = 2048  # for longer texts the weights of one layer alone can exceed a gigabyte
Index = Annotated[int, Query(ge=0, le=1_000_000)]


class TraceRequest(BaseModel):
    model: str = Field(min_length=1, max_length=120)
    text: str = Field(min_length=1, max_length=100_000)
    target: str | None = Field(default=None, max_length=100_000)
    target_ids: list[TokenId] | None = Field(default=None, max_length=2048)  # the answer as token ids
    vocabulary: str | None = Field(default=None, max_length=64)  # the vocabulary of `target_ids`
    chat: bool = False  # the text is a message; the checkpoint's template writes the prompt
    edit: str | None = Field(default=None, max_length=200)  # another kernel, such as Window(left=4)
    generate: bool = False
    timed: bool = False  # also time a forward pass without recording
    max_new: int = Field(default=32, ge=1, le=256)


class HeadRequest(BaseModel):
    kind: AttentionKind
    layer: int = Field(ge=0, le=10_000)
    head: int = Field(ge=0, le=10_000)


def routes(studio: Studio) -> APIRouter:
    router, queue = APIRouter(prefix="/api/traces", tags=["attention"]), studio.queue

    @router.post("")
    def trace(request: TraceRequest) -> dict[str, Any]:
        with queue.slot():
            bundle = studio.registry.bundle(request.model, request.edit)
            began = time.perf_counter()
            cached = queue.cache(traced(bundle, request), request.model_dump(), began)
            facts = {**about(bundle, cached), "own": _own_answer(bundle, cached)}
            return {**facts, "seconds": _forward_seconds(bundle, cached.trace)} if request.timed else facts

    @router.get("/{id}/overview")
    def overview(id: str, kind: AttentionKind = "self") -> Response:
        """Every head as a thumbnail, and its scores."""
        cached = queue.trace(id)
        with queue.slot():
            return binary_response(_cached_overview(cached, kind))

    @router.get("/{id}/head")
    def head(id: str, layer: Index, head: Index, kind: AttentionKind = "self") -> Response:
        cached = queue.trace(id)
        with queue.slot():
            return binary_response(
                to_safetensors(sqrt=to_root_bytes(cached.trace.attention(kind, layer, head)))
            )

    @router.get("/{id}/row")
    def row(id: str, layer: Index, head: Index, q: Index, kind: AttentionKind = "self") -> Response:
        """One query's weights, exact to half precision."""
        cached = queue.trace(id)
        with queue.slot():
            weights = cached.trace.attention(kind, layer, head)
            return binary_response(to_safetensors(row=weights[_check_index("row", q, len(weights))].half()))

    @router.get("/{id}/cell")
    def cell(
        id: str, layer: Index, head: Index, q: Index, k: Index, kind: AttentionKind = "self"
    ) -> dict[str, Any]:
        """One weight: query, key, score, scale, bias and mask."""
        cached = queue.trace(id)
        with queue.slot():
            return _cell(cached.trace, kind, layer, head, q, k)

    @router.post("/{id}/without")
    def without(id: str, head: HeadRequest) -> dict[str, Any]:
        """The answer with one head ablated."""
        cached = queue.trace(id)
        with queue.slot():
            bundle = studio.registry.bundle(cached.request["model"], cached.request["edit"])
            return without_head(bundle, cached.trace, head.kind, head.layer, head.head)

    @router.get("/{id}/file/{ending}")
    def file(
        id: str,
        ending: Literal["csv", "html", "safetensors"],
        layer: Index,
        head: Index,
        kind: AttentionKind = "self",
    ) -> Response:
        cached = queue.trace(id)
        with queue.slot():
            return export_trace(cached.trace, ending, kind, layer, head)

    _add_layer_routes(router, queue)
    return router


def _add_layer_routes(router: APIRouter, queue: ComputeQueue) -> None:
    """What the layers did besides attention: which experts they chose, what they would predict."""

    @router.get("/{id}/routing")
    def routing(id: str, kind: AttentionKind = "self") -> dict[str, Any]:
        """Which experts every token went to, in the tower that has this attention; and their load."""
        cached = queue.trace(id)
        with queue.slot():
            return routing_facts(cached.trace, kind)

    @router.get("/{id}/lens")
    def lens(id: str, start: Index = 0, count: Annotated[int, Query(ge=1, le=64)] = 12) -> dict[str, Any]:
        """What each layer would predict, for a window of positions."""
        cached = queue.trace(id)
        with queue.slot():
            return lens_window(cached, start, count)

    @router.get("/{id}/lens/top")
    def lens_top(id: str, layer: Index, position: Index) -> dict[str, Any]:
        cached = queue.trace(id)
        with queue.slot():
            return {"top": lens_cell(cached, layer, position)}


def traced(bundle: Bundle, request: TraceRequest) -> Trace:
    """Trace a text with a given answer (text or token ids) or with one the model generates."""
    _check_length(bundle, request)
    if request.vocabulary and request.target_ids and request.vocabulary != vocabulary(bundle):
        raise InputError("these token ids belong to another vocabulary; give the answer as text")
    if request.chat:
        return _traced_chat(bundle, request)
    if request.target_ids and bundle.spec.is_encoder_decoder:
        # A short trace gives the special tokens that this model puts around texts.
        short = bundle.trace(request.text, max_new_tokens=1).input
        assert short.target_ids is not None
        return bundle.trace(list(short.ids), [*short.target_ids[: short.prompt], *request.target_ids])
    target = request.target_ids or request.target or None
    if bundle.spec.is_encoder_decoder and not bundle.spec.generates:
        target = bundle.encode(request.target or request.text)  # without a head nothing can be generated
    return bundle.trace(request.text, target, generate=request.generate, max_new_tokens=request.max_new)


def _traced_chat(bundle: Bundle, request: TraceRequest) -> Trace:
    """Trace a message in the chat template of the checkpoint, followed by the answer, if there is one."""
    ids = text_generator(bundle, {}).encode_prompts([as_chat(request.text)])[0]
    if bundle.spec.is_encoder_decoder:
        raise InputError("chat templates are for models that continue a text; leave `chat` out")
    target = request.target_ids or (bundle.encode(request.target) if request.target else None)
    return bundle.trace(ids, target, generate=request.generate, max_new_tokens=request.max_new)


def about(bundle: Bundle, cached: CachedTrace) -> dict[str, Any]:
    trace = cached.trace
    target = trace.target_tokens
    return {
        "id": cached.id,
        "model": cached.request["model"],
        "text": cached.request["text"],
        "source": [token._asdict() for token in trace.tokens],
        "target": [token._asdict() for token in target],
        "said": [token._asdict() for token in _predicted_tokens(trace)],
        "prompt": 0 if target else trace.input.prompt if _has_continuation(cached) else len(trace.tokens),
        "kinds": attention_kinds(bundle),
        "causal": causal_kinds(bundle),
        "answer": _answer(bundle, cached),
        "seconds": cached.seconds,
        "bytes": cached.size,
        "lens": _has_lens(trace),
        "experts": [kind for kind in trace.kinds if trace.expert_layers(trace.side_of(kind))],
        "vocabulary": vocabulary(bundle),
        "chat": cached.request["chat"],
        "notes": list(trace.notes),
    }


def _has_lens(trace: Trace) -> bool:
    """Whether the logit lens works for this model; tried on one token."""
    try:
        trace.require_every_token("the lens")
        logit_lens(trace.needs_model("the lens"), trace.hidden(0)[None, :1], None, 1)
    except InputError:
        return False
    return True


def _next_token(trace: Trace) -> list[Token]:
    """The most likely token after the last one: usually the end token."""
    return of_ids([int(trace.answer[-1].argmax())], trace.tokenizer)


def _predicted_tokens(trace: Trace) -> list[Token]:
    """The token that each decoder position predicts, the next one; without a head, the one it reads."""
    read = trace.target_tokens
    return [*read[1:], *_next_token(trace)] if read and trace.info.has_head else read


def _has_continuation(cached: CachedTrace) -> bool:
    """Whether tokens follow the text, generated or given."""
    return bool(cached.request["generate"] or cached.request["target"] or cached.request["target_ids"])


def _answer(bundle: Bundle, cached: CachedTrace) -> str:
    """The model's output as text: generated tokens, the next token, or a label."""
    trace = cached.trace
    if bundle.spec.generates and (trace.target_tokens or _has_continuation(cached)):
        tokens = trace.target_tokens[1:] or trace.tokens[trace.input.prompt :]
        return bundle.tokenizer.decode([t.id for t in tokens]) if bundle.tokenizer else ""
    if bundle.spec.generates:
        return _next_token(trace)[0].text
    if trace.answer.ndim == 1 and bundle.task == "labels":
        best = int(trace.answer.argmax())
        return bundle.labels.get(best, str(best))
    return ""


def _own_answer(bundle: Bundle, cached: CachedTrace) -> str:
    """What the model generates by itself, even if the target of the trace was given."""
    has_target = cached.request["target"] or cached.request["target_ids"]
    if not has_target or not bundle.spec.is_encoder_decoder:
        return _answer(bundle, cached)
    return str(bundle.generate(cached.request["text"], max_new_tokens=cached.request["max_new"]))


@torch.inference_mode()
def _forward_seconds(bundle: Bundle, trace: Trace) -> float:
    """Seconds of one forward pass over these tokens without recording; the best of three."""
    inputs, options = trace.input.arguments(trace.answer.device)
    times = []
    for _ in range(3):
        began = time.perf_counter()
        bundle.model(*inputs, **options)
        times.append(time.perf_counter() - began)
    return min(times)


def _check_length(bundle: Bundle, request: TraceRequest) -> None:
    count = len(bundle.encode(request.text)) + (len(bundle.encode(request.target)) if request.target else 0)
    if count > MAX_TRACE_TOKENS:
        raise InputError(
            f"the text has {count:,} tokens; the studio shows up to {MAX_TRACE_TOKENS:,}: shorten it"
        )


def _check_index(what: str, number: int, count: int) -> int:
    if number >= count:
        raise InputError(f"there is no {what} {number}; there are {count}, from 0")
    return number


def _cached_overview(cached: CachedTrace, kind: AttentionKind) -> bytes:
    key = ("overview", kind)
    if key not in cached.parts:
        cached.parts[key] = _overview(cached.trace, kind)
    return cached.parts[key]


def _overview(trace: Trace, kind: AttentionKind) -> bytes:
    """Thumbnails and scores of all heads as safetensors; scores that are all NaN are left out."""
    layers, heads = trace.layers(kind), trace.heads(kind)
    size = thumbnail_size(layers * heads)
    thumbs = [thumbnails(trace.attention(kind, layer), size) for layer in range(layers)]
    scores = {f"score.{name}": x.float() for name, x in vars(head_scores(trace, kind)).items()}
    return to_safetensors(
        thumbs=torch.stack(thumbs), **{k: x for k, x in scores.items() if not x.isnan().all()}
    )


def _cell(trace: Trace, kind: AttentionKind, layer: int, head: int, q: int, k: int) -> dict[str, Any]:
    steps = trace.steps(kind, layer, head)
    q, k = _check_index("row", q, len(steps.q_QE)), _check_index("column", k, len(steps.k_KE) - steps.virtual)
    k += steps.virtual
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
