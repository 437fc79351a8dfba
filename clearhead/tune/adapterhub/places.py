"""Where the library adapters puts its adapters: a kind of model in; the places of its sub-layers out.

    BERT     encoder.layer.0.attention.output.adapters.NAME     encoder.layer.0.output.adapters.NAME
    T5       encoder.block.0.layer.0.adapters.NAME              encoder.block.0.layer.1.adapters.NAME
    others   h.0.attention_adapters.adapters.NAME               h.0.output_adapters.adapters.NAME

What stands before the place in a layer is taken from the weight table of the family.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from torch import Tensor

from ...errors import LoadError, nearest, quoted
from ..bottleneck import BottleneckInput
from ..files import AdapterFiles
from ..names import ModelNames

AdaptedStep = Literal["attn", "cross", "ff"]
ADAPTED_STEPS: tuple[AdaptedStep, ...] = ("attn", "cross", "ff")
_LAYER = re.compile(r"((?:\w+\.)*blocks\.\d+)\.(attn|cross|ff)(?:_norm)?\..+")


@dataclass(frozen=True)
class AdapterPlaces:
    """The places of a kind of model, and what its code gives the adapters there to read."""

    # The module in a layer that holds the adapters of a sub-layer; {n} is the number of the sub-layer.
    modules: Mapping[AdaptedStep, str]
    norm: bool = False  # whether the layer's norm is handed to the adapter, as in post-norm models
    # What an adapter reads here, by what its config says it reads; no entry: nothing that a layer here has.
    reads: Mapping[AdaptedStep, Mapping[BottleneckInput, BottleneckInput]] = field(default_factory=dict)

    def reads_at(self, step: AdaptedStep, stated: BottleneckInput) -> BottleneckInput | None:
        return stated if step not in self.reads else self.reads[step].get(stated)


_OUTPUT_ALONE: Mapping[BottleneckInput, BottleneckInput] = {"output": "output"}
_BERT = AdapterPlaces({"attn": "attention.output", "ff": "output"}, norm=True)
_BESIDE = AdapterPlaces(
    {"attn": "attention_adapters", "cross": "cross_attention_adapters", "ff": "output_adapters"}
)
_BESIDE_POST_NORM = replace(_BESIDE, norm=True)
_ALBERT = AdapterPlaces(
    {"attn": "attention.attention_adapters", "ff": "output_adapters"},
    norm=True,
    # Its attention hands over the stream as the output, and the output as the stream.
    reads={"attn": {"output": "input", "input": "output", "sum": "sum"}},
)
_T5 = AdapterPlaces({"attn": "{n}", "cross": "{n}", "ff": "{n}"})
# Both sub-layers have one norm. What the adapters get beside the output is not what the sub-layers read.
_GPTJ = replace(_BESIDE, reads={"attn": _OUTPUT_ALONE, "ff": _OUTPUT_ALONE})
# No stream at all is handed to that of the feed-forward, so that a sum is the output alone.
_PHI = replace(_BESIDE, reads={"attn": _OUTPUT_ALONE, "ff": {"output": "output", "sum": "output"}})
# The stream that is handed over is normed already, and the norm after it is that of another layer.
_MODERNBERT = _GPTJ

HUB_PLACES: dict[str, AdapterPlaces] = {
    "albert": _ALBERT, "bart": _BESIDE_POST_NORM, "bert": _BERT, "deberta": _BERT, "deberta-v2": _BERT,
    "distilbert": _BESIDE_POST_NORM, "electra": _BERT, "gpt2": _BESIDE, "gptj": _GPTJ, "llama": _BESIDE,
    "mbart": _BESIDE, "mistral": _BESIDE, "modernbert": _MODERNBERT, "mt5": _T5, "phi": _PHI,
    "plbart": _BESIDE_POST_NORM, "qwen2": _BESIDE, "qwen3": _BESIDE, "roberta": _BERT, "t5": _T5,
    "xlm-roberta": _BERT,
}  # fmt: skip


def places_of(model_type: object) -> AdapterPlaces:
    if not isinstance(model_type, str) or model_type not in HUB_PLACES:
        raise LoadError(
            f"adapter_config.json: model_type is {quoted(model_type)}; folders of the library adapters are "
            f"read for {', '.join(HUB_PLACES)}; {nearest(model_type, HUB_PLACES)}"
        )
    return HUB_PLACES[model_type]


@dataclass(frozen=True)
class HubLayer:
    """A layer of a model: its address here, what is called so there, and its sub-layers in their order."""

    address: str
    theirs: str
    steps: tuple[AdaptedStep, ...]

    def module(self, places: AdapterPlaces, step: AdaptedStep) -> str | None:
        """The module of theirs that holds the adapters of a sub-layer; None: it has none."""
        module = places.modules.get(step)
        return None if module is None else f"{self.theirs}.{module.format(n=self.steps.index(step))}"


def layers_of(names: ModelNames) -> list[HubLayer]:
    """The layers of a model in the order in which the library counts them: those of the encoder first.

    A layer that several share counts once, as theirs does.
    """
    found: dict[str, set[AdaptedStep]] = {}
    for name in names.parameters:
        if match := _LAYER.fullmatch(name):
            found.setdefault(match[1], set()).add(match[2])  # type: ignore[arg-type]
    modules: dict[str, list[list[str]]] = {address: [] for address in found}
    for name, ours in names.tensors.items():
        if ours and (match := _LAYER.fullmatch(ours[0])):
            modules[match[1]].append(without_prefix(name, names).split(".")[:-1])
    return [
        HubLayer(
            address, ".".join(_common_start(modules[address])), tuple(s for s in ADAPTED_STEPS if s in steps)
        )
        for address, steps in found.items()
    ]


def _common_start(paths: list[list[str]]) -> list[str]:
    """What all paths begin with."""
    start = min(paths, default=[])
    end = max(paths, default=[])
    same = [a == b for a, b in zip(start, end, strict=False)]
    return start[: same.index(False) if False in same else len(same)]


def without_prefix(name: str, names: ModelNames) -> str:
    """A name of theirs without that of the base model, which classes with a head have in front."""
    prefix = next((prefix for prefix in names.prefixes if name.startswith(prefix)), "")
    return name.removeprefix(prefix)


def stored_tensors(files: AdapterFiles, names: ModelNames) -> dict[str, Tensor]:
    """The tensors of a folder without the name of the base model in front."""
    found: dict[str, Tensor] = {}
    for name in files.tensors:
        short = without_prefix(name, names)
        if short in found:
            raise LoadError(f"the adapter has {quoted(short)} twice; its file is damaged")
        found[short] = files.tensors[name]
    return found
