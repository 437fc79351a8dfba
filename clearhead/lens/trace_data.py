"""The data of a trace: the input, the record of the forward pass, and what is computed from both.

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
    """A trace without the methods that draw and save it; see `trace.Trace`."""

    def __init__(
        self,
        trace_input: TraceInput,
        record: ForwardRecord,
        info: ModelInfo,
        *,
        model: TransformerModel | None = None,
        tokenizer: Tokenizer | None = None,
        stored_lens: LogitLens | None = None,
    ) -> None:
        self.input, self.record, self.info = trace_input, record, info
        self.tokens: list[Token] = trace_input.tokens
        self.target_tokens: list[Token] = trace_input.target_tokens or []
        self.answer: Tensor = record.answer  # the output: logits (T, V), labels (C,), or hidden states
        self.tokenizer = tokenizer
        self._model = model
        self._stored_lens = stored_lens
        self.tree: Tree[Any] | None = None  # the beam search that generated this text

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks for the reader: words that are not in the vocabulary, weights that are not shown, layers
        that read pooled tokens."""
        unk = self.tokenizer.unk if self.tokenizer is not None else None
        read = [token for token in (*self.tokens, *self.target_tokens) if not token.special]
        unknown = [token.text.strip() for token in read if unk is not None and token.id == unk.id]
        notes = [f"{unknown_words(unknown, len(read))}; each is read as the same token"] if unknown else []
        summarised = [name for name, call in self.record.calls.items() if call.summaries is not None]
        if summarised:
            notes.append(
                f"self attention is shown for tokens; its weights on summaries of blocks of tokens are in "
                f"activation('{summarised[0]}.summary_pattern')"
            )
        if any(getattr(call.kernel, "sink", None) is not None for call in self.record.calls.values()):
            notes.append("weights of a row sum to less than one: the rest is that of the attention sink")
        if self.record.virtual:
            notes.append(
                "weights of a row sum to less than one: the rest is that of virtual tokens, "
                "trace.virtual_attention(kind, layer)"
            )
        if self.record.groups:
            what = "a token is shown with its group, one that pooling dropped with zeros"
            notes.append(f"layers {self._pooled_layers} read pooled tokens: {what}")
        return tuple(notes)

    @property
    def _pooled_layers(self) -> str:
        return ", ".join(address.split(".")[2] for address in self.record.groups)

    def is_pooled(self, kind: AttentionKind, layer: int) -> bool:
        """Whether the attention of this layer is between groups of tokens."""
        return self.address(kind, layer) in self.record.groups

    def require_every_token(self, what: str) -> None:
        """Raise a one-line error if some layer has no state of every token."""
        if self.record.groups:
            raise InputError(
                f"{what} needs every token in every layer; layers {self._pooled_layers} pool them"
            )

    @property
    def kinds(self) -> tuple[AttentionKind, ...]:
        """The kinds of attention of this model; the last one is the default of pictures."""
        return tuple(self.info.kinds)

    def layers(self, kind: AttentionKind = "self") -> int:
        """The number of layers with this kind of attention."""
        return len(self._addresses(kind))

    def heads(self, kind: AttentionKind = "self") -> int:
        """The number of heads of this kind of attention."""
        calls = [self.record.calls[name] for name in self._addresses(kind) if name in self.record.calls]
        return int(calls[0].q_BHQE.shape[1]) if calls else 0

    def attention(
        self, kind: AttentionKind | int = "self", layer: int | None = None, head: int | None = None
    ) -> Tensor:
        """Weights before dropout, (L, H, Q, K); L and H are dropped if a layer or head is given.

        `attention(3)` is layer 3 of self-attention, `attention(3, 7)` its head 7.
        """
        if isinstance(kind, int):
            if layer is not None and head is not None:
                raise InputError(f"attention({kind}, {layer}, {head}): write layer={kind}, head={layer}")
            return self.attention("self", kind, layer if head is None else head)
        if layer is None:
            return torch.stack([self.attention(kind, i, head) for i in range(self.layers(kind))])
        address = self.address(kind, layer)
        if head is None:
            return self.record.pattern(address)
        heads = int(self.call(kind, layer).q_BHQE.shape[1])
        number = _index("head", head, heads, f"layer {layer} of {kind} attention")
        return self.record.pattern(address, slice(number, number + 1))[0]

    def virtual_attention(self, kind: AttentionKind = "self", layer: int = 0) -> Tensor:
        """Weights of tokens on virtual tokens (prompt and prefix tuning), (H, Q, P)."""
        return self.record.virtual_pattern(self.address(kind, layer))

    def sides(self, kind: AttentionKind = "self") -> tuple[list[Token], list[Token]]:
        """The tokens of the rows (queries) and of the columns (keys)."""
        self._addresses(kind)
        rows = self.tokens if kind == "self" else self.target_tokens
        return rows, self.target_tokens if kind == "decoder" else self.tokens

    def side_of(self, kind: AttentionKind) -> str:
        """The side (tower, encoder, decoder) that has this kind of attention."""
        self._addresses(kind)
        return self.info.kinds[kind].split(".")[0]

    def labels(self, kind: AttentionKind = "self") -> tuple[list[str], list[str]]:
        """Labels of rows and columns. A row of cross-attention is labelled with the token it predicts."""
        rows, columns = self.sides(kind)
        if kind == "cross" and self.info.generates and self.answer.ndim == 2:
            rows = [*rows[1:], *of_ids([int(self.answer[-1].argmax())], self.tokenizer)]
        return [token.label for token in rows], [token.label for token in columns]

    def call(self, kind: AttentionKind, layer: int) -> RecordedCall:
        """The inputs of this layer's kernel: q, k, v, mask, bias and scale."""
        return self.record.call(self.address(kind, layer))

    def steps(self, kind: AttentionKind = "self", layer: int = 0, head: int = 0) -> Steps:
        """One head, step by step: q, k, v, scores, scaled, masked, weights, mix."""
        number = _index("head", head, self.heads(kind), f"layer {layer} of {kind} attention")
        if self.is_pooled(kind, layer):
            raise InputError(
                f"layer {layer} reads pooled tokens; steps are shown for layers that read every token"
            )
        virtual = self.record.virtual.get(self.address(kind, layer), (0, 0))
        return steps(self.call(kind, layer), number, *virtual)

    def hidden(self, layer: int | None = None, side: str | None = None) -> Tensor:
        """The residual stream after `layer` layers, (T, D); 0 is the embedding. None: all, (L + 1, T, D).

        Where tokens were pooled, every token has the state of its group.
        """
        side = side or self.head_side
        streams = self._streams(side)
        if layer is None:
            return torch.stack(streams)
        return streams[_index("hidden layer", layer, len(streams), f"the {side}")]

    def _streams(self, side: str | None = None) -> list[Tensor]:
        """The residual stream after every layer, the embedding first, without copies."""
        side = side or self.head_side
        names = [f"{side}.embed", *(f"{side}.blocks.{i}.out" for i in range(self.record.depth(side)))]
        if len(names) == 1:
            known = {name.split(".")[0] for name in self.record.streams}
            raise InputError(f"this model has no {side!r}; {nearest(side, known)}")
        return [self.record.streams[name] for name in names]

    @property
    def head_side(self) -> str:
        """The side whose last hidden states are the input of the head."""
        sides = [name.split(".")[0] for name in self.record.streams]
        return "decoder" if "decoder" in sides else sides[-1]

    def expert_layers(self, side: str | None = None) -> list[int]:
        """The layers that are a mixture of experts."""
        side = side or self.head_side
        return [i for i in range(self.record.depth(side)) if f"{side}.blocks.{i}.ff" in self.record.routing]

    def routing(self, layer: int | None = None, side: str | None = None) -> Tensor:
        """The weight of each expert for each token, (T, E): zero where it was not chosen, or had no room.

        None: all layers with experts, (L, T, E); `expert_layers` has their numbers.
        """
        side = side or self.head_side
        known = self.expert_layers(side)
        if not known:
            where = "this model" if not self.record.routing else f"the {side} of this model"
            raise InputError(f"{where} has no experts: all tokens pass through the same feed-forward layers")
        if layer is None:
            layers = [self.record.routing[f"{side}.blocks.{i}.ff"] for i in known]
            if len({x.shape for x in layers}) > 1:
                raise InputError("the layers have different numbers of experts; ask for one layer")
            return torch.stack(layers)
        number = _index("layer", layer, self.record.depth(side), f"the {side}")
        if number not in known:
            raise InputError(
                f"layer {number} has no experts; layers with experts: {', '.join(map(str, known))}"
            )
        return self.record.routing[f"{side}.blocks.{number}.ff"]

    def logit_lens(self, top: int = 5, positions: slice = EVERY) -> LogitLens:
        """Predictions after each layer: the model's last norm and head, applied to the residual stream.

        Only `positions` are computed.
        """
        self.require_every_token("the logit lens")
        if self._stored_lens is not None:
            return self._stored_lens if positions == EVERY else self._stored_lens.at(positions)
        model = self.needs_model("the logit lens")
        return logit_lens(model, self._streams(), self.tokenizer, top, positions)

    def logit_lens_or_none(self, top: int = 5) -> LogitLens | None:
        """The logit lens, or None if this model has none."""
        try:
            return self.logit_lens(top)
        except InputError:
            return None

    def activation(self, address: str) -> Tensor:
        """Any activation by its address (see `clearhead.nn.sites(model)`), without the batch dimension."""
        model, recorder = self.needs_model("an activation by address"), Recorder()
        record_forward(model, self.input, tap=recorder.tap(address))
        if not recorder:
            raise no_site(model, address)
        return next(iter(recorder.values()))[0]

    def __repr__(self) -> str:
        counts = ", ".join(f"{kind} {self.layers(kind)}x{self.heads(kind)}" for kind in self.kinds)
        return f"Trace({self.info.title}, {len(self.tokens)} tokens, {counts})"

    def needs_model(self, what: str) -> TransformerModel:
        """The model, or an error that `what` needs it."""
        if self._model is None:
            raise InputError(f"{what} needs the model, and this trace was opened from a file")
        return self._model

    def _addresses(self, kind: AttentionKind) -> list[str]:
        if kind not in self.info.kinds:
            known = ", ".join(self.info.kinds)
            raise InputError(f"this model has no {kind!r} attention; it has {known}")
        template = self.info.kinds[kind]
        return [template.format(i) for i in range(self.record.depth(template.split(".")[0]))]

    def address(self, kind: AttentionKind, layer: int) -> str:
        """The address of this attention for taps: `decoder.blocks.3.cross`."""
        addresses = self._addresses(kind)
        return addresses[_index("layer", layer, len(addresses), f"{kind} attention")]


def _index(what: str, number: int, count: int, where: str) -> int:
    """Check an index; negative ones count from the end."""
    if not -count <= number < count:
        raise InputError(f"there is no {what} {number} in {where}; it has {count}, from 0 to {count - 1}")
    return number % count
