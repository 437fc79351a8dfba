"""Generate: streamed tokens with their alternatives, and the tree of a beam search."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from typing import Any

from fastapi import APIRouter
from starlette.responses import StreamingResponse

from ...bundle import Bundle
from ...errors import ClearheadError, one_line
from ...generate import Decoding, Step
from ...lens import Token, of_ids
from ..generation import GenerateRequest, start_decoding
from ..studio import Studio


def routes(studio: Studio) -> APIRouter:
    router, queue = APIRouter(prefix="/api", tags=["generate"]), studio.queue

    @router.post("/generate")
    def stream(request: GenerateRequest) -> StreamingResponse:
        """Server-sent events: `token` for each new token, then `done`."""
        with queue.slot():
            bundle = studio.registry.bundle(request.model)
            run = start_decoding(bundle, request)
        return StreamingResponse(_events(studio, bundle, run, request), media_type="text/event-stream")

    @router.post("/beams")
    def beams(request: GenerateRequest) -> dict[str, Any]:
        """Every hypothesis, including pruned ones, and the finished ones, best first."""
        with queue.slot():
            bundle = studio.registry.bundle(request.model)
            began = time.perf_counter()
            request = request.model_copy(update={"strategy": "beam"})
            run = start_decoding(bundle, request, record=True)
            nodes = [node for step in run for node in step.nodes]
            seconds = time.perf_counter() - began
        names = {i: labelled_tokens(bundle, [i])[0].label for i in {node.token for node in nodes}}
        return {
            "nodes": [{**node._asdict(), "label": names[node.token]} for node in nodes],
            "answers": [
                {"ids": h.text_ids, "text": _text(bundle, h.text_ids), "score": h.score, "reason": h.reason}
                for h in run.answers[0]
            ],
            "seconds": seconds,
        }

    return router


def _events(studio: Studio, bundle: Bundle, run: Decoding, request: GenerateRequest) -> Iterator[str]:
    """Each token takes a slot of its own, so that other requests can run in between, and a disconnected
    client does not hold one."""
    began, ids, steps = time.perf_counter(), [], iter(run)
    try:
        while True:
            with studio.queue.slot():
                step = next(steps, None)
            if step is None:
                break
            ids.append(int(step.tokens_R[0]))
            yield _event("token", _token_event(bundle, step, ids, forced=len(ids) <= len(request.forced)))
    except ClearheadError as error:
        yield _event("error", {"error": one_line(str(error))})
        return
    seconds = time.perf_counter() - began
    answer = run.answers[0][0]
    done = {"ids": answer.ids, "text": _text(bundle, answer.text_ids), "reason": answer.reason}
    yield _event(
        "done", {**done, "seconds": seconds, "tokens": [t._asdict() for t in labelled_tokens(bundle, ids)]}
    )


def _token_event(bundle: Bundle, step: Step, ids: list[int], *, forced: bool) -> dict[str, Any]:
    """A new token with its probability and the most likely alternatives."""
    assert step.alternatives is not None
    others = zip(step.alternatives[0][0].tolist(), step.alternatives[1][0].tolist(), strict=True)
    return {
        **labelled_tokens(bundle, ids)[-1]._asdict(),
        "p": math.exp(float(step.logprobs_R[0])),
        "forced": forced,
        "others": [
            {"id": i, "text": labelled_tokens(bundle, [i])[0].label, "p": math.exp(p)} for i, p in others
        ],
    }


def labelled_tokens(bundle: Bundle, ids: list[int]) -> list[Token]:
    return of_ids(ids, bundle.tokenizer)


def _text(bundle: Bundle, ids: list[int]) -> str:
    return bundle.tokenizer.decode(ids) if bundle.tokenizer else " ".join(map(str, ids))


def _event(name: str, data: Any) -> str:
    return f"event: {name}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n"
