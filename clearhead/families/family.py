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
from .key_names import complete_rope, normalize_config, with_own_names

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
    # The weight table of transformers' class in memory, where its modules are not called as in its files.
    class_weights: Callable[[Config, HeadKind], Table] | None = None
    # Ends of names of layers that PEFT takes for those of its experts, which are no layers there.
    names_of_experts: frozenset[str] = frozenset()
    linear_experts: bool = False  # whether each layer of an expert is a module there, and not a part of one
    prefix: str = ""  # prefix of every name but the head's; base-model files leave it out
    head_prefix: Mapping[HeadKind, str] = field(default_factory=dict)  # of files with this head, if another
    bare: frozenset[HeadKind] = frozenset({"hidden"})  # the classes whose files leave the prefix out
    # Heads of models that lack the last layers of the family (Funnel), where there is one tower.
    encoder_heads: frozenset[HeadKind] = frozenset()
    no_size_words: frozenset[str] = frozenset()  # config keys that the size words of recipes leave alone
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
        if head in self.encoder_heads:
            return "encoder"
        return ONE_TOWER.get(head) if self.mode == "encoder-decoder" else None

    def config(self, values: Mapping[str, Any], stored: Iterable[str] = ()) -> Config:
        normalized = with_own_names(normalize_config(values), self.defaults)
        schema.check_config(normalized, self.defaults, self.only)
        config = Config({**self.defaults, **normalized})
        if "rope_parameters" in self.defaults:
            config["rope_parameters"] = complete_rope(config, values, self.defaults)
        if config.get("id2label"):  # their number wins over a default for it
            config.pop("num_labels", None)
        config.stored = frozenset(stored)
        return config

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
