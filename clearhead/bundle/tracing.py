"""Tracing: a text, and perhaps its answer, in; a trace of the bundle's model over it out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..errors import InputError
from ..generate import Beam, EndTokens, Greedy, Prompt, generate
from ..generate.records import Hypothesis, Node
from ..lens.tokens import Token, of_encoding, of_ids
from ..lens.trace import Fed, Trace, trace_ids
from ..lens.tree import Branch, Tree
from ..nn.model import PairModel, SingleModel
from ..nn.positions import Learned

if TYPE_CHECKING:
    from .bundle import Bundle

Text = str | Sequence[int] | Tensor


def trace(
    bundle: Bundle,
    text: Text,
    target: Text | None = None,
    *,
    new: int = 0,
    beams: int | None = None,
    limit: int = 32,
) -> Trace:
    """One pass over a text and its answer; with `new` or `beams` the model says the answer itself."""
    model = bundle.model
    if target is not None and (new or beams):
        raise InputError("either a target is given, or the model says one (generate, beams); not both")
    made = _pair(bundle, text, target) if isinstance(model, PairModel) else _single(bundle, text, target)
    writes = isinstance(model, PairModel) or model.spec.tower.causal
    if (new or beams) and not writes:
        raise InputError("this model reads and does not write; only a decoder can generate")
    if not (new or beams) and not (isinstance(model, PairModel) and target is None):
        return _traced(bundle, made)
    answers, nodes = _said(bundle, made, limit, beams)
    best = _traced(bundle, _with(bundle, made, answers[0]))
    if beams:
        best.tree = _tree(bundle, made, answers, nodes)
    return best


def _traced(bundle: Bundle, fed: Fed) -> Trace:
    for ids, side in ((fed.ids, "tower"), (fed.target_ids, "decoder")):
        _check_length(bundle, len(ids or ()), side)
    title = bundle.family.title if bundle.family else type(bundle.spec).__name__
    return trace_ids(bundle.model, fed, tokenizer=bundle.tokenizer, title=title)


def _check_length(bundle: Bundle, length: int, side: str) -> None:
    """Refused before anything is computed, with both numbers."""
    model = bundle.model
    if isinstance(model, PairModel):
        tower = model.spec.decoder if side == "decoder" else model.spec.encoder
    else:
        tower = model.spec.tower
    if isinstance(tower.positions, Learned) and length > tower.positions.length:
        raise InputError(
            f"the text is {length} tokens, this model reads at most {tower.positions.length}; shorten it"
        )


def _single(bundle: Bundle, text: Text, target: Text | None) -> Fed:
    model = bundle.model
    assert isinstance(model, SingleModel)
    if isinstance(text, str) and isinstance(target, str) and not model.spec.tower.causal:
        both = bundle._tokenizer("a text").encode(text, target)
        types = both.types if getattr(model.spec.tower.embed, "types", 0) else None
        return Fed(both.ids, of_encoding(both), types)
    ids, tokens = _read(bundle, text)
    if target is None:
        return Fed(ids, tokens)
    more, words = _read(bundle, target, specials=False)
    return Fed([*ids, *more], [*tokens, *words], prompt=len(ids))


def _pair(bundle: Bundle, text: Text, target: Text | None) -> Fed:
    """Texts are framed as the checkpoint says; ids are taken as they are."""
    ids, tokens = _read(bundle, text)
    if target is not None and not isinstance(target, str):
        fed, words = _read(bundle, target)
        return Fed(ids, tokens, None, fed, words)
    start, ends = _frame(bundle)
    if isinstance(text, str) and ends and (not ids or ids[-1] not in ends):
        ids, tokens = [*ids, ends[0]], [*tokens, *of_ids(ends[:1], bundle.tokenizer)]
    said, words = _read(bundle, target) if target is not None else ([], [])
    if said and said[-1] in ends:
        said, words = said[:-1], words[:-1]
    return Fed(ids, tokens, None, [start, *said], [*of_ids([start], bundle.tokenizer), *words])


def _read(bundle: Bundle, text: Text, *, specials: bool = True) -> tuple[list[int], list[Token]]:
    if isinstance(text, str):
        encoding = bundle._tokenizer("a text").encode(text, specials=specials)
        ids, tokens = list(encoding.ids), of_encoding(encoding)
    else:
        ids = [int(i) for i in (text.flatten().tolist() if isinstance(text, Tensor) else text)]
        tokens = of_ids(ids, bundle.tokenizer)
    if not ids:
        raise InputError("the text is empty; give at least one token")
    return ids, tokens


def _frame(bundle: Bundle) -> tuple[int, list[int]]:
    """The token a decoder starts with, and those a text ends with."""
    said = {**bundle.config, **{key: value for key, value in bundle.generation.items() if value is not None}}
    start = said.get("decoder_start_token_id")
    start = said.get("bos_token_id") if start is None else start
    if start is None:
        raise InputError("the config names no decoder_start_token_id: pass ids for both text and target")
    end = said.get("eos_token_id")
    return int(start), [] if end is None else [int(i) for i in (end if isinstance(end, list) else [end])]


def _said(bundle: Bundle, fed: Fed, limit: int, beams: int | None) -> tuple[list[Hypothesis], list[Node]]:
    """What the model says by itself, best first, and every hypothesis that beam search looked at."""
    device = next(bundle.model.parameters()).device
    start = None if fed.target_ids is None else torch.tensor([list(fed.target_ids)], device=device)
    ends = _ends(bundle)
    run = generate(
        bundle.model,
        Prompt(torch.tensor([list(fed.ids)], device=device), start_BT=start),
        limit=limit,
        strategy=Beam(beams, count=beams) if beams else Greedy(),
        stops=(EndTokens(tuple(ends)),) if ends else (),
        record=beams is not None,
    )
    nodes = [node for step in run for node in step.nodes]
    return run.answers[0], nodes


def _ends(bundle: Bundle) -> list[int]:
    end = bundle.generation.get("eos_token_id", bundle.config.get("eos_token_id"))
    return [] if end is None else [int(i) for i in (end if isinstance(end, list) else [end])]


def _with(bundle: Bundle, fed: Fed, answer: Hypothesis) -> Fed:
    """What was fed and what was said after it."""
    if fed.target_ids is not None:
        whole = [*fed.target_ids, *answer.said]
        tokens = of_ids(whole, bundle.tokenizer)
        return Fed(fed.ids, fed.tokens, None, whole, tokens, prompt=len(fed.target_ids))
    whole = [*fed.ids, *answer.said]
    tokens = [*fed.tokens, *of_ids(whole, bundle.tokenizer)[len(fed.ids) :]]
    return Fed(whole, tokens, prompt=len(fed.ids))


def _tree(bundle: Bundle, fed: Fed, answers: list[Hypothesis], nodes: list[Node]) -> Tree:
    branches = [
        Branch(n.id, n.parent, n.step, of_ids([n.token], bundle.tokenizer)[0], n.logprob, n.score, n.fate)
        for n in nodes
    ]

    def retrace(said: list[int]) -> Trace:
        return _traced(bundle, _with(bundle, fed, Hypothesis(said, [], 0.0, "length")))

    scored = [(answer.said, answer.score) for answer in answers]
    return Tree(branches, scored, retrace)
