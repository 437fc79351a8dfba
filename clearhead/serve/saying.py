"""Saying: a bundle, a text and decoding settings in; a run of the one decoding loop out."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, Field

from ..bundle import Bundle
from ..errors import InputError
from ..generate import Beam, Decoding, EndTokens, Greedy, Prompt, Sample, generate
from ..generate.filters import Filter, Forced, Repetition
from ..generate.shaping import Temperature, TopK, TopP
from ..generate.strategies import Strategy
from ..lens.tokens import Token, of_ids
from ..nn.model import PairModel
from .facts import generates

Id = Annotated[int, Field(ge=0, le=10_000_000)]


class Settings(BaseModel):
    """How to decode. `forced` are the first new tokens, chosen by hand; the rest is the model's."""

    model: str = Field(min_length=1, max_length=120)
    text: str = Field(min_length=1, max_length=100_000)
    strategy: Literal["greedy", "sample", "beam"] = "greedy"
    max_new: int = Field(default=64, ge=1, le=512)
    temperature: float = Field(default=1.0, gt=0, le=100)
    top_k: int = Field(default=0, ge=0, le=1_000_000)
    top_p: float = Field(default=1.0, gt=0, le=1)
    repetition: float = Field(default=1.0, gt=0, le=10)
    seed: int = Field(default=0, ge=0, le=2**31)
    beams: int = Field(default=4, ge=1, le=16)
    length_penalty: float = Field(default=1.0, ge=-5, le=5)
    forced: list[Id] = Field(default=[], max_length=512)


def say(bundle: Bundle, asked: Settings, *, record: bool = False) -> Decoding:
    if not generates(bundle):
        raise InputError("this model reads, it does not write; look at it on the Attention screen")
    vocab = _vocabulary(bundle)
    if any(i >= vocab for i in asked.forced):
        raise InputError(f"a forced token is {max(asked.forced)}; this model knows 0 to {vocab - 1}")
    return generate(
        bundle.model,
        prompt(bundle, asked.text),
        limit=asked.max_new,
        strategy=_strategy(asked),
        filters=_filters(asked),
        stops=_stops(bundle),
        alternatives=0 if asked.strategy == "beam" else 10,
        record=record,
    )


def tokens(bundle: Bundle, ids: list[int]) -> list[Token]:
    return of_ids(ids, bundle.tokenizer)


def _strategy(asked: Settings) -> Strategy:
    if asked.strategy == "beam":
        return Beam(asked.beams, length_penalty=asked.length_penalty, count=asked.beams)
    return Sample(asked.seed) if asked.strategy == "sample" else Greedy()


def _filters(asked: Settings) -> list[Filter]:
    made: list[Filter] = [Forced((token,), at) for at, token in enumerate(asked.forced)]
    if asked.repetition != 1.0:
        made.append(Repetition(asked.repetition))
    if asked.strategy == "sample":
        made.append(Temperature(asked.temperature))
        made += [TopK(asked.top_k)] if asked.top_k else []
        made += [TopP(asked.top_p)] if asked.top_p < 1 else []
    return made


def _stops(bundle: Bundle) -> tuple[EndTokens, ...]:
    end = _named(bundle, "eos_token_id")
    ids = end if isinstance(end, list) else [] if end is None else [end]
    return (EndTokens(tuple(int(i) for i in ids)),) if ids else ()


def prompt(bundle: Bundle, text: str) -> Prompt:
    ids = bundle.encode(text)
    if not isinstance(bundle.model, PairModel):
        return Prompt(torch.tensor([ids]))
    end, start = _named(bundle, "eos_token_id"), _named(bundle, "decoder_start_token_id")
    start = _named(bundle, "bos_token_id") if start is None else start
    if start is None:
        raise InputError("the config names no decoder_start_token_id; the decoder cannot begin")
    last = end[0] if isinstance(end, list) else end
    ids = ids if last is None or (ids and ids[-1] == last) else [*ids, int(last)]
    return Prompt(torch.tensor([ids]), None, torch.tensor([[int(start)]]))


def _named(bundle: Bundle, key: str) -> Any:
    said = bundle.generation.get(key)
    return bundle.config.get(key) if said is None else said


def _vocabulary(bundle: Bundle) -> int:
    head = getattr(bundle.spec, "head", None)
    return int(getattr(head, "vocab", 0))
