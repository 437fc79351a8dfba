"""Folders of the library adapters (AdapterHub): their config and tensors in, a tuning and our parameters out.

    adapter_config.json     {"config": {...}, "hidden_size", "model_type", "name", "version", ...}
    adapter.safetensors     encoder.layer.0.output.adapters.NAME.adapter_down.0.weight, ...

They are read and not written: a tuned model is saved in our own format, or in PEFT's. The formats are those
of adapters 1.3. One module for the methods between layers, one for those of linear layers.
"""

from __future__ import annotations

from ...errors import LoadError, quoted
from ...weights import StateDict
from ..files import AdapterFiles
from ..names import ModelNames
from ..tuning import Tuning
from .bottleneck import bottleneck_parameters, bottleneck_tuning
from .fields import fields_of
from .linear import linear_parameters, linear_tuning

__all__ = ["hub_parameters", "hub_tuning"]

REFUSED = {
    "mtl_lora": "MTL-LoRA", "prefix_tuning": "prefix tuning", "prompt_tuning": "prompt tuning",
    "reft": "ReFT", "union": "several methods at once",
}  # fmt: skip


def _is_linear(files: AdapterFiles) -> bool:
    """Whether it is LoRA or IA3; otherwise it is a bottleneck adapter."""
    method = fields_of(files.config).get("architecture")
    if method is not None and method != "lora":
        known = REFUSED.get(method) if isinstance(method, str) else None
        raise LoadError(
            f"the adapter is {known or quoted(method)} of the library adapters, of which bottleneck "
            f"adapters, LoRA and IA3 are read"
        )
    return method is not None


def hub_tuning(files: AdapterFiles, names: ModelNames) -> Tuning:
    """The value that describes an adapter of the library, whose tensors are all accounted for."""
    return linear_tuning(files, names) if _is_linear(files) else bottleneck_tuning(files, names)


def hub_parameters(files: AdapterFiles, names: ModelNames) -> StateDict:
    """The parameters of a tuned model by their names here."""
    return linear_parameters(files, names) if _is_linear(files) else bottleneck_parameters(files, names)
