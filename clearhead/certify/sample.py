"""A sample to certify on: seeded ids that fit the model, and every layer that comes of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..bundle import Bundle
from ..nn.draw import generator
from ..nn.embed import Tokens
from ..nn.long import Adaptive
from ..nn.model import PairModel
from ..nn.tap import OFF, Recorder, Tap


@dataclass(frozen=True)
class SampleBatch:
    ids_BT: Tensor
    target_BT: Tensor  # for models with a decoder of its own

    @staticmethod
    def of(bundle: Bundle, rows: int = 3, length: int = 24) -> SampleBatch:
        sides = list(bundle.spec.towers.values())
        length = min(length, bundle.spec.max_length or length)
        vocab = [t.embed.vocab for t in sides if isinstance(t.embed, Tokens | Adaptive)]
        pad = bundle.config.get("pad_token_id")
        draws = []
        for name, size in (("source", vocab[0]), ("target", vocab[-1])):
            ids = torch.randint(0, size, (rows, length), generator=generator(0, "certify", name))
            draws.append(torch.where(ids == pad, (ids + 1) % size, ids) if pad is not None else ids)
        return SampleBatch(*draws)

    @torch.no_grad()
    def answer(self, bundle: Bundle, tap: Tap = OFF) -> Tensor:
        inputs = (self.ids_BT, self.target_BT) if isinstance(bundle.model, PairModel) else (self.ids_BT,)
        answer: Tensor = bundle.model(*inputs, tap=tap)
        return answer

    def layers(self, bundle: Bundle) -> dict[str, Tensor]:
        """The answer and what leaves every layer, by address."""
        seen = Recorder()
        answer = self.answer(bundle, tap=seen.tap("*.out"))
        kept = {name: x for name, x in seen.items() if name.count(".") == 1 or ".blocks." in name}
        kept = {
            name: x for name, x in kept.items() if not name.endswith((".attn.out", ".cross.out", ".ff.out"))
        }
        return {**kept, "answer": answer}
