"""Tunings: a model and a frozen value in; a second tree over the same weights, with what learns, out.

    tuned = attach_tuning(model, names, Lora(rank=8))        # the model stays what it was

The base is the model before, the reference of a comparison, and what other tunings share. A tuned model is a
model like any other: it decodes, is traced, scored and saved.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from ..errors import InputError, quoted
from ..nn import Model, TransformerModel
from ..spec import Spec
from .names import ModelNames, names_of_parameters
from .tree import own_parameters, second_tree


@dataclass(frozen=True)
class Attachment:
    """What `Tuning.attach` did: the modules it changed, and the parameters of the model that learn, too."""

    layers: tuple[str, ...] = ()
    learn: tuple[str, ...] = ()
    spec: Model | None = None  # of the tuned model, where it is another one


@dataclass(frozen=True, kw_only=True)
class Tuning(Spec):
    """What is added to a model to be trained, and which of its parameters learn. The subclasses are kinds."""

    unit: ClassVar[str] = "linear layer"  # what it changes, for messages
    rate: ClassVar[float] = 1.0  # its learning rate, in multiples of that of full fine-tuning
    # Patterns of parameters of the model that learn as well: a head, a table.
    modules_to_save: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        # Lists, {pattern: value} and one pattern alone are what people write.
        for field in fields(self):
            value = getattr(self, field.name)
            object.__setattr__(self, field.name, _as_tuple(value, is_several=field.default == ()))
        super().__post_init__()

    @property
    def is_whole(self) -> bool:
        """Whether the tuned model is saved as a model of its own, and not as an adapter over its base."""
        return False

    def rate_for(self, share: float) -> float:
        """The learning rate in multiples of that of full fine-tuning, if this share of the model learns."""
        return self.rate

    def attach(self, model: TransformerModel, names: ModelNames, seed: int) -> Attachment:
        """Add the parts that learn, in place, to a tree of modules that nobody else has."""
        raise NotImplementedError


def _as_tuple(value: Any, *, is_several: bool) -> Any:
    if isinstance(value, Mapping):
        return tuple(value.items())
    if isinstance(value, list | tuple):
        return tuple(_as_tuple(each, is_several=False) for each in value)
    return (value,) if is_several and isinstance(value, str) else value


@dataclass(frozen=True, repr=False)
class AttachedTuning:
    """The tuning of a model: what it hit, and what learns."""

    value: Tuning
    layers: tuple[str, ...]  # addresses of the modules it changed
    trained: tuple[str, ...]  # names of the parameters that learn
    added: tuple[str, ...]  # those among them that the model before does not have
    trainable: int  # number of parameters that learn
    total: int  # parameters of the model before
    depth: Mapping[str, int]  # layers of each tower

    @property
    def rate(self) -> float:
        """Its learning rate, in multiples of that of full fine-tuning."""
        return self.value.rate_for(self.trainable / max(self.total, 1))

    @property
    def beside(self) -> list[str]:
        """What it added beside the layers that it changed, and what therefore cannot be merged into them."""
        inside = tuple(f"{name}." for name in self.layers)
        return [name for name in self.added if not name.startswith(inside)]

    @property
    def by_layer(self) -> dict[str, list[int]]:
        """How many modules of each layer of each tower it changed; none for towers it left alone."""
        counts = Counter(tuple(name.split(".")[:3:2]) for name in self.layers if ".blocks." in name)
        return {
            tower: [counts[tower, str(layer)] for layer in range(depth)]
            for tower, depth in self.depth.items()
            if any(key[0] == tower for key in counts)
        }

    def __repr__(self) -> str:
        return f"<{self}>"

    def __str__(self) -> str:
        percent = 100 * self.trainable / max(self.total, 1)
        share = f"{percent:.3g} %" if percent < 100 else f"{percent:,.0f} %"
        parts = [str(self.value)]
        if self.layers:
            parts.append(f"{len(self.layers)} {self.value.unit}{'' if len(self.layers) == 1 else 's'}")
        parts.append(f"{self.trainable:,} trainable parameters, {share} of {self.total:,}")
        for tower, counts in self.by_layer.items():
            name = "by layer" if len(self.by_layer) == 1 else f"{tower} by layer"
            parts.append(f"{name} {_runs(counts)}")
        return " · ".join(parts)


def _runs(counts: Sequence[int]) -> str:
    """6 6 6 0 as `6 6 6 0`, a long row of the same number as `7 x 30`."""
    groups: list[list[int]] = []
    for count in counts:
        if groups and groups[-1][0] == count:
            groups[-1].append(count)
        else:
            groups.append([count])
    return " ".join(
        f"{group[0]} x {len(group)}" if len(group) > 6 else " ".join(map(str, group)) for group in groups
    )


@dataclass(frozen=True)
class TunedModel:
    model: TransformerModel
    spec: Model
    tuning: AttachedTuning


def attach_tuning(
    model: TransformerModel,
    tuning: object,
    *,
    names: ModelNames | None = None,
    seed: int = 0,
    learn: Sequence[str] = (),
) -> TunedModel:
    """A second tree over the weights of `model`. `learn` are parameters that learn whatever the tuning is,
    such as those of a new head.
    """
    if not isinstance(tuning, Tuning):
        known = ", ".join(Tuning.kinds())
        raise InputError(f"a tuning is one of {known}, such as Lora(rank=8); given {quoted(tuning)}")
    before = dict(model.named_parameters())
    if names is None:
        parameters, aliases = names_of_parameters(model)
        names = ModelNames(parameters, aliases=aliases)
    tuned = second_tree(model)
    wanted = [*learn]
    for pattern in tuning.modules_to_save:
        wanted += names.parameters_named(pattern, "modules_to_save")
    attached = tuning.attach(tuned, names, seed)
    own_parameters(tuned, dict.fromkeys([*wanted, *attached.learn]))
    learning = {name: p for name, p in tuned.named_parameters() if p.requires_grad}
    record = AttachedTuning(
        tuning,
        attached.layers,
        tuple(learning),
        tuple(name for name in learning if name not in before),
        sum(p.numel() for p in learning.values()),
        sum(p.numel() for p in before.values()),
        {name: len(stack.blocks) for name, stack in model.stacks.items()},
    )
    return TunedModel(tuned, attached.spec or model.spec, record)
