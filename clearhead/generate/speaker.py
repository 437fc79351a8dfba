"""A speaker: a model in the middle of a run. New ids in, logits of the next token out; the rest it remembers.

One face for both kinds of model: a SingleModel hears a prompt and goes on with it; a PairModel hears a
source once, and begins with a start token.
Shape suffixes: B requests, R rows, T tokens, V vocabulary, D width.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from ..errors import InputError
from ..nn.cache import Cache, identity
from ..nn.context import States
from ..nn.model import PairModel, SingleModel
from ..nn.norm import widen
from .past import Past, past


@dataclass(frozen=True)
class Prompt:
    """What a run begins with. `mask_BT` flags real tokens; padding may stand anywhere."""

    ids_BT: Tensor
    mask_BT: Tensor | None = None
    start_BT: Tensor | None = (
        None  # encoder-decoder: what the decoder has said already, a start token at least
    )


class Speaker:
    """What a strategy asks of a model. Rows may be kept, repeated and reordered between two calls."""

    states_RTD: Tensor  # the last hidden states of what was said last
    _past: Past

    def __init__(self, begun_RT: Tensor, real_RT: Tensor) -> None:
        self.begun_RT = begun_RT  # what every row begins with, padding on the left
        self.real_RT = real_RT  # which of these are real
        self._foretold_RV: Tensor | None = None

    def hear(self) -> Tensor:
        """The beginning: logits (B, V) of the first new token."""
        return self.say(self.begun_RT, self.real_RT)

    def say(self, new_RT: Tensor, real_RT: Tensor | None = None) -> Tensor:
        """Logits (R, V) of the token after these."""
        if self._foretold_RV is not None:
            logits_RV, self._foretold_RV = self._foretold_RV, None
            return logits_RV
        self.states_RTD = self._run(new_RT, real_RT)
        return self.read(1)[:, 0]

    def foretell(self, logits_RV: Tensor) -> None:
        """The next token of every row has been said on trial and stays: `say` will only give what it gave."""
        self._foretold_RV = logits_RV

    def read(self, count: int) -> Tensor:
        """Logits (R, count, V) at the last positions of what was said last."""
        raise NotImplementedError

    def keep(self, rows_R: Tensor, each: int = 1) -> None:
        """Go on with these rows, in this order; `each` of them, side by side, are of one source."""
        if self._foretold_RV is not None:
            self._foretold_RV, self.states_RTD = self._foretold_RV[rows_R], self.states_RTD[rows_R]
        self._keep(rows_R, each)

    def forget(self, count: int) -> None:
        """Take back the last `count` tokens."""
        self._past.forget(count)

    def _keep(self, rows_R: Tensor, each: int) -> None:
        raise NotImplementedError

    def follow(self, search: Chooser) -> None:
        """Told once, before anything is said: who will choose. Only a speaker that guesses cares."""

    def _run(self, new_RT: Tensor, real_RT: Tensor | None) -> Tensor:
        raise NotImplementedError


class Chooser(Protocol):
    """What a guessing speaker asks of a strategy in the middle of its run."""

    def guess(self, logits_RV: Tensor) -> Tensor:
        """The tokens it would choose; they count as said until they are taken back."""

    def take_back(self, count: int) -> None: ...

    def left(self) -> int:
        """How many tokens may still be said."""


def speaker(model: SingleModel | PairModel, prompt: Prompt, room: int) -> Speaker:
    """A speaker at the beginning of a run of at most `room` new tokens."""
    if isinstance(model, PairModel):
        return _PairSpeaker(model, prompt, room)
    if prompt.start_BT is not None:
        raise InputError("this model has no decoder of its own; put everything it should go on from in ids")
    return _SingleSpeaker(model, prompt, room)


class _SingleSpeaker(Speaker):
    def __init__(self, model: SingleModel, prompt: Prompt, room: int) -> None:
        super().__init__(*left_padded(prompt.ids_BT, prompt.mask_BT))
        self._model, self._past = model, past(model, model.tower, self.begun_RT.shape[1] + room)

    def read(self, count: int) -> Tensor:
        return widen(self._model.read(States(self.states_RTD[:, -count:])))

    def _keep(self, rows_R: Tensor, each: int) -> None:
        self._past.keep(rows_R)

    def _run(self, new_RT: Tensor, real_RT: Tensor | None) -> Tensor:
        return self._past.hear(self._model.hidden, new_RT, real_RT)


class _PairSpeaker(Speaker):
    def __init__(self, model: PairModel, prompt: Prompt, room: int) -> None:
        if prompt.start_BT is None:
            raise InputError("an encoder-decoder needs a start token for its decoder")
        super().__init__(*left_padded(prompt.start_BT, None))
        self._model, self._past = model, past(model, model.decoder, self.begun_RT.shape[1] + room)
        self._memory = model.encode(*left_padded(prompt.ids_BT, prompt.mask_BT))

    def read(self, count: int) -> Tensor:
        return widen(self._model.read(States(self.states_RTD[:, -count:])))

    def _keep(self, rows_R: Tensor, each: int) -> None:
        sources = rows_R[::each] // self._memory.each
        self._past.keep(rows_R, sources)
        x, segment = self._memory.x_BTD, self._memory.segment_BT
        if not identity(sources, len(x)):
            x, segment = x[sources], None if segment is None else segment[sources]
        self._memory = replace(self._memory, x_BTD=x, segment_BT=segment, each=each)

    def _run(self, new_RT: Tensor, real_RT: Tensor | None) -> Tensor:
        return self._past.hear(self._decode, new_RT, real_RT)

    def _decode(self, ids_RT: Tensor, mask: Tensor | None, *, cache: Cache | None) -> Tensor:
        return self._model.decode(ids_RT, self._memory, mask, cache=cache).x_BTD


def left_padded(ids_BT: Tensor, mask_BT: Tensor | None) -> tuple[Tensor, Tensor]:
    """All padding on the left, so that new tokens follow real ones; columns of padding alone are left out.

    Positions count real tokens only, so moving the padding changes no number.
    """
    if ids_BT.ndim != 2 or 0 in ids_BT.shape:
        raise InputError(f"ids must be (batch, length) with at least one token; given {tuple(ids_BT.shape)}")
    if mask_BT is None:
        return ids_BT, torch.ones_like(ids_BT, dtype=torch.bool)
    if mask_BT.shape != ids_BT.shape:
        raise InputError(
            f"the mask is {tuple(mask_BT.shape)}, the ids {tuple(ids_BT.shape)}; expected the same"
        )
    real = mask_BT.bool()
    if not bool(real.any(1).all()):
        raise InputError("a row of the prompt has no real token; every mask row needs a 1")
    order = real.long().argsort(dim=1, stable=True)
    first = ids_BT.shape[1] - int(real.sum(1).max())
    return ids_BT.gather(1, order)[:, first:], real.gather(1, order)[:, first:]
