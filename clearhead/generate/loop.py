"""The decode loop: a model, a prompt and rules in; an iterator of steps out, and the answers when it is done.

    run = generate(model, Prompt(ids_BT, mask_BT), strategy=Beam(4), stops=(EndTokens((2,)),), limit=64)
    for step in run: ...                 # or run.finish()
    run.answers[0][0].ids

Shape suffixes: B requests, R rows, T tokens, V vocabulary.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import torch

from ..errors import InputError
from ..nn import TransformerModel
from .filters import Filter
from .results import GenerationResult, Hypothesis, Node, SequenceId, Step, TokenBuffer
from .runner import DecoderRunner, Prompt, Runner
from .sampling import Greedy
from .search import Rules, Search, Stop, Strategy
from .speculative import Draft, SpeculativeRunner


def generate(
    model: TransformerModel,
    prompt: Prompt,
    *,
    limit: int | Sequence[int],
    strategy: Strategy | None = None,
    filters: Sequence[Filter] = (),
    stops: Sequence[Stop] = (),
    draft: Draft | None = None,
    alternatives: int = 0,
    record: bool = False,
    replay: bool = True,
) -> Decoding:
    """A run; nothing is computed before its first step.

    `limit` is the number of new tokens, one for all requests or one for each. `alternatives` adds the most
    likely tokens to every step, `record` every hypothesis that beam search considers. `replay=False` runs the
    model's Python code for every token, for debugging; the output is the same.
    """
    requests = len(prompt.ids_BT)
    limits = [limit] * requests if isinstance(limit, int) else list(limit)
    if len(limits) != requests or min(limits) < 1:
        raise InputError(
            f"limit is {limit}, expected a number above 0, or one for each of {requests} requests"
        )
    rules = Rules(filters, stops, alternatives, record)
    return Decoding(model, prompt, strategy or Greedy(), rules, limits, draft, replay=replay)


class Decoding:
    """A run. Iterate it once; `answers` has the hypotheses of every request that has ended, best first."""

    def __init__(
        self,
        model: TransformerModel,
        prompt: Prompt,
        strategy: Strategy,
        rules: Rules,
        limits: list[int],
        draft: Draft | None,
        *,
        replay: bool = True,
    ) -> None:
        self._model, self._prompt, self._limits, self._draft = model, prompt, limits, draft
        self._strategy, self._rules, self._replay = strategy, rules, replay
        self._search: Search | None = None

    @property
    def answers(self) -> list[list[Hypothesis]]:
        return [] if self._search is None else self._search.finished

    def finish(self) -> list[list[Hypothesis]]:
        """Run to the end."""
        for _ in self:
            pass
        return self.answers

    def collect(self) -> list[GenerationResult]:
        """Run to the end, and keep the alternatives and search trees that the steps report."""
        alternatives: dict[SequenceId, list[tuple[list[int], list[float]]]] = defaultdict(list)
        trees: dict[int, list[Node]] = defaultdict(list)
        for step in self:
            if step.alternatives is not None:
                columns = (x.tolist() for x in step.alternatives)
                for row, ids, logprobs in zip(step.rows, *columns, strict=True):
                    alternatives[row].append((ids, logprobs))
            for node in step.nodes:
                trees[node.request].append(node)
        return [
            GenerationResult(
                hypotheses,
                [alternatives.get(SequenceId(i, n), []) for n in range(len(hypotheses))],
                tuple(trees.get(i, ())),
            )
            for i, hypotheses in enumerate(self.answers)
        ]

    def __iter__(self) -> Iterator[Step]:
        with torch.inference_mode():
            runner = self._runner()
        steps = self._steps(runner)
        while True:
            # Entered anew for each step: the mode must not stay on in the code that iterates.
            with torch.inference_mode():
                step = next(steps, None)
            if step is None:
                return
            yield step

    def _runner(self) -> Runner:
        longest = max(self._limits)
        target = DecoderRunner(self._model, self._prompt, longest, replay=self._replay)
        if self._draft is None:
            return target
        draft = DecoderRunner(self._draft.model, self._prompt, longest, replay=self._replay)
        return SpeculativeRunner(target, draft, self._draft.ahead)

    def _steps(self, runner: Runner) -> Iterator[Step]:
        requests, rows = len(self._limits), self._strategy.rows
        logits_RV = runner.prefill()
        # Every request is computed once, then its row is repeated for each beam or sample.
        going_R = torch.arange(requests, device=logits_RV.device).repeat_interleave(rows)
        limits_R = torch.tensor(self._limits, device=logits_RV.device)[going_R]
        tokens = TokenBuffer(runner.prompt_RT[going_R], runner.real_RT[going_R], limits_R)
        search = self._search = self._strategy.search(self._rules, tokens, runner, requests)
        logits_RV = logits_RV[going_R]
        if rows > 1:
            runner.reorder(going_R, search.rows_per_source)
        runner.attach(search)
        while True:
            step, going_R = search.choose(logits_RV)
            yield step
            if not len(going_R):
                return
            runner.reorder(going_R, search.rows_per_source)
            logits_RV = runner.step(tokens.last_R1)
