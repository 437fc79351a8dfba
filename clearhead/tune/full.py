"""Full fine-tuning, and freezing by pattern: some of the model's own parameters learn, as copies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..errors import InputError, quoted
from ..nn import TransformerModel
from .names import ModelNames
from .tuning import Attachment, Tuning

FEW_NUMBERS = 0.2  # of all numbers; biases or a head alone take larger steps than a whole model


@dataclass(frozen=True, kw_only=True)
class Full(Tuning):
    """The parameters that `targets` names learn, and all others are shared with the model before.

    `Full()` is full fine-tuning, `Full(targets="tower.blocks.{4,5}")` trains two layers, and
    `Full(targets="*.bias")` the biases alone (BitFit, Zaken 2021).
    """

    unit: ClassVar[str] = "module"

    targets: str | tuple[str, ...] = "*"  # patterns of parameters that learn
    exclude: tuple[str, ...] = ()  # patterns of parameters that stay as they are

    @property
    def is_whole(self) -> bool:
        return True

    def rate_for(self, share: float) -> float:
        return 1.0 if share > FEW_NUMBERS else 30.0

    def attach(self, model: TransformerModel, names: ModelNames, seed: int) -> Attachment:
        patterns = (self.targets,) if isinstance(self.targets, str) else self.targets
        found = {name for each in patterns for name in names.parameters_named(each, "Full.targets")}
        left_out = {name for each in self.exclude for name in names.parameters_named(each, "Full.exclude")}
        learn = tuple(name for name in names.parameters if name in found - left_out)
        if not learn:
            raise InputError(f"Full.exclude {quoted(list(self.exclude))} leaves no parameter to train")
        modules = dict.fromkeys(name.rpartition(".")[0] for name in learn)
        return Attachment(layers=tuple(modules), learn=learn)
