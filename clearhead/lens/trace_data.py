"""What a trace holds: the input, the record of the forward pass, and what can be computed from both.

Shape suffixes: L layers, H heads, Q queries, K keys, T tokens, D width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import InputError, nearest
from ..nn import Recorder, TransformerModel
from ..nn.kernels import RecordedCall
from ..text import Tokenizer, unknown_words
from .ablate import no_site
from .logit_lens import EVERY, LogitLens, logit_lens
from .record import AttentionKind, ForwardRecord, ModelInfo, TraceInput, record_forward
from .steps import Steps, steps
from .tokens import Token, of_ids
from .tree import Tree


class TraceData:
    """A trace without the ways to show and save it; see `trace.Trace`."""

    def __init__(
        self,
        fed: TraceInput,
        seen: ForwardRecord,
        about: ModelInfo,
        *,
        model: TransformerModel | None = None,
        tokenizer: Tokenizer | None = None,
        guesses: LogitLens | None = None,
    ) -> None:
        self.input, self.record, self.info = fed, seen, about
        self.tokens: list[Token] = fed.tokens
        self.target_tokens: list[Token] = fed.target_tokens or []
        self.answer: Tensor = seen.answer  # what the model said: logits (T, V), labels (C,), or states
        self.tokenizer = tokenizer
        self._model = model
        self._guesses = guesses
        self.tree: Tree[Any] | None = None  # of the beam search that generated this text

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know about the text: which tokens the vocabulary lacks."""
        unk = self.tokenizer.unk if self.tokenizer is not None else None
        read = [token for token in (*self.tokens, *self.target_tokens) if not token.special]
        unknown = [token.text.strip() for token in read if unk is not None and token.id == unk.id]
        return (f"{unknown_words(unknown, len(read))}; each is read as the same token",) if unknown else ()

    @property
    def kinds(self) -> tuple[AttentionKind, ...]:
        """The kinds of attention there are, the most telling one last."""
        return tuple(self.info.kinds)

    def layers(self, kind: AttentionKind = "self") -> int:
        """How many layers have this kind of attention."""
        return len(self._addresses(kind))

    def heads(self, kind: AttentionKind = "self") -> int:
        """How many heads each of them has."""
        there = [self.record.calls[name] for name in self._addresses(kind) if name in self.record.calls]
        return int(there[0].q_BHQE.shape[1]) if there else 0

    def attention(
        self, kind: AttentionKind = "self", layer: int | None = None, head: int | None = None
    ) -> Tensor:
        """Weights before dropout, rows that sum to one: (L, H, Q, K), without what was chosen."""
        if layer is None:
            return torch.stack([self.attention(kind, i, head) for i in range(self.layers(kind))])
        address = self.address(kind, layer)
        if head is None:
            return self.record.pattern(address)
        heads = int(self.call(kind, layer).q_BHQE.shape[1])
        number = _chosen("head", head, heads, f"layer {layer} of {kind} attention")
        return self.record.pattern(address, slice(number, number + 1))[0]

    def sides(self, kind: AttentionKind = "self") -> tuple[list[Token], list[Token]]:
        """The tokens of the rows (who looks) and of the columns (at whom)."""
        self._addresses(kind)
        rows = self.tokens if kind == "self" else self.target_tokens
        return rows, self.target_tokens if kind == "decoder" else self.tokens

    def labels(self, kind: AttentionKind = "self") -> tuple[list[str], list[str]]:
        """The words for rows and columns. A row of cross-attention is named by what it made the model say."""
        rows, columns = self.sides(kind)
        if kind == "cross" and self.info.generates and self.answer.ndim == 2:
            rows = [*rows[1:], *of_ids([int(self.answer[-1].argmax())], self.tokenizer)]
        return [token.label for token in rows], [token.label for token in columns]

    def call(self, kind: AttentionKind, layer: int) -> RecordedCall:
        """What the kernel of this layer was given: q, k, v, who may look at whom, bias, scale."""
        return self.record.call(self.address(kind, layer))

    def steps(self, kind: AttentionKind = "self", layer: int = 0, head: int = 0) -> Steps:
        """One head, step by step: q, k, v, scores, scaled, masked, weights, mix."""
        number = _chosen("head", head, self.heads(kind), f"layer {layer} of {kind} attention")
        return steps(self.call(kind, layer), number)

    def hidden(self, layer: int | None = None, side: str | None = None) -> Tensor:
        """The stream after so many layers, (T, D): 0 is the embedding. None gives all, (L + 1, T, D)."""
        side = side or self.reads
        streams = self._streams(side)
        if layer is None:
            return torch.stack(streams)
        return streams[_chosen("hidden layer", layer, len(streams), f"the {side}")]

    def _streams(self, side: str | None = None) -> list[Tensor]:
        """The stream after every layer, the embedding first; nothing is copied."""
        side = side or self.reads
        names = [f"{side}.embed", *(f"{side}.blocks.{i}.out" for i in range(self.record.depth(side)))]
        if len(names) == 1:
            known = {name.split(".")[0] for name in self.record.streams}
            raise InputError(f"there is no {side!r} here; {nearest(side, known)}")
        return [self.record.streams[name] for name in names]

    @property
    def reads(self) -> str:
        """The side whose last states the head reads."""
        return "decoder" if "decoder" in self.info.kinds else next(iter(self.record.streams)).split(".")[0]

    def logit_lens(self, top: int = 5, positions: slice = EVERY) -> LogitLens:
        """What the model would have answered after each layer: its own last norm and head read the stream.

        `positions` are the tokens it is asked for; the others cost nothing.
        """
        if self._guesses is not None:
            return self._guesses if positions == EVERY else self._guesses.at(positions)
        model = self.needs_model("the logit lens")
        return logit_lens(model, self._streams(), self.tokenizer, top, positions)

    def guesses(self, top: int = 5) -> LogitLens | None:
        """The logit lens, where there is one."""
        try:
            return self.logit_lens(top)
        except InputError:
            return None

    def activation(self, address: str) -> Tensor:
        """Any tensor inside, by its address (`clearhead.nn.sites(model)` lists them), the batch taken off."""
        model, seen = self.needs_model("an activation by address"), Recorder()
        record_forward(model, self.input, tap=seen.tap(address))
        if not seen:
            raise no_site(model, address)
        return next(iter(seen.values()))[0]

    def __repr__(self) -> str:
        counts = ", ".join(f"{kind} {self.layers(kind)}x{self.heads(kind)}" for kind in self.kinds)
        return f"Trace({self.info.title}, {len(self.tokens)} tokens, {counts})"

    def needs_model(self, what: str) -> TransformerModel:
        """The model, for what cannot be had without it."""
        if self._model is None:
            raise InputError(f"{what} needs the model, and this trace was opened from a file")
        return self._model

    def _addresses(self, kind: AttentionKind) -> list[str]:
        if kind not in self.info.kinds:
            there = ", ".join(self.info.kinds)
            raise InputError(f"this model has no {kind!r} attention; it has {there}")
        where = self.info.kinds[kind]
        return [where.format(i) for i in range(self.record.depth(where.split(".")[0]))]

    def address(self, kind: AttentionKind, layer: int) -> str:
        """Where taps find this attention: `decoder.blocks.3.cross`."""
        there = self._addresses(kind)
        return there[_chosen("layer", layer, len(there), f"{kind} attention")]


def _chosen(what: str, number: int, count: int, where: str) -> int:
    if not -count <= number < count:
        raise InputError(f"there is no {what} {number} in {where}; it has {count}, from 0 to {count - 1}")
    return number % count
