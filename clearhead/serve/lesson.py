"""The step-by-step lesson: one text through one attention head, every step with its numbers and shapes.

Parts can be ablated (scale, mask, positions, residual): then the same tokens go through the changed model,
and the predictions of both are compared. Large tensors are cut to what a page can show; shapes are complete.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from ..bundle import Bundle
from ..errors import InputError
from ..lens import AttentionKind, Trace, ablate, describe_positions, record_forward, trace_ids
from ..nn import Recorder, TransformerModel
from .answers import decoded_target, top_predictions

RemovablePart = Literal["scale", "mask", "positions", "residual"]
SHOWN_TOKENS, SHOWN_COLUMNS = 12, 8  # rows and columns shown
MAX_LISTED_TOKENS = 200  # tokens of a text that are written out


def lesson(
    bundle: Bundle, trace: Trace, kind: AttentionKind, layer: int, head: int, off: Sequence[RemovablePart]
) -> dict[str, Any]:
    if not 0 <= layer < trace.layers(kind) or not 0 <= head < trace.heads(kind):
        raise InputError(f"there is no head {layer}.{head} in {kind} attention")
    model = ablate(bundle.model, off) if off else bundle.model
    now = trace_ids(model, trace.input, tokenizer=bundle.tokenizer) if off else trace
    return {
        "steps": _Lesson(model, now, kind, layer, head).steps(),
        "off": list(off),
        "before": top_predictions(trace),
        "after": top_predictions(now),
        "said": decoded_target(bundle, trace),
        "then": decoded_target(bundle, replace(bundle, model=model).trace(list(trace.input.ids)))
        if off
        else "",
    }


class _Lesson:
    def __init__(
        self, model: TransformerModel, trace: Trace, kind: AttentionKind, layer: int, head: int
    ) -> None:
        self.model, self.trace, self.kind, self.layer, self.head = model, trace, kind, layer, head
        self.rows, self.columns = trace.labels(kind)  # as the other screens name them
        self.read = [token.label for token in trace.sides(kind)[0]]  # what the rows' own tower reads
        self.side, *_, self.part = trace.address(kind, layer).split(".")
        seen, fed = Recorder(), trace.input
        sites = seen.tap(f"{self.side}.blocks.{layer}.*")
        record_forward(model, fed, tap=sites)
        self.seen = {name.split(".", 3)[3]: x[0] for name, x in seen.items()}

    def steps(self) -> list[dict[str, Any]]:
        record = self.trace.steps(self.kind, self.layer, self.head)
        after = {"attn": "cross.stream", "cross": "ff.stream"}[self.part]
        after = after if after in self.seen else "ff.stream"
        embedded, placed, scheme = self._front()
        keys, values = self._wide("K", record.k_KE, self.columns), self._wide("V", record.v_KE, self.columns)
        return [
            {"key": "tokens", "texts": self._texts(), "shape": [len(self.read)]},
            _step("embedding", embedded.shape, self._wide("x", embedded, self.read)),
            _step("positions", placed.shape, self._wide("p", placed, self.read), words=scheme),
            _step("qkv", record.q_QE.shape, self._wide("Q", record.q_QE), keys, values),
            _step("scores", record.scores.shape, self._square("QKᵀ", record.scores)),
            _step("scale", record.scaled.shape, self._square("QKᵀ · s", record.scaled), number=record.scale),
            _step("mask", record.masked.shape, self._square("mask", record.masked)),
            _step("softmax", record.weights.shape, self._square("A", record.weights)),
            _step("mix", record.mix.shape, self._wide("A V", record.mix)),
            _step("heads", self.seen[f"{self.part}.out"].shape, self._wide("concat", self._heads()),
                  self._wide("out", self.seen[f"{self.part}.out"]), number=self.trace.heads(self.kind)),
            _step("residual", self.seen[after].shape, self._wide("x", self.seen[f"{self.part}.stream"]),
                  self._wide("+ out", self.seen[f"{self.part}.out"]), self._wide("→", self.seen[after])),
            _step("feedforward", self.seen["ff.hidden"].shape, self._wide("hidden", self.seen["ff.hidden"]),
                  self._wide("out", self.seen["ff.out"])),
            {"key": "logits", "shape": list(self.trace.answer.shape), "guesses": top_predictions(self.trace)},
        ]  # fmt: skip

    def _front(self) -> tuple[Tensor, Tensor, str]:
        """The token embeddings, what the positions add to them, and the name of the position scheme."""
        tower, fed = self.model.stacks[self.side], self.trace.input
        ids = fed.target_ids if self.side == "decoder" and fed.target_ids is not None else fed.ids
        types = None if fed.types is None else torch.tensor([list(fed.types)])
        with torch.no_grad():
            x = tower.embed(torch.tensor([list(ids)]), types)
            placed = tower.positions.add(x, torch.arange(len(ids))[None])
        return x[0], (placed - x)[0], describe_positions(tower.spec.positions)

    def _heads(self) -> Tensor:
        """All heads side by side: (T, H * E)."""
        return self.seen[f"{self.part}.mix"].transpose(0, 1).flatten(1)

    def _texts(self) -> list[dict[str, Any]]:
        """The tokens of each text involved; in cross-attention the source, then the target."""
        trace = self.trace
        sides = {"self": ["source"], "decoder": ["target"], "cross": ["source", "target"]}[self.kind]
        texts = {"source": trace.tokens, "target": trace.target_tokens}
        shown = {side: [token._asdict() for token in texts[side][:MAX_LISTED_TOKENS]] for side in sides}
        return [{"side": side, "count": len(texts[side]), "tokens": shown[side]} for side in sides]

    def _wide(self, name: str, x_TD: Tensor, labels: list[str] | None = None) -> dict[str, Any]:
        shown = (self.rows if labels is None else labels)[:SHOWN_TOKENS]
        return _matrix(name, x_TD[:SHOWN_TOKENS, :SHOWN_COLUMNS], shown, None, x_TD.shape)

    def _square(self, name: str, x_QK: Tensor) -> dict[str, Any]:
        rows, columns = self.rows[:SHOWN_TOKENS], self.columns[:SHOWN_TOKENS]
        return _matrix(name, x_QK[:SHOWN_TOKENS, :SHOWN_TOKENS], rows, columns, x_QK.shape)


def _step(key: str, shape: Sequence[int], *matrices: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"key": key, "shape": list(shape), "matrices": list(matrices), **more}


def _matrix(
    name: str, x: Tensor, rows: list[str], columns: list[str] | None, shape: Sequence[int]
) -> dict[str, Any]:
    """Masked scores are minus infinity, which JSON does not have: null. Adding 0.0 turns -0.0 into 0.0."""
    values = [[round(v, 4) + 0.0 if math.isfinite(v) else None for v in row] for row in x.float().tolist()]
    return {"name": name, "rows": rows, "columns": columns, "values": values, "shape": list(shape)}
