"""A family: their config in, our spec and a weight table out. Data, with a few helpers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ..errors import SpecError, nearest, quoted, shortened
from ..nn import Model
from ..weights import Table
from . import schema

HeadKind = Literal[
    "hidden", "tokens", "labels", "tags", "span", "choice", "pair", "pretrain", "replaced",
    "encoder", "decoder",
]  # fmt: skip
"""What the head outputs: states, words, a label, a label per token, a span, the score of one of several
choices, whether two texts follow; `pretrain` is words with a second head for whether two texts follow,
`replaced` whether each token was replaced by another (ELECTRA).

Of a family with both towers, `encoder` is the encoder alone, which outputs states, and `decoder` the decoder
alone, which outputs words."""

# The heads for which a family with an encoder and a decoder keeps one of them, and which.
ONE_TOWER: dict[HeadKind, Literal["encoder", "decoder"]] = {
    "encoder": "encoder",
    "tags": "encoder",
    "decoder": "decoder",
}
# What the two kinds output that are named after their tower.
ONE_TOWER_OUTPUTS: dict[HeadKind, HeadKind] = {"encoder": "hidden", "decoder": "tokens"}

# The end of a class name in `architectures` determines which head a checkpoint has, unless the family lists
# the class itself.
HEAD_BY_SUFFIX: dict[str, HeadKind] = {
    "ForCausalLM": "tokens",
    "LMHeadModel": "tokens",
    "ForMaskedLM": "tokens",
    "ForPreTraining": "pretrain",
    "ForConditionalGeneration": "tokens",
    "MTModel": "tokens",
    "ForSequenceClassification": "labels",
    "ForTokenClassification": "tags",
    "ForQuestionAnswering": "span",
    "ForMultipleChoice": "choice",
    "ForNextSentencePrediction": "pair",
    "Model": "hidden",
}

# Keys that other models, or older files, call otherwise: a name, and what a family that lacks it may call it.
OTHER_NAMES: dict[str, tuple[str, ...]] = {
    "hidden_size": ("n_embd", "d_model", "dim"),
    "num_hidden_layers": ("n_layer", "n_layers", "num_layers", "encoder_layers"),
    "num_attention_heads": ("n_head", "n_heads", "num_heads", "encoder_attention_heads"),
    "max_position_embeddings": ("n_positions",),
    "num_experts": ("num_local_experts", "n_routed_experts"),
    "num_local_experts": ("n_routed_experts",),
    "attention_probs_dropout_prob": ("attention_dropout",),
    "initializer_range": ("init_std",),
    "head_dim": ("d_kv",),
    "n_token": ("vocab_size",),
    "n_embed": ("hidden_size",),
}
CLASS_HEAD = re.compile("For[A-Z][A-Za-z]*$")


class Config(dict[str, Any]):
    """Their config.json over the family's defaults; a key that is in neither is an error."""

    stored: frozenset[str] = frozenset()  # the tensor names of the checkpoint, where there is one

    def __missing__(self, key: str) -> Any:
        raise SpecError(f"config.json has no {key!r}; {nearest(key, self)}")

    @property
    def labels(self) -> int:
        return len(self.get("id2label") or {}) or int(self.get("num_labels") or 2)


@dataclass(frozen=True)
class Family:
    """One entry of the table of families."""

    name: str
    title: str
    year: int
    paper: str
    mode: Literal["bidirectional", "causal", "encoder-decoder"]
    uses: str  # typical tasks, in a few words
    spec: Callable[[Config, HeadKind], Model]
    weights: Callable[[Config, HeadKind], Table]
    defaults: Mapping[str, Any]  # defaults of their config class
    sizes: Mapping[str, Mapping[str, Any]]  # named sizes: changes to the defaults
    architectures: Mapping[HeadKind, str]  # the class of theirs that has this head
    head_config: Mapping[HeadKind, Mapping[str, Any]] = field(default_factory=dict)  # keys that a head needs
    prefix: str = ""  # prefix of every name but the head's; base-model files leave it out
    head_prefix: Mapping[HeadKind, str] = field(default_factory=dict)  # of files with this head, if another
    bare: frozenset[HeadKind] = frozenset({"hidden"})  # the classes whose files leave the prefix out
    parent: str | None = None  # the family it descends from, for the family tree
    model_type: str | None = None  # what config.json calls it, where that is not its name
    only: Mapping[str, Any] = field(default_factory=dict)  # keys with one supported value: see ONLY_SUPPORTED
    also: tuple[str, ...] = ()  # other models of the same architecture, for tables of families

    @property
    def titles(self) -> str:
        return ", ".join((self.title, *self.also))

    @property
    def key(self) -> str:
        return self.model_type or self.name

    def stored_name(self, name: str, head: HeadKind) -> str:
        """A name of the weight table as files with this head have it."""
        if head not in self.head_prefix or not name.startswith(self.prefix):
            return name
        return self.head_prefix[head] + name.removeprefix(self.prefix)

    def table_name(self, name: str) -> str:
        """The inverse of `stored_name`, for any head."""
        own = next((prefix for prefix in self.head_prefix.values() if name.startswith(prefix)), None)
        return name if own is None else self.prefix + name.removeprefix(own)

    def tower_of(self, head: HeadKind) -> Literal["encoder", "decoder"] | None:
        """The tower that a model with this head is; None: it has all towers of the family."""
        return ONE_TOWER.get(head) if self.mode == "encoder-decoder" else None

    def config(self, values: Mapping[str, Any], stored: Iterable[str] = ()) -> Config:
        normalized = self._own_names(normalize_config(values))
        schema.check_config(normalized, self.defaults, self.only)
        config = Config({**self.defaults, **normalized})
        if "rope_parameters" in self.defaults:
            config["rope_parameters"] = self._rope_parameters(config, values)
        if config.get("id2label"):  # their number wins over a default for it
            config.pop("num_labels", None)
        config.stored = frozenset(stored)
        return config

    def _own_names(self, config: dict[str, Any]) -> dict[str, Any]:
        """The config with this family's names of keys. As with theirs, another name wins over its own."""
        for name, others in OTHER_NAMES.items():
            own = next((key for key in others if key in self.defaults), None)
            if own is not None and name not in self.defaults and config.get(name) is not None:
                config[own] = config.pop(name)
        return config

    def _rope_parameters(self, config: Config, given: Mapping[str, Any]) -> Any:
        """Those of the config, with the family's base of the frequencies where they have none."""
        default, rope = self.defaults["rope_parameters"], config["rope_parameters"]
        kinds = [kind for kind, value in default.items() if isinstance(value, dict)]
        if kinds:
            # Their classes read nothing of a `rope_parameters` without such objects; older keys are flat.
            flat = given.get("rope_parameters")
            if flat and not any(kind in flat for kind in kinds):
                expected = f"expected an object for each of {', '.join(kinds)}"
                raise SpecError(f"rope_parameters is {quoted(flat)}; {expected}")
            scaling = given.get("rope_scaling")
            if scaling and "rope_type" not in scaling:
                raise SpecError(f"rope_scaling is {quoted(scaling)}; expected a rope_type in it")
            return rope
        if any(isinstance(value, dict) for value in rope.values()):
            raise SpecError(f"rope_parameters is {quoted(rope)}; {self.title} has one object for all layers")
        scaled = given.get("rope_scaling") or given.get("rope_parameters")
        if default.get("rope_type", "default") != "default" and "rope_theta" in given and not scaled:
            # Theirs would take its own scaling, base included, and ignore this one.
            raise SpecError(f"{self.title} has a rope_theta without rope_scaling; expected both or neither")
        theta = config["rotary_emb_base"] if "rotary_emb_base" in self.defaults else default.get("rope_theta")
        own = "rope_parameters" in normalize_config(given) and rope.get("rope_theta")
        return rope if own or theta is None else {**rope, "rope_theta": theta}

    def task(self, config: Mapping[str, Any]) -> HeadKind:
        """Which head a checkpoint has, from the class that saved it; by default the language-model head."""
        classes = config.get("architectures")
        if not isinstance(classes, list | tuple) or not classes:
            return "tokens"
        for task, name in self.architectures.items():
            if classes[0] == name:
                return task
        suffix = class_suffix(str(classes[0]))
        if suffix is None or config.get("auto_map"):
            raise SpecError(self._unknown_class(classes[0], config))
        task = HEAD_BY_SUFFIX[suffix]
        return task if task != "pretrain" or task in self.architectures else "tokens"

    def _unknown_class(self, name: object, config: Mapping[str, Any]) -> str:
        line = f"architectures names {quoted(name)}, a class that is not known here"
        if config.get("auto_map"):
            line += "; it is code from the model's repository (auto_map), which Clearhead never runs"
        known = shortened(", ".join(self.architectures.values()), 120)
        return f"{line}; {self.title} has {known}"


def class_suffix(name: str) -> str | None:
    """The part of a class name that determines its head; None for a head that is not known."""
    # A head is named after a word "For"; RoFormer has these letters, too, in its name.
    named = CLASS_HEAD.search(name)
    suffixes = [named[0]] if named else [end for end in HEAD_BY_SUFFIX if not end.startswith("For")]
    return next((end for end in suffixes if end in HEAD_BY_SUFFIX and name.endswith(end)), None)


def normalize_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Replace old key names: torch_dtype -> dtype, rope_theta and rope_scaling -> rope_parameters."""
    config = dict(config)
    if "torch_dtype" in config:
        config.setdefault("dtype", config.pop("torch_dtype"))
    theta, scaling = config.pop("rope_theta", None), config.pop("rope_scaling", None)
    rope = scaling or config.pop("rope_parameters", None)
    if theta is not None:
        rope = {"rope_theta": theta} | rope if isinstance(rope, dict) else rope or {"rope_theta": theta}
    if isinstance(rope, dict) and (theta is not None or scaling or "type" in rope):
        rope = {"rope_type": rope.get("type", "default"), **rope}  # an even older key name
        rope.pop("type", None)
    if rope is not None:
        config["rope_parameters"] = rope
    return config
