"""The content of an adapter folder: a tuned model in, a config and named tensors out; and back.

What PEFT has a format for is stored as PEFT does; everything else under the names of our parameters, with a
config that says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from ..weights import StateDict

OWN_FORMAT = "clearhead"  # the key of adapter_config.json that marks a folder that PEFT cannot read


@dataclass(frozen=True)
class AdapterFiles:
    """adapter_config.json, and the tensors of adapter_model.safetensors."""

    config: dict[str, Any]
    tensors: Mapping[str, Tensor]
    why_own: str = ""  # why PEFT has no format for it; not stored

    @property
    def is_own(self) -> bool:
        return OWN_FORMAT in self.config

    @property
    def is_of_adapters(self) -> bool:
        """Whether the library adapters wrote it: it has the method in `config`, PEFT in `peft_type`."""
        return not self.is_own and "peft_type" not in self.config and "config" in self.config


def own_format(model: nn.Module, trained: tuple[str, ...], kind: str, why: str) -> AdapterFiles:
    """The parameters that learn under their own names."""
    tensors: StateDict = {name: model.get_parameter(name).detach() for name in trained}
    return AdapterFiles({OWN_FORMAT: 1, "method": kind}, tensors, why)
