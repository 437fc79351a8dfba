"""Folders that the library adapters wrote: a model and a config of tests/golden in; folders, logits out."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

GOLDEN = Path(__file__).parent / "golden" / "adapters_of_hub.safetensors"


@dataclass(frozen=True)
class Golden:
    """What one library made: everything under `MODEL/ADAPTER` in the file."""

    texts: Mapping[str, str]
    tensors: Mapping[str, Tensor]

    def under(self, place: str) -> dict[str, Tensor]:
        return {k.removeprefix(place): x for k, x in self.tensors.items() if k.startswith(place)}


@cache
def golden() -> Golden:
    with safe_open(GOLDEN, "pt") as file:
        return Golden(file.metadata(), {name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118


MODELS = sorted(name.removesuffix("/config") for name in golden().texts if name.endswith("/config"))
CASES = sorted(tuple(name.split("/")) for name in golden().texts if not name.endswith("/config"))


def base_folder(model: str, folder: Path) -> Path:
    """The base as transformers saved it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(golden().texts[f"{model}/config"])
    save_file(golden().under(f"{model}/base/"), folder / "model.safetensors", {"format": "pt"})
    return folder


def adapter_folder(
    model: str,
    kind: str,
    folder: Path,
    *,
    tensors: Mapping[str, Tensor] | None = None,
    config: Mapping[str, Any] | None = None,
    fields: Mapping[str, Any] | None = None,
) -> Path:
    """The adapter as the library saved it; or with other tensors, keys of the file, fields of the config."""
    folder.mkdir(parents=True, exist_ok=True)
    stored = json.loads(golden().texts[f"{model}/{kind}"]) | dict(config or {})
    if fields is not None:
        stored["config"] = {key: x for key, x in (stored["config"] | dict(fields)).items() if x != "absent"}
    (folder / "adapter_config.json").write_text(json.dumps(stored))
    own = tensors_of(model, kind) if tensors is None else dict(tensors)
    save_file(own, folder / "adapter.safetensors")
    return folder


def tensors_of(model: str, kind: str) -> dict[str, Tensor]:
    return golden().under(f"{model}/{kind}/tensors/")


def ids_of(model: str) -> list[Tensor]:
    return list(golden().under(f"{model}/ids/").values())


def logits_of(model: str, kind: str | None = None) -> Tensor:
    """What the library computes, with an adapter or without."""
    return golden().tensors[f"{model}/logits" if kind is None else f"{model}/{kind}/logits"]


@torch.no_grad()
def computed(bundle: Any, model: str) -> Tensor:
    found: Tensor = bundle.model(*ids_of(model))
    return found
