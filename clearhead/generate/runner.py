"""The decoder runner: ids of new tokens in, logits of the next token out. It owns the KV cache.

One class for both kinds of model: a single stack reads the prompt and continues it; an encoder-decoder
encodes the source once and starts from the decoder's start token. Strategies use a `Runner`, never a model:

    logits_RV = runner.prefill()                  # the prompt
    runner.reorder(rows_R)                        # beam search: which rows continue
    logits_RV = runner.step(tokens_R1)            # one more token per row

Shape suffixes: B requests, R rows, T tokens, V vocabulary, D width.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from ..engine import drop_stale_products, preparation
from ..errors import InputError
from ..nn import Cache, Kernel, States, TransformerModel, is_identity
from ..nn.norm import widen
from .replay import StepReplayer, is_replayable, replay_enabled


@dataclass(frozen=True)
class Prompt:
    """The input of a run. `mask_BT` is 1 for real tokens; padding may stand on either side."""

    ids_BT: Tensor
    mask_BT: Tensor | None = None
    start_BT: Tensor | None = None  # encoder-decoder: the decoder's first ids, at least its start token

    def to(self, device: torch.device) -> Prompt:
        """The same prompt on a device."""
        parts = (self.ids_BT, self.mask_BT, self.start_BT)
        return Prompt(*(None if part is None else part.to(device) for part in parts))  # type: ignore[arg-type]


class Proposer(Protocol):
    """What speculative decoding asks of the running search."""

    def propose(self, logits_RV: Tensor) -> Tensor:
        """The tokens it would choose; they count as generated until they are rolled back."""

    def rollback(self, count: int) -> None: ...

    def remaining(self) -> int:
        """How many tokens may still be generated."""


class Runner:
    """What a strategy needs from a model. Rows may be dropped, repeated and reordered between two steps."""

    states_RTD: Tensor  # the last hidden states of the tokens of the last step

    def __init__(self, prompt_RT: Tensor, real_RT: Tensor) -> None:
        self.prompt_RT = prompt_RT  # what every row starts with, padded on the left
        self.real_RT = real_RT  # which of these ids are not padding

    def prefill(self) -> Tensor:
        """Run the prompt: logits (B, V) of the first new token."""
        raise NotImplementedError

    def step(self, new_RT: Tensor) -> Tensor:
        """Logits (R, V) of the token after these."""
        raise NotImplementedError

    def reorder(self, rows_R: Tensor, rows_per_source: int = 1) -> None:
        """Continue with these rows, in this order; `rows_per_source` adjacent rows share one source."""
        raise NotImplementedError

    def rollback(self, count: int) -> None:
        """Drop the last `count` tokens."""
        raise NotImplementedError

    def set_next_logits(self, logits_RV: Tensor) -> None:
        """The next token of every row is in the cache already: the next `step` only returns these logits."""
        raise NotImplementedError

    def attach(self, search: Proposer) -> None:
        """Called once after `prefill`. Speculative decoding needs to know which search will choose."""


class DecoderRunner(Runner):
    """Runs a model step by step, for at most `max_new_tokens` new tokens.

    With `replay` (the default) decode steps are captured and replayed where that is possible, which skips the
    model's Python code. `replay=False` or the environment variable CLEARHEAD_REPLAY=0 runs it every time.
    """

    def __init__(
        self, model: TransformerModel, prompt: Prompt, max_new_tokens: int, *, replay: bool = True
    ) -> None:
        self._model = model
        drop_stale_products(model)
        prompt = prompt.to(next(model.parameters()).device)
        self._encoder_output: States | None = None
        if model.spec.is_encoder_decoder:
            if prompt.start_BT is None:
                raise InputError("an encoder-decoder needs a start token for its decoder")
            super().__init__(*left_padded(prompt.start_BT, None))
            self._encoder_output = model.encode(*left_padded(prompt.ids_BT, prompt.mask_BT))
        else:
            if prompt.start_BT is not None:
                raise InputError("this model has no separate decoder; put the whole prompt in ids")
            super().__init__(*left_padded(prompt.ids_BT, prompt.mask_BT))
        tower = model.head_stack
        capacity = self.prompt_RT.shape[1] + max_new_tokens
        kernels = [module for module in tower.modules() if isinstance(module, Kernel)]
        cacheable = all("uneven" in kernel.supports or kernel.cache_kind == "state" for kernel in kernels)
        self._cache: Cache | None = model.cache(capacity) if cacheable else None
        # Without a cache (LSH attention sorts all tokens) every step recomputes the whole text.
        self._text_RT, self._text_real_RT = self.prompt_RT[:, :0], self.real_RT[:, :0]
        self._next_logits_RV: Tensor | None = None
        self._replayer: StepReplayer | None = None
        if replay and self._cache is not None and replay_enabled() and is_replayable(tower, capacity):
            # Fused operators round differently in the last digit, as packed products do.
            self._replayer = StepReplayer(self._cache, fuse=preparation(model) is not None)

    def prefill(self) -> Tensor:
        self.states_RTD = self._forward(self.prompt_RT, self.real_RT)
        return self.logits(1)[:, 0]

    def step(self, new_RT: Tensor) -> Tensor:
        if self._next_logits_RV is not None:
            logits_RV, self._next_logits_RV = self._next_logits_RV, None
            return logits_RV
        if self._replayer is not None and new_RT.shape[1] == 1:
            self.states_RTD = self._replayer.step(self._forward, new_RT)
        else:
            self.states_RTD = self._forward(new_RT)
        return self.logits(1)[:, 0]

    def logits(self, count: int) -> Tensor:
        """Logits (R, count, V) at the last positions of the last step."""
        return widen(self._model.read(States(self.states_RTD[:, -count:])))

    def set_next_logits(self, logits_RV: Tensor) -> None:
        self._next_logits_RV = logits_RV

    def reorder(self, rows_R: Tensor, rows_per_source: int = 1) -> None:
        if self._next_logits_RV is not None:
            self._next_logits_RV = self._next_logits_RV[rows_R]
            self.states_RTD = self.states_RTD[rows_R]
        sources: Tensor | None = None
        if (output := self._encoder_output) is not None:
            sources = rows_R[::rows_per_source] // output.rows_per_source
            x, segment = output.x_BTD, output.segment_BT
            if not is_identity(sources, len(x)):
                x, segment = x[sources], None if segment is None else segment[sources]
            self._encoder_output = replace(
                output, x_BTD=x, segment_BT=segment, rows_per_source=rows_per_source
            )
        if self._model.row_order is not None:
            self._model.row_order.reorder(rows_R)
        if self._cache is not None:
            self._cache.reorder(rows_R, sources)
        else:
            self._text_RT, self._text_real_RT = self._text_RT[rows_R], self._text_real_RT[rows_R]

    def rollback(self, count: int) -> None:
        if self._cache is not None:
            self._cache.trim(self._cache.length - count)
        else:
            length = self._text_RT.shape[1] - count
            self._text_RT, self._text_real_RT = self._text_RT[:, :length], self._text_real_RT[:, :length]

    def _forward(self, new_RT: Tensor, real_RT: Tensor | None = None) -> Tensor:
        """One call of the model: the last hidden states (R, T, D) of these tokens."""
        ids_RT = new_RT
        if self._cache is None:
            new_real_RT = torch.ones_like(new_RT, dtype=torch.bool) if real_RT is None else real_RT
            ids_RT = self._text_RT = torch.cat([self._text_RT, new_RT], dim=1)
            real_RT = self._text_real_RT = torch.cat([self._text_real_RT, new_real_RT], dim=1)
        states = self._model.decode(ids_RT, self._encoder_output, real_RT, cache=self._cache)
        return states.x_BTD if self._cache is not None else states.x_BTD[:, -new_RT.shape[1] :]


def left_padded(ids_BT: Tensor, mask_BT: Tensor | None) -> tuple[Tensor, Tensor]:
    """All padding on the left, so that new tokens follow real ones; all-padding columns are dropped.

    Positions count real tokens only, so moving the padding changes no number. An encoder may also take
    frames, (batch, length, ...), in place of ids.
    """
    if ids_BT.ndim < 2 or 0 in ids_BT.shape:
        raise InputError(f"ids must be (batch, length) with at least one token; given {tuple(ids_BT.shape)}")
    if mask_BT is None:
        return ids_BT, torch.ones(ids_BT.shape[:2], dtype=torch.bool, device=ids_BT.device)
    if mask_BT.shape != ids_BT.shape[:2]:
        raise InputError(
            f"the mask is {tuple(mask_BT.shape)}, the ids {tuple(ids_BT.shape)}; expected the same"
        )
    real = mask_BT.bool()
    if not bool(real.any(1).all()):
        raise InputError("a row of the prompt has no real token; every mask row needs a 1")
    order = real.long().argsort(dim=1, stable=True)
    first = ids_BT.shape[1] - int(real.sum(1).max())
    rows = torch.arange(len(ids_BT), device=ids_BT.device)[:, None]
    return ids_BT[rows, order][:, first:], real.gather(1, order)[:, first:]
