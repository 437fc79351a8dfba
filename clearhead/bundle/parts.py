"""The parts of a bundle: a model, its tokenizer, config and defaults; what they can do is in `Bundle`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..errors import InputError
from ..families import Family, HeadKind
from ..nn import Model, TransformerModel
from ..text import Tokenizer
from .report import Report


@dataclass
class BundleParts:
    """The fields of `Bundle`."""

    spec: Model
    model: TransformerModel
    family: Family | None = None  # None: built from a spec that is nobody's
    task: HeadKind = "tokens"
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
        """How many numbers the model has learned; as many when they are rounded."""
        return self.spec.count()

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
