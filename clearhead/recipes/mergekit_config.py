"""Merge configs of mergekit: a YAML file in; models, a method as a value, a base and a number format out.

A parameter is a number, a gradient over the layers (a list of numbers), or one of these by a part of the
tensor's name (`filter`). What it is for each parameter of the model becomes the patterns of a method. Every
key must be known: what is not supported is an error, never ignored.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ..bundle import Bundle, model_names, open_mapped
from ..errors import InputError, nearest, quoted
from ..tune import MergeMethod, Slerp, SparseMerge, WeightedAverage
from .merge_words import merge_word
from .yamlfile import read_yaml

MERGEKIT_KEYS = ("models", "slices", "merge_method", "base_model", "parameters", "dtype", "out_dtype")
METHODS_READ = ("linear", "slerp", "task_arithmetic", "ties", "dare_linear", "dare_ties")
# Parameters of all models together. That of int8_mask saves memory there, and has no effect on numbers.
SHARED = ("normalize", "rescale", "lambda", "int8_mask", "weight", "density", "t")
OF_MODELS = ("weight", "density", "t")
LAYER_NAME = re.compile(r"(\w+)\.blocks\.(\d+)\.")


@dataclass(frozen=True)
class MergePlan:
    """What `ch.merge` is called with."""

    models: tuple[str, ...]
    method: MergeMethod
    base: str | None = None
    dtype: str | None = None


@dataclass(frozen=True)
class _Model:
    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    layers: object = None  # [0, 32]: all of them


def read_mergekit(path: Path) -> MergePlan:
    tree, where = read_yaml(path), path.name
    _check_keys(tree, MERGEKIT_KEYS, where)
    kind = tree.get("merge_method")
    if kind not in METHODS_READ:
        merge_word(str(kind))  # says what is nearest, of a method that is not here
        raise InputError(f"{where}: merge_method is {quoted(kind)}; {nearest(str(kind), METHODS_READ)}")
    shared = tree.get("parameters") or {}
    _check_keys(shared, SHARED, f"{where}: parameters")
    base = tree.get("base_model")
    if base is not None and not isinstance(base, str):
        raise InputError(f"{where}: base_model is {quoted(base)}; expected the name of a model")
    models, base = _without_base(_models(tree, where), base, kind, where)
    settings = _Settings(models, shared, open_mapped(models[0].name), where)
    settings.check_layers()
    dtype = tree.get("out_dtype") or tree.get("dtype")
    return MergePlan(tuple(each.name for each in models), _method(kind, settings), base, dtype)


def _check_keys(tree: Any, known: Sequence[str], where: str) -> None:
    if not isinstance(tree, dict):
        raise InputError(f"{where} is {quoted(tree)}; expected the keys {', '.join(known)}")
    for key in tree:
        if key not in known:
            raise InputError(f"{where}: {quoted(key)} is not supported; supported: {', '.join(known)}")


def _models(tree: Mapping[str, Any], where: str) -> list[_Model]:
    """The models of a config: as a list, or as one slice that has all their layers."""
    if ("models" in tree) == ("slices" in tree):
        raise InputError(f"{where}: expected models, a list, or slices with one slice of all layers")
    rows, known = tree.get("models"), ["model", "parameters"]
    if "slices" in tree:
        slices = tree["slices"]
        if not isinstance(slices, list) or len(slices) != 1:
            raise InputError(f"{where}: slices that are stacked are not supported; merge models of one shape")
        _check_keys(slices[0], ("sources",), f"{where}: slices")
        rows, known = slices[0].get("sources"), [*known, "layer_range"]
    if not isinstance(rows, list) or not rows:
        raise InputError(f"{where}: models is {quoted(rows)}; expected a list")
    found = []
    for row in rows:
        _check_keys(row, known, f"{where}: models")
        if not isinstance(row.get("model"), str):
            raise InputError(f"{where}: model is {quoted(row.get('model'))}; expected a name")
        parameters = row.get("parameters") or {}
        _check_keys(parameters, OF_MODELS, f"{where}: parameters of {row['model']}")
        found.append(_Model(row["model"], parameters, row.get("layer_range")))
    return found


def _without_base(
    models: list[_Model], base: str | None, kind: str, where: str
) -> tuple[list[_Model], str | None]:
    """The models that are merged: of slerp the base first, of other methods without it."""
    method = merge_word(kind).kind
    if issubclass(method, Slerp):
        first = [each for each in models if each.name == base]
        if not first or len(models) != 2:
            raise InputError(f"{where}: slerp merges two models, and base_model is the one at t = 0")
        return [*first, *(each for each in models if each.name != base)], None
    if not method.needs_base:
        if base is not None:
            raise InputError(f"{where}: {kind} has no base_model; leave it out")
        return models, None
    if base is None:
        raise InputError(f"{where}: {kind} merges differences to a base; expected base_model")
    found = [each for each in models if each.name != base]
    if not found:
        raise InputError(f"{where}: there is no model besides {quoted(base)}")
    return found, base


@dataclass
class _Settings:
    """The parameters of a config, for each parameter of a model."""

    models: Sequence[_Model]
    shared: Mapping[str, Any]
    bundle: Bundle
    where: str

    @cached_property
    def names(self) -> dict[str, tuple[str, ...]]:
        """Every parameter, and what it is called in the checkpoint."""
        found = model_names(self.bundle)
        theirs: dict[str, list[str]] = {name: [name] for name in found.parameters}
        for their, ours in found.tensors.items():
            for name in ours:
                theirs[name].append(their)
        return {name: tuple(every) for name, every in theirs.items()}

    def check_layers(self) -> None:
        depth = max(len(stack.blocks) for stack in self.bundle.model.stacks.values())
        for each in self.models:
            if each.layers is not None and each.layers != [0, depth]:
                raise InputError(
                    f"{self.where}: layer_range of {each.name} is {quoted(each.layers)}; only all layers can "
                    f"be merged, [0, {depth}]"
                )

    def flag(self, key: str, *, default: bool) -> bool:
        value = self.shared.get(key, default)
        if not isinstance(value, bool):
            raise InputError(f"{self.where}: {key} is {quoted(value)}; expected true or false")
        return value

    def number(self, key: str, default: float) -> float:
        return self._number(key, self.shared.get(key, default))

    def by_parameter(self, key: str, value_of: Callable[[str], Any]) -> dict[str, Any]:
        """The value that most parameters have, and patterns for the others."""
        values = {name: value_of(name) for name in self.names}
        most = Counter(values.values()).most_common(1)[0][0]
        others = tuple((name, value) for name, value in values.items() if value != most)
        return {key: most, f"{key}_pattern": others}

    def of_models(self, key: str, name: str, default: float | None = None) -> tuple[float, ...]:
        """The number that each model has for a parameter."""
        return tuple(self._of(key, name, (each.parameters, self.shared), default) for each in self.models)

    def of_all(self, key: str, name: str) -> float:
        return self._of(key, name, (self.shared,), None)

    def _of(self, key: str, name: str, scopes: Sequence[Mapping[str, Any]], default: float | None) -> float:
        for scope in scopes:
            found = self._resolve(key, scope.get(key), name)
            if found is not None:
                return found
        if default is None:
            raise InputError(f"{self.where}: {key} is missing for {self.names[name][-1]}")
        return default

    def _resolve(self, key: str, setting: Any, name: str) -> float | None:
        """A setting for one parameter; None where it says nothing about it."""
        if setting is None:
            return None
        rows = [setting] if isinstance(setting, Mapping) else setting
        if not isinstance(rows, list):
            return self._number(key, rows)
        if rows and all(isinstance(row, Mapping) for row in rows):
            for row in rows:
                _check_keys(row, ("filter", "value"), f"{self.where}: {key}")
                part = row.get("filter")
                if part in (None, "*") or any(str(part) in each for each in self.names[name][1:]):
                    return self._resolve(key, row.get("value"), name)
            return None
        numbers = [self._number(key, row) for row in rows]
        return _interpolated(numbers, self._depth(name)) if numbers else None

    def _depth(self, name: str) -> float:
        """Where in its tower a layer is, from 0 to 1; 0 for what is in no layer."""
        found = LAYER_NAME.match(name)
        if found is None:
            return 0.0
        count = len(self.bundle.model.stacks[found[1]].blocks)
        return int(found[2]) / (count - 1) if count > 1 else 1.0

    def _number(self, key: str, value: Any) -> float:
        try:
            if isinstance(value, bool):
                raise ValueError
            return float(value)  # YAML 1.1 reads 1e-3 as a word
        except (TypeError, ValueError):
            raise InputError(f"{self.where}: {key} is {quoted(value)}; expected a number") from None


def _interpolated(numbers: Sequence[float], place: float) -> float:
    at = place * (len(numbers) - 1)
    low = min(int(at), len(numbers) - 1)
    high = min(low + 1, len(numbers) - 1)
    return numbers[low] + (at - low) * (numbers[high] - numbers[low])


def _method(kind: str, settings: _Settings) -> MergeMethod:
    """The method with its settings as mergekit means them, its own defaults included."""
    method = merge_word(kind).kind
    if issubclass(method, Slerp):
        return Slerp(**settings.by_parameter("t", lambda name: settings.of_all("t", name)))
    values = settings.by_parameter("weights", lambda name: settings.of_models("weight", name))
    if issubclass(method, WeightedAverage):
        return method(**values, normalize=settings.flag("normalize", default=True))
    values["scale"] = settings.number("lambda", 1.0)
    normalize = settings.flag("normalize", default=kind == "ties")
    rescale = settings.flag("rescale", default=kind.startswith("dare"))
    if issubclass(method, SparseMerge):
        values |= settings.by_parameter("density", lambda name: settings.of_models("density", name, 1.0))
    if kind.startswith("dare"):
        values["rescale"] = "l1" if rescale else "none"
    elif rescale:
        raise InputError(f"{settings.where}: rescale is for dare_linear and dare_ties; leave it out")
    by_signs = kind.endswith("ties")
    values |= {"average": "weights" if normalize else "none"} if by_signs else {"normalize": normalize}
    return method(**values)
