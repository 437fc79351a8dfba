"""A bundle: a model and everything that belongs to it, under the names that are promised."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..errors import InputError
from ..families import Family, Task
from ..nn.heads import Pool, pooled
from ..nn.model import Model, PairModel, SingleModel
from ..text.tokenizer import Tokenizer
from .report import Report

# Words of sentence-transformers for what we can do.
POOLS: dict[str, Pool] = {"cls": "first", "max": "max", "mean": "mean", "lasttoken": "last"}
MODULES = {"Transformer", "Pooling", "Normalize"}


@dataclass
class Bundle:
    """What `load` and `build` give. Without a tokenizer it still takes ids; only text needs one."""

    spec: Model
    model: SingleModel | PairModel
    family: Family | None = None  # None: built from a spec that is nobody's
    task: Task = "tokens"
    config: dict[str, Any] = field(default_factory=dict)
    tokenizer: Tokenizer | None = None
    generation: dict[str, Any] = field(default_factory=dict)  # decoding defaults of the checkpoint
    pooling: dict[str, Any] | None = None  # how the checkpoint makes one vector of a sentence
    report: Report = field(default_factory=Report)
    edits: dict[str, str] = field(default_factory=dict)  # where the spec is not as the family builds it
    files: dict[str, bytes] = field(default_factory=dict)  # carried along, written back as they are

    def __repr__(self) -> str:
        name = self.family.title if self.family else type(self.spec).__name__
        return f"Bundle({name}, {self.parameters:,} parameters)"

    @property
    def parameters(self) -> int:
        return sum(p.numel() for p in self.model.parameters())

    def encode(self, text: str) -> list[int]:
        """Ids of a text, with the special tokens the checkpoint expects."""
        return list(self._tokenizer("text").encode(text).ids)

    @torch.no_grad()
    def embed(self, texts: Sequence[str], batch: int = 32) -> Tensor:
        """(N, width): one vector per text, pooled and normalised as the checkpoint's modules.json says."""
        if isinstance(texts, str):
            raise InputError("embed takes a list of texts; put the one text into a list")
        if not isinstance(self.model, SingleModel):
            raise InputError(
                "this model has an encoder and a decoder; sentence vectors need an encoder alone"
            )
        encoded = self._tokenizer("embed").encode_batch(texts)
        rows = [self._cut(list(encoding.ids)) for encoding in encoded]
        parts = [self._embed(rows[i : i + batch]) for i in range(0, len(rows), batch)]
        return torch.cat(parts) if parts else torch.zeros(0, self.spec_width)

    @property
    def spec_width(self) -> int:
        assert isinstance(self.model, SingleModel)
        return self.model.spec.tower.width

    def _cut(self, ids: list[int]) -> list[int]:
        """No more tokens than the checkpoint's recipe says, as its own library cuts: the end token stays."""
        limit = (self.pooling or {}).get("max_seq_length")
        if limit is None or len(ids) <= limit:
            return ids
        tail = 0
        while tail < len(ids) and ids[-1 - tail] in self._tokenizer("embed").specials:
            tail += 1
        return ids[: limit - tail] + ids[len(ids) - tail :]

    def _embed(self, rows: list[list[int]]) -> Tensor:
        assert isinstance(self.model, SingleModel)
        length = max(map(len, rows))
        real = torch.tensor([[1] * len(row) + [0] * (length - len(row)) for row in rows])
        ids = torch.tensor([row + [0] * (length - len(row)) for row in rows])
        device = next(self.model.parameters()).device
        ids, real = ids.to(device), real.to(device)
        states, recipe = self.model.hidden(ids, real), self.pooling or {"modes": ["mean"], "normalize": True}
        unknown = {*recipe["modes"]} - {*POOLS}, {*recipe.get("modules", ())} - MODULES
        if any(unknown):
            raise InputError(
                f"modules.json asks for {', '.join(set.union(*unknown))}, which is not known here"
            )
        vectors = torch.cat([pooled(states, POOLS[mode], real.bool()) for mode in recipe["modes"]], dim=-1)
        return torch.nn.functional.normalize(vectors, dim=-1) if recipe["normalize"] else vectors

    def _tokenizer(self, wanted: str) -> Tokenizer:
        if self.tokenizer is None:
            raise InputError(
                f"{wanted} needs a tokenizer, and this model came without one (tokenizer.json); pass ids"
            )
        return self.tokenizer
