"""Bottleneck adapters of the library adapters: fields of a config and tensors in; a `Bottleneck` out, filled.

With h the output of a sub-layer, x the stream before it, N the norm of a post-norm layer and a() the adapter:

    sequential    z = N(h + x) where original_ln_before, else h;   out = a(z) + r
                  r = h where residual_before_ln, h + x where that is "post_add", else z
    parallel      out = a(x) + h
    in the end    N(out + x) where original_ln_after, else out

A `Bottleneck` is h + a(...) before the sum with x and the norm, which some of the combinations are not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from ...errors import LoadError, SpecError, quoted, reason
from ...weights import StateDict
from ..bottleneck import Bottleneck, BottleneckInput, LearnedScale
from ..files import AdapterFiles
from ..names import ModelNames
from .fields import activation_of, adapter_name, checked_fields, reduction_of
from .places import ADAPTED_STEPS, AdaptedStep, AdapterPlaces, layers_of, places_of, stored_tensors

FIELD_OF_STEP: dict[AdaptedStep, str] = {
    "attn": "mh_adapter", "cross": "cross_adapter", "ff": "output_adapter",
}  # fmt: skip
# A tensor of an adapter there, and the parameter of a bottleneck here.
TENSORS = {
    "adapter_down.0.weight": "down", "adapter_down.0.bias": "down_bias", "adapter_up.weight": "up",
    "adapter_up.bias": "up_bias",
}  # fmt: skip
SCALING = {"scaling": "learned_scale"}
LEARNED: dict[object, LearnedScale] = {"learned": "one", "channel": "channels"}


class Adapter(NamedTuple):
    """One adapter of the folder: the sub-layer here that it is beside, and its name in the file."""

    layer: str
    step: AdaptedStep
    path: str
    reduction: float

    @property
    def address(self) -> str:
        return f"{self.layer}.{self.step}"


def bottleneck_tuning(files: AdapterFiles, names: ModelNames) -> Bottleneck:
    """The value that describes the adapters of a folder, whose tensors are all there, and no others."""
    values, places = checked_fields(files.config), places_of(files.config.get("model_type"))
    adapters = _adapters(files.config, values, places, names)
    _check_tensors(files, values, adapters, names)
    reads = _reads(values, places, {adapter.step for adapter in adapters})
    reductions = {adapter.address: adapter.reduction for adapter in adapters}
    usual = Counter(reductions.values()).most_common(1)[0][0]
    first = next(iter(reads.values()))
    learned = LEARNED.get(values["scaling"], "none")
    try:
        return Bottleneck(
            reduction=usual,
            targets=_targets(adapters, names),
            reads=first,
            act=activation_of(values),
            scale=1.0 if learned != "none" else float(values["scaling"]),
            dropout=float(values["dropout"]),
            reduction_pattern=tuple((name, r) for name, r in reductions.items() if r != usual),
            reads_pattern=tuple((f"*.{step}", each) for step, each in reads.items() if each != first),
            learned_scale=learned,
        )
    except SpecError as error:
        raise LoadError(f"adapter_config.json: {reason(error)}") from error


def bottleneck_parameters(files: AdapterFiles, names: ModelNames) -> StateDict:
    """The parameters of a tuned model by their names here."""
    values, places = checked_fields(files.config), places_of(files.config.get("model_type"))
    stored = stored_tensors(files, names)
    return {
        f"{adapter.address}_bottleneck.{ours}": stored[f"{adapter.path}.{theirs}"]
        for adapter in _adapters(files.config, values, places, names)
        for theirs, ours in _tensors(values).items()
    }


def _adapters(
    config: Mapping[str, Any], values: Mapping[str, Any], places: AdapterPlaces, names: ModelNames
) -> list[Adapter]:
    """Every adapter that a folder of this config has."""
    name = adapter_name(config)
    found: list[Adapter] = []
    for i, layer in enumerate(layers_of(names)):
        if i in values["leave_out"]:
            continue
        for step in layer.steps:
            module = layer.module(places, step)
            if values[FIELD_OF_STEP[step]] and module is not None:
                path = f"{module}.adapters.{name}"
                found.append(Adapter(layer.address, step, path, reduction_of(values, i)))
    if not found:
        fields = ", ".join(FIELD_OF_STEP.values())
        raise LoadError(f"adapter_config.json: {fields} and leave_out leave no layer with an adapter")
    return found


def _reads(
    values: Mapping[str, Any], places: AdapterPlaces, steps: set[AdaptedStep]
) -> dict[AdaptedStep, BottleneckInput]:
    """What the adapters of every kind of sub-layer read."""
    stated = _stated_input(values, norm=places.norm)
    field = "is_parallel" if values["is_parallel"] else "original_ln_before"
    found: dict[AdaptedStep, BottleneckInput] = {}
    for step in ADAPTED_STEPS:
        if step in steps:
            reads = places.reads_at(step, stated)
            if reads is None:
                raise LoadError(
                    f"adapter_config.json: {field} is {quoted(values[field])}; in this family the library "
                    f"gives its adapters another input then than a layer here has, so only false is read"
                )
            found[step] = reads
    return found


def _stated_input(values: Mapping[str, Any], *, norm: bool) -> BottleneckInput:
    """What an adapter reads by its config, if it is what a `Bottleneck` can be."""
    before, after, residual = (
        values[key] for key in ("original_ln_before", "original_ln_after", "residual_before_ln")
    )
    kind = "post-norm" if norm else "pre-norm"
    if values["is_parallel"] or not before:
        if not after:
            raise _unlike("original_ln_after", after, "the stream is not added then", kind)
        if not values["is_parallel"] and residual == "post_add":
            raise _unlike("residual_before_ln", residual, "it needs original_ln_before", kind)
        return "input" if values["is_parallel"] else "output"
    if after and residual is True:
        return "sum"
    # x + h + a(x + h): the sum is in the residual, and is not added again after the adapter.
    if not after and residual is False and not norm:
        return "sum"
    if not after:
        raise _unlike(
            "original_ln_after", after, "its adapters act after the norm, or without the stream", kind
        )
    raise _unlike("residual_before_ln", residual, "the stream is added twice then", kind)


def _unlike(field: str, value: object, why: str, kind: str) -> LoadError:
    return LoadError(
        f"adapter_config.json: {field} is {quoted(value)}, which is not supported in a {kind} model with the "
        f"other fields of this config: {why}"
    )


def _targets(adapters: list[Adapter], names: ModelNames) -> tuple[str, ...]:
    """Patterns of the sub-layers: one for all layers, or their addresses where some are left out."""
    own = [adapter.address for adapter in adapters]
    every = [f"{layer.address}.{step}" for layer in layers_of(names) for step in layer.steps]
    found: list[str] = []
    for step in ADAPTED_STEPS:
        hit = [name for name in own if name.endswith(f".{step}")]
        whole = hit == [name for name in every if name.endswith(f".{step}")]
        found += [f"*.{step}"] if whole and hit else hit
    return tuple(found)


def _tensors(values: Mapping[str, Any]) -> dict[str, str]:
    return TENSORS | (SCALING if values["scaling"] in LEARNED else {})


def _check_tensors(
    files: AdapterFiles, values: Mapping[str, Any], adapters: list[Adapter], names: ModelNames
) -> None:
    """Every tensor must be one of these adapters, and be as wide as the config says."""
    stored = stored_tensors(files, names)
    expected = {f"{adapter.path}.{each}" for adapter in adapters for each in _tensors(values)}
    missing = [name for name in sorted(expected) if name not in stored]
    unknown = [name for name in stored if name not in expected]
    if missing or unknown:
        which = f"lacks {quoted(missing[0])}" if missing else f"has {quoted(unknown[0])}, which it should not"
        raise LoadError(
            f"the adapter {which} by its config and this model: it is of another base, or its file is damaged"
        )
    width = files.config["hidden_size"]
    for adapter in adapters:
        # Before a module is built: a reduction out of a file could ask for any amount of memory.
        narrow = max(1, int(width // adapter.reduction))
        shapes = {"adapter_down.0.weight": (narrow, width), "adapter_up.weight": (width, narrow)}
        for end, shape in shapes.items():
            found = tuple(stored[f"{adapter.path}.{end}"].shape)
            if found != shape:
                raise LoadError(
                    f"the adapter has {quoted(f'{adapter.path}.{end}')} of shape {found}; by hidden_size and "
                    f"reduction_factor of adapter_config.json it is {shape}"
                )
