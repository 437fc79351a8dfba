"""The fields of a config of the library adapters: untrusted JSON in, checked values out.

A field that would make another adapter than a value here can say is an error that names it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import LoadError, nearest, quoted
from ...families import HF_ACTIVATIONS
from ...nn import Activation

REQUIRED = "required"
# Fields with their defaults, those of the class BnConfig.
BOTTLENECK_DEFAULTS: dict[str, Any] = {
    "mh_adapter": REQUIRED, "output_adapter": REQUIRED, "cross_adapter": False,
    "reduction_factor": REQUIRED, "non_linearity": REQUIRED, "original_ln_before": False,
    "original_ln_after": True, "residual_before_ln": True, "is_parallel": False, "scaling": 1.0,
    "leave_out": [], "dropout": 0.0,
}  # fmt: skip
# Fields of parts that are not read here, with the values at which the part is absent.
BOTTLENECK_ABSENT: dict[str, tuple[Any, ...]] = {
    "ln_before": (False,), "ln_after": (False,), "use_gating": (False,), "phm_layer": (False,),
    "inv_adapter": (None,), "invertible_adapter": (None,), "stochastic_depth": (None, 0, 0.0),
    "architecture": (None,),
}  # fmt: skip
# Fields of those parts, and of how the weights were drawn: without an effect where the part is absent.
BOTTLENECK_UNUSED = frozenset({
    "adapter_residual_before_ln", "init_weights", "init_weights_seed", "inv_adapter_reduction_factor",
    "phm_dim", "factorized_phm_W", "shared_W_phm", "shared_phm_rule", "factorized_phm_rule", "phm_c_init",
    "phm_init_range", "learn_phm", "hypercomplex_nonlinearity", "phm_rank", "phm_bias",
})  # fmt: skip
HUB_ACTIVATIONS: Mapping[str, Activation] = {
    **HF_ACTIVATIONS, "gelu_python": "gelu", "gelu_accurate": "gelu_tanh",
}  # fmt: skip
# Folders without a version are older than the library's names for these.
OLD_ACTIVATIONS = {"gelu": "gelu_new", "gelu_orig": "gelu"}


@dataclass(frozen=True)
class Fields:
    """What a config of one method may hold."""

    defaults: Mapping[str, Any]  # fields that are read; `REQUIRED` for those that every config has
    types: Mapping[str, tuple[Callable[[object], bool], str]]  # of those, and how to say them
    absent: Mapping[str, tuple[Any, ...]]  # fields of parts that are not read, where the part is absent
    unused: frozenset[str]  # fields without an effect on what is computed

    def checked(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The fields that are read, each of the type it must have."""
        for name, value in given.items():
            self._check_known(name, value)
        values = {name: given.get(name, default) for name, default in self.defaults.items()}
        for name, value in values.items():
            if value is REQUIRED:
                raise LoadError(f"adapter_config.json: config has no {name}; the file is damaged")
            fits, expected = self.types[name]
            if not fits(value):
                raise LoadError(f"adapter_config.json: {name} is {quoted(value)}; expected {expected}")
        return values

    def _check_known(self, name: str, value: Any) -> None:
        if name in self.absent:
            if not any(type(value) is type(each) and value == each for each in self.absent[name]):
                raise LoadError(
                    f"adapter_config.json: {name} is {quoted(value)}, which is not supported; supported: "
                    f"{quoted(self.absent[name][0])}"
                )
        elif name not in self.unused and name not in self.defaults:
            hint = nearest(name, [*self.defaults, *self.absent, *self.unused])
            raise LoadError(
                f"adapter_config.json: config has {quoted(name)}, which is not known here; {hint}"
            )


def fields_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config in adapter_config.json, not yet checked."""
    fields = config.get("config")
    if not isinstance(fields, dict):
        raise LoadError(f"adapter_config.json: config is {quoted(fields)}; expected the fields of an adapter")
    return fields


def adapter_name(config: Mapping[str, Any]) -> str:
    """The name of the adapter, which is in the names of its tensors."""
    name = config.get("name")
    if not isinstance(name, str) or not name or "." in name:
        raise LoadError(f"adapter_config.json: name is {quoted(name)}; expected a name without dots")
    return name


def checked_fields(config: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a bottleneck adapter."""
    values = BOTTLENECK.checked(fields_of(config))
    if "version" not in config:
        values["non_linearity"] = OLD_ACTIVATIONS.get(values["non_linearity"], values["non_linearity"])
    return values


def activation_of(values: Mapping[str, Any]) -> Activation:
    word = values["non_linearity"].lower()
    if word not in HUB_ACTIVATIONS:
        raise LoadError(
            f"adapter_config.json: non_linearity is {quoted(values['non_linearity'])}, which is not "
            f"supported; {nearest(word, HUB_ACTIVATIONS)}"
        )
    return HUB_ACTIVATIONS[word]


def reduction_of(values: Mapping[str, Any], layer: int) -> float:
    """How many times narrower the adapters of a layer are; their layers are counted from the encoder on."""
    given = values["reduction_factor"]
    if not isinstance(given, dict):
        return float(given)
    found = given.get(str(layer), given.get("default"))
    if found is None:
        raise LoadError(
            f"adapter_config.json: reduction_factor has neither a value for layer {layer} nor a default"
        )
    return float(found)


def is_bool(value: object) -> bool:
    return isinstance(value, bool)


def is_residual(value: object) -> bool:
    return is_bool(value) or value == "post_add"


def is_positive(value: object) -> bool:
    # Not NaN either, which is in no range.
    return isinstance(value, int | float) and not isinstance(value, bool) and 1e-30 <= value <= 1e30


def is_reduction(value: object) -> bool:
    return is_positive(value) or (isinstance(value, dict) and all(map(is_positive, value.values())))


def is_scaling(value: object) -> bool:
    return is_positive(value) or value in ("learned", "channel")


def is_rate(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1


def is_text(value: object) -> bool:
    return isinstance(value, str)


def is_layers(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(i, int) and not isinstance(i, bool) for i in value)


YES_OR_NO = (is_bool, "true or false")
BOTTLENECK_TYPES: dict[str, tuple[Callable[[object], bool], str]] = {
    "mh_adapter": YES_OR_NO,
    "output_adapter": YES_OR_NO,
    "cross_adapter": YES_OR_NO,
    "reduction_factor": (is_reduction, "a number above 0, or one for each layer"),
    "non_linearity": (is_text, "the name of an activation"),
    "original_ln_before": YES_OR_NO,
    "original_ln_after": YES_OR_NO,
    "residual_before_ln": (is_residual, "true, false or 'post_add'"),
    "is_parallel": YES_OR_NO,
    "scaling": (is_scaling, "a number above 0, 'learned' or 'channel'"),
    "leave_out": (is_layers, "a list of numbers of layers"),
    "dropout": (is_rate, "a number from 0 to 1"),
}
BOTTLENECK = Fields(BOTTLENECK_DEFAULTS, BOTTLENECK_TYPES, BOTTLENECK_ABSENT, BOTTLENECK_UNUSED)
