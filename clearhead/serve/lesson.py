"""The lesson: one text through one head of the user's own model, every step with its real numbers and shapes.

Parts can be switched off (scale, mask, positions, residual): then the same tokens go through the changed
model, and the answers of both stand side by side. Large tensors are cut to what a page can show; shapes are
whole.
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
from ..lens.change import changed, everywhere
from ..lens.describe import places
from ..lens.record import Kind, inside
from ..lens.shadow import towers
from ..lens.tokens import Token
from ..lens.trace import Trace, trace_ids
from ..nn.model import PairModel, SingleModel
from ..nn.tap import Recorder
from .answers import decoded_target, top_predictions

RemovablePart = Literal["scale", "mask", "positions", "residual"]
SHOWN_TOKENS, SHOWN_COLUMNS = 12, 8  # rows and columns shown
MAX_LISTED_TOKENS = 200  # tokens of a text that are written out


def lesson(
    bundle: Bundle, trace: Trace, kind: Kind, layer: int, head: int, off: Sequence[RemovablePart]
) -> dict[str, Any]:
    if not 0 <= layer < trace.layers(kind) or not 0 <= head < trace.heads(kind):
        raise InputError(f"there is no head {layer}.{head} in {kind} attention")
    words = [word for part in off for word in everywhere(bundle.model, part)]
    model = changed(bundle.model, words) if off else bundle.model
    now = trace_ids(model, trace.fed, tokenizer=bundle.tokenizer) if off else trace
    return {
        "steps": _Lesson(model, now, kind, layer, head).steps(),
        "off": list(off),
        "before": top_predictions(trace),
        "after": top_predictions(now),
        "said": decoded_target(bundle, trace),
        "then": decoded_target(bundle, replace(bundle, model=model).trace(list(trace.fed.ids)))
        if off
        else "",
    }


class _Lesson:
    def __init__(
        self, model: SingleModel | PairModel, trace: Trace, kind: Kind, layer: int, head: int
    ) -> None:
        self.model, self.trace, self.kind, self.layer, self.head = model, trace, kind, layer, head
        self.rows, self.columns = trace.labels(kind)  # as the other screens name them
        self.read = [token.label for token in trace.sides(kind)[0]]  # what the rows' own tower reads
        self.side, *_, self.part = trace.address(kind, layer).split(".")
        seen, fed = Recorder(), trace.fed
        sites = seen.tap(f"{self.side}.blocks.{layer}.*")
        inside(model, fed.ids, fed.target_ids, types=fed.types, tap=sites)
        self.seen = {name.split(".", 3)[3]: x[0] for name, x in seen.items()}

    def steps(self) -> list[dict[str, Any]]:
        made = self.trace.steps(self.kind, self.layer, self.head)
        after = {"attn": "cross.stream", "cross": "ff.stream"}[self.part]
        after = after if after in self.seen else "ff.stream"
        embedded, placed, scheme = self._front()
        keys, values = self._wide("K", made.k_KE, self.columns), self._wide("V", made.v_KE, self.columns)
        return [
            {"key": "tokens", "texts": self._texts(), "shape": [len(self.read)]},
            _step("embedding", embedded.shape, self._wide("x", embedded, self.read)),
            _step("positions", placed.shape, self._wide("p", placed, self.read), words=scheme),
            _step("qkv", made.q_QE.shape, self._wide("Q", made.q_QE), keys, values),
            _step("scores", made.scores.shape, self._square("QKᵀ", made.scores)),
            _step("scale", made.scaled.shape, self._square("QKᵀ · s", made.scaled), number=made.scale),
            _step("mask", made.masked.shape, self._square("mask", made.masked)),
            _step("softmax", made.weights.shape, self._square("A", made.weights)),
            _step("mix", made.mix.shape, self._wide("A V", made.mix)),
            _step("heads", self.seen[f"{self.part}.out"].shape, self._wide("concat", self._heads()),
                  self._wide("out", self.seen[f"{self.part}.out"]), number=self.trace.heads(self.kind)),
            _step("residual", self.seen[after].shape, self._wide("x", self.seen[f"{self.part}.stream"]),
                  self._wide("+ out", self.seen[f"{self.part}.out"]), self._wide("→", self.seen[after])),
            _step("feedforward", self.seen["ff.hidden"].shape, self._wide("hidden", self.seen["ff.hidden"]),
                  self._wide("out", self.seen["ff.out"])),
            {"key": "logits", "shape": list(self.trace.answer.shape), "guesses": top_predictions(self.trace)},
        ]  # fmt: skip

    def _front(self) -> tuple[Tensor, Tensor, str]:
        """What the table says of each token, and what its position adds to that."""
        tower, fed = towers(self.model)[self.side], self.trace.fed
        ids = fed.target_ids if self.side == "decoder" and fed.target_ids is not None else fed.ids
        types = None if fed.types is None else torch.tensor([list(fed.types)])
        with torch.no_grad():
            x = tower.embed(torch.tensor([list(ids)]), types)
            placed = tower.positions.add(x, torch.arange(len(ids))[None])
        return x[0], (placed - x)[0], places(tower.spec.positions)

    def _heads(self) -> Tensor:
        """All heads side by side: (T, H * E)."""
        return self.seen[f"{self.part}.mix"].transpose(0, 1).flatten(1)

    def _texts(self) -> list[dict[str, Any]]:
        """The tokens of every text that takes part; in cross-attention the source, then the answer."""
        trace = self.trace
        sides = {"self": ["source"], "decoder": ["target"], "cross": ["source", "target"]}[self.kind]
        texts = {"source": trace.tokens, "target": trace.target_tokens}
        return [{"side": side, "count": len(texts[side]), "tokens": _tokens(texts[side])} for side in sides]

    def _wide(self, name: str, x_TD: Tensor, labels: list[str] | None = None) -> dict[str, Any]:
        shown = (self.rows if labels is None else labels)[:SHOWN_TOKENS]
        return _matrix(name, x_TD[:SHOWN_TOKENS, :SHOWN_COLUMNS], shown, None, x_TD.shape)

    def _square(self, name: str, x_QK: Tensor) -> dict[str, Any]:
        rows, columns = self.rows[:SHOWN_TOKENS], self.columns[:SHOWN_TOKENS]
        return _matrix(name, x_QK[:SHOWN_TOKENS, :SHOWN_TOKENS], rows, columns, x_QK.shape)


def _tokens(tokens: list[Token]) -> list[dict[str, Any]]:
    return [token._asdict() for token in tokens[:MAX_LISTED_TOKENS]]


def _step(key: str, shape: Sequence[int], *matrices: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"key": key, "shape": list(shape), "matrices": list(matrices), **more}


def _matrix(
    name: str, x: Tensor, rows: list[str], columns: list[str] | None, shape: Sequence[int]
) -> dict[str, Any]:
    """What is blocked is minus infinity, which JSON has no word for: null. Zero has no sign (+ 0.0)."""
    values = [[round(v, 4) + 0.0 if math.isfinite(v) else None for v in row] for row in x.float().tolist()]
    return {"name": name, "rows": rows, "columns": columns, "values": values, "shape": list(shape)}
