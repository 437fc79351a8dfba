"""The sample batch: random ids that fit the model, and the output of every layer for them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..bundle import Bundle
from ..nn import OFF, Recorder, SameInput, Tap, generator


@dataclass(frozen=True)
class SampleBatch:
    inputs: tuple[Tensor, ...]  # one for each tower, or one for both

    @staticmethod
    def of(bundle: Bundle, rows: int = 3, length: int = 24) -> SampleBatch:
        length = min(length, bundle.spec.max_length or length)
        pad = bundle.config.get("pad_token_id")
        inputs = []
        for name, side in zip(("source", "target"), bundle.spec.towers.values(), strict=False):
            x = side.embed.example(rows, length, generator(0, "certify", name))
            if pad is not None and not x.is_floating_point():
                x = torch.where(x == pad, (x - 1).abs(), x)  # padding would not be attended to
            inputs.append(x)
        inputs = inputs[: bundle.spec.inputs]
        if isinstance(bundle.spec, SameInput) and bundle.spec.end is not None:  # each text ends once
            end = bundle.spec.end
            inputs[0] = torch.where(inputs[0] == end, (inputs[0] - 1).abs(), inputs[0])
            inputs[0][:, -1] = end
        return SampleBatch(tuple(inputs))

    @torch.no_grad()
    def answer(self, bundle: Bundle, tap: Tap = OFF) -> Tensor:
        answer: Tensor = bundle.model(*self.inputs, tap=tap)
        return answer

    def layers(self, bundle: Bundle) -> dict[str, Tensor]:
        """The model's output and that of every layer, by address."""
        seen = Recorder()
        answer = self.answer(bundle, tap=seen.tap("*.out"))
        kept = {name: x for name, x in seen.items() if name.count(".") == 1 or ".blocks." in name}
        kept = {
            name: x for name, x in kept.items() if not name.endswith((".attn.out", ".cross.out", ".ff.out"))
        }
        return {**kept, "answer": answer}
