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
    after = trace_ids(model, trace.input, tokenizer=bundle.tokenizer) if off else trace
    # "said" and "then" are what the original and the changed model generate.
    return {
        "steps": _Lesson(model, after, kind, layer, head).steps(),
        "off": list(off),
        "before": top_predictions(trace),
        "after": top_predictions(after),
        "said": decoded_target(bundle, trace),
        "then": decoded_target(bundle, replace(bundle, model=model).trace(list(trace.input.ids)))
        if off
        else "",
    }


class _Lesson:
    """The steps of one head. `activations` holds the activations of its layer by site, such as `attn.out`."""

    def __init__(
        self, model: TransformerModel, trace: Trace, kind: AttentionKind, layer: int, head: int
    ) -> None:
        self.model, self.trace, self.kind, self.layer, self.head = model, trace, kind, layer, head
        self.rows, columns = trace.labels(kind)  # as the other screens name them
        queries, keys = trace.record.virtual.get(trace.address(kind, layer), (0, 0))
        self.columns = [*(f"[{i + 1}]" for i in range(keys)), *columns]
        self.read = [token.label for token in trace.sides(kind)[0]]  # the input tokens of the rows
        self.side, *_, self.part = trace.address(kind, layer).split(".")
        recorder = Recorder()
        record_forward(model, trace.input, tap=recorder.tap(f"{self.side}.blocks.{layer}.*"))
        # Behind the virtual tokens of a prompt; (T, D), or (H, T, E) of heads.
        self.activations = {name.split(".", 3)[3]: x[0, ..., queries:, :] for name, x in recorder.items()}

    def steps(self) -> list[dict[str, Any]]:
        record = self.trace.steps(self.kind, self.layer, self.head)
        output, ff_out = self.activations[f"{self.part}.out"], self.activations["ff.out"]
        # A mixture of experts has no hidden layer of all tokens: who went where is shown in its place.
        inner = "hidden" if "ff.hidden" in self.activations else "routing"
        hidden = self.activations[f"ff.{inner}"]
        # The stream after this sub-layer is the input of the next one.
        after_self = "cross.stream" if "cross.stream" in self.activations else "ff.stream"
        stream_after = self.activations[after_self if self.part == "attn" else "ff.stream"]
        embedded, positions, scheme = self._embedding()
        # All heads side by side: (T, H * E).
        concatenated = self.activations[f"{self.part}.mix"].transpose(0, 1).flatten(1)
        keys, values = self._wide("K", record.k_KE, self.columns), self._wide("V", record.v_KE, self.columns)
        return [
            {"key": "tokens", "texts": self._texts(), "shape": [len(self.read)]},
            _step("embedding", embedded.shape, self._wide("x", embedded, self.read)),
            _step("positions", positions.shape, self._wide("p", positions, self.read), words=scheme),
            _step("qkv", record.q_QE.shape, self._wide("Q", record.q_QE), keys, values),
            _step("scores", record.scores.shape, self._square("QKᵀ", record.scores)),
            _step("scale", record.scaled.shape, self._square("QKᵀ · s", record.scaled), number=record.scale),
            _step("mask", record.masked.shape, self._square("mask", record.masked)),
            _step("softmax", record.weights.shape, self._square("A", record.weights)),
            _step("mix", record.mix.shape, self._wide("A V", record.mix)),
            _step("heads", output.shape, self._wide("concat", concatenated), self._wide("out", output),
                  number=self.trace.heads(self.kind)),
            _step("residual", stream_after.shape, self._wide("x", self.activations[f"{self.part}.stream"]),
                  self._wide("+ out", output), self._wide("→", stream_after)),
            _step("feedforward", hidden.shape, self._wide(inner, hidden), self._wide("out", ff_out)),
            {"key": "logits", "shape": list(self.trace.answer.shape), "guesses": top_predictions(self.trace)},
        ]  # fmt: skip

    def _embedding(self) -> tuple[Tensor, Tensor, str]:
        """The token embeddings, what the positions add to them, and the name of the position scheme."""
        tower, given = self.model.stacks[self.side], self.trace.input
        ids = given.target_ids if self.side == "decoder" and given.target_ids is not None else given.ids
        types = None if given.types is None else torch.tensor([list(given.types)])
        with torch.no_grad():
            x = tower.embed(torch.tensor([list(ids)]), types)
            first = tower.spec.virtual.length if tower.spec.virtual else 0
            with_positions = tower.positions.add(x, torch.arange(first, first + len(ids))[None])
        return x[0], (with_positions - x)[0], describe_positions(tower.spec.positions)

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
