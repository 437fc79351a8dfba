"""The loop: a model, a prompt and rules in; an iterator of steps out, and the answers when it is done.

    run = generate(model, Prompt(ids_BT, mask_BT), strategy=Beam(4), stops=(EndTokens((2,)),), limit=64)
    for step in run: ...                 # or run.finish()
    run.answers[0][0].ids

Shape suffixes: B requests, R rows, T tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from ..errors import InputError
from ..nn.model import PairModel, SingleModel
from .filters import Filter
from .records import Hypothesis, Step
from .rows import Greedy
from .said import Said
from .search import Rules, Search, Strategy
from .speaker import Prompt, Speaker, speaker
from .speculate import Draft, Speculator
from .stops import Stop


def generate(
    model: SingleModel | PairModel,
    prompt: Prompt,
    *,
    limit: int | Sequence[int],
    strategy: Strategy | None = None,
    filters: Sequence[Filter] = (),
    stops: Sequence[Stop] = (),
    draft: Draft | None = None,
    alternatives: int = 0,
    record: bool = False,
) -> Decoding:
    """Nothing is computed before the first step is asked for. `limit` is one number, or one per request."""
    requests = len(prompt.ids_BT)
    limits = [limit] * requests if isinstance(limit, int) else list(limit)
    if len(limits) != requests or min(limits) < 1:
        raise InputError(
            f"limit is {limit}, expected a number above 0, or one for each of {requests} requests"
        )
    rules = Rules(filters, stops, alternatives, record)
    return Decoding(model, prompt, strategy or Greedy(), rules, limits, draft)


class Decoding:
    """A run. Iterate it once; `answers` has the hypotheses of every request that has ended, best first."""

    def __init__(
        self,
        model: SingleModel | PairModel,
        prompt: Prompt,
        strategy: Strategy,
        rules: Rules,
        limits: list[int],
        draft: Draft | None,
    ) -> None:
        self._model, self._prompt, self._limits, self._draft = model, prompt, limits, draft
        self._strategy, self._rules = strategy, rules
        self._search: Search | None = None

    @property
    def answers(self) -> list[list[Hypothesis]]:
        return [] if self._search is None else self._search.finished

    def finish(self) -> list[list[Hypothesis]]:
        """Run to the end."""
        for _ in self:
            pass
        return self.answers

    def __iter__(self) -> Iterator[Step]:
        with torch.inference_mode():
            voice = speaker(self._model, self._prompt, room := max(self._limits))
            if self._draft is not None:
                helper = speaker(self._draft.model, self._prompt, room)
                voice = Speculator(voice, helper, self._draft.ahead)
        steps = self._steps(voice)
        while True:
            # Entered anew for each step: a mode must not stay on in the hands of whoever iterates.
            with torch.inference_mode():
                step = next(steps, None)
            if step is None:
                return
            yield step

    def _steps(self, voice: Speaker) -> Iterator[Step]:
        requests, rows = len(self._limits), self._strategy.rows
        logits_RV = voice.hear()
        first = torch.arange(requests, device=logits_RV.device).repeat_interleave(rows)
        limits_R = torch.tensor(self._limits, device=logits_RV.device)[first]
        said = Said(voice.begun_RT[first], voice.real_RT[first], limits_R)
        search = self._search = self._strategy.search(self._rules, said, voice, requests)
        going_R, logits_RV = first, logits_RV[first]
        if rows > 1:
            voice.keep(going_R, search.each)
        voice.follow(search)
        while True:
            step, going_R = search.turn(logits_RV)
            yield step
            if not len(going_R):
                return
            voice.keep(going_R, search.each)
            logits_RV = voice.say(said.last_R1)
