"""Tracing: a text, and perhaps its answer, in; a trace of the bundle's model over it out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..errors import InputError
from ..generate import EndTokens, Prompt
from ..generate import generate as said_by
from ..lens.tokens import Token, of_encoding, of_ids
from ..lens.trace import Fed, Trace, trace_ids
from ..nn.model import PairModel, SingleModel

if TYPE_CHECKING:
    from .bundle import Bundle

Text = str | Sequence[int] | Tensor


def trace(
    bundle: Bundle,
    text: Text,
    target: Text | None = None,
    *,
    generate: bool = False,
    beams: int | None = None,
    max_new_tokens: int = 32,
) -> Trace:
    """An encoder-decoder without a target is traced over its own answer; an encoder reads a pair as one."""
    if beams is not None:
        raise InputError("beams are not there yet")
    model, tokenizer = bundle.model, bundle.tokenizer
    fed = _pair(bundle, text, target, max_new_tokens) if isinstance(model, PairModel) else None
    if fed is None:
        assert isinstance(model, SingleModel)
        fed = _single(bundle, text, target, max_new_tokens if generate else 0)
    title = bundle.family.title if bundle.family else type(bundle.spec).__name__
    return trace_ids(model, fed, tokenizer=tokenizer, title=title)


def _single(bundle: Bundle, text: Text, target: Text | None, new: int) -> Fed:
    model = bundle.model
    assert isinstance(model, SingleModel)
    causal = model.spec.tower.causal
    if new and not causal:
        raise InputError("only a model that writes (causal, or encoder-decoder) can generate")
    if isinstance(text, str) and isinstance(target, str) and not causal:
        both = bundle._tokenizer("a text").encode(text, target)
        types = both.types if getattr(model.spec.tower.embed, "types", 0) else None
        return Fed(both.ids, of_encoding(both), types)
    ids, tokens = _read(bundle, text)
    prompt = max(len(ids), 1) if new or target is not None else 1
    if target is not None:
        more, words = _read(bundle, target, specials=False)
        ids, tokens = [*ids, *more], [*tokens, *words]
    if new:
        said = _continued(bundle, ids, new)
        ids, tokens = [*ids, *said], [*tokens, *of_ids([*ids, *said], bundle.tokenizer)[len(ids) :]]
    return Fed(ids, tokens, prompt=prompt)


def _pair(bundle: Bundle, text: Text, target: Text | None, new: int) -> Fed:
    """Texts are framed as the checkpoint says; ids are taken as they are."""
    ids, tokens = _read(bundle, text)
    if target is not None and not isinstance(target, str):
        fed, words = _read(bundle, target)
        return Fed(ids, tokens, None, fed, words)
    start, end = _frame(bundle)
    if isinstance(text, str) and end is not None and (not ids or ids[-1] != end):
        ids, tokens = [*ids, end], [*tokens, *of_ids([end], bundle.tokenizer)]
    if target is None:
        said = _answered(bundle, ids, start, end, new)
        words = of_ids(said, bundle.tokenizer)
    else:
        said, words = _read(bundle, target)
        if end is not None and said and said[-1] == end:
            said, words = said[:-1], words[:-1]
    return Fed(ids, tokens, None, [start, *said], [*of_ids([start], bundle.tokenizer), *words])


def _answered(bundle: Bundle, ids: list[int], start: int, end: int | None, new: int) -> list[int]:
    model = bundle.model
    assert isinstance(model, PairModel)
    source = torch.tensor([ids], device=next(model.parameters()).device)
    begun, stops = torch.tensor([[start]], device=source.device), () if end is None else (EndTokens((end,)),)
    run = said_by(model, Prompt(source, torch.ones_like(source), begun), limit=new, stops=stops)
    return run.finish()[0][0].said


def _read(bundle: Bundle, text: Text, *, specials: bool = True) -> tuple[list[int], list[Token]]:
    if isinstance(text, str):
        encoding = bundle._tokenizer("a text").encode(text, specials=specials)
        return list(encoding.ids), of_encoding(encoding)
    ids = [int(i) for i in (text.flatten().tolist() if isinstance(text, Tensor) else text)]
    return ids, of_ids(ids, bundle.tokenizer)


def _frame(bundle: Bundle) -> tuple[int, int | None]:
    """The token a decoder starts with, and the one a text ends with."""
    said = {**bundle.config, **{k: v for k, v in bundle.generation.items() if v is not None}}
    start = said.get("decoder_start_token_id", said.get("bos_token_id"))
    if start is None:
        raise InputError("the config names no decoder_start_token_id: pass ids for both text and target")
    end = said.get("eos_token_id")
    return int(start), int(end[0] if isinstance(end, list) else end) if end is not None else None


@torch.no_grad()
def _continued(bundle: Bundle, ids: list[int], new: int) -> list[int]:
    """The likeliest token, again and again."""
    model = bundle.model
    assert isinstance(model, SingleModel)
    end = bundle.config.get("eos_token_id")
    device = next(model.parameters()).device
    cache, fed, said = model.cache(), torch.tensor([ids], device=device), []
    for _ in range(new):
        token = int(model(fed, cache=cache)[0, -1].argmax())
        said.append(token)
        if token == end:
            break
        fed = torch.tensor([[token]], device=device)
    return said
