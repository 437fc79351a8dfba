"""The fields of a bundle: a model, its tokenizer, config and defaults; the methods are in `Bundle`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from ..engine import stored_parameters
from ..errors import InputError
from ..families import Family, HeadKind
from ..nn import Model, TransformerModel
from ..store import FileVersion
from ..text import Tokenizer
from ..tune import AdapterFiles, AttachedTuning
from .report import Report


@dataclass
class BundleParts:
    """The fields of `Bundle`."""

    spec: Model
    model: TransformerModel
    family: Family | None = None  # None: built from a spec
    task: HeadKind = "tokens"
    config: dict[str, Any] = field(default_factory=dict)
    tokenizer: Tokenizer | None = None
    generation: dict[str, Any] = field(default_factory=dict)  # decoding defaults of the checkpoint
    pooling: dict[str, Any] | None = None  # how the checkpoint pools sentence vectors (modules.json)
    report: Report = field(default_factory=Report)
    edits: dict[str, str] = field(default_factory=dict)  # changes of the family's spec
    files: dict[str, bytes] = field(default_factory=dict)  # copied unchanged when the bundle is saved
    weight_files: tuple[FileVersion, ...] = ()  # safetensors files that the weights were loaded from
    loaded_from: str | None = None  # a folder, a file or a hub id
    tuning: AttachedTuning | None = None  # what was added to the model of `base`
    base: BundleParts | None = None  # the bundle before it was tuned, with the same weights
    adapter_kept: AdapterFiles | None = None  # what an adapter folder had that is written back as it was
    scores: dict[str, float] = field(default_factory=dict)  # on validation rows, if it was just trained

    def __repr__(self) -> str:
        name = self.family.title if self.family else type(self.spec).__name__
        tuned = "" if self.tuning is None else f", tuned by {type(self.tuning.value).__name__}"
        return f"Bundle({name}, {self.parameters:,} parameters{tuned})"

    @property
    def parameters(self) -> int:
        """Number of parameters, which quantization does not change."""
        if self.tuning is not None:
            return sum(p.numel() for p in self.model.parameters())
        return self.spec.count()

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.model.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        """The number format of the weights; of a prepared model, as they are stored."""
        return next(iter(stored_parameters(self.model).values())).dtype

    def encode(self, text: str) -> list[int]:
        """Ids of a text, with the special tokens the checkpoint expects."""
        return list(self._tokenizer("text").encode(text).ids)

    @property
    def labels(self) -> dict[int, str]:
        """The names of the classes by their number, as `id2label` of config.json gives them."""
        return {int(number): str(name) for number, name in (self.config.get("id2label") or {}).items()}

    def _tokenizer(self, wanted: str) -> Tokenizer:
        if self.tokenizer is None:
            raise InputError(
                f"{wanted} needs a tokenizer, and this model came without one (tokenizer.json); pass ids"
            )
        return self.tokenizer
