"""Names of a model: what its checkpoint calls the parameters and the linear layers of a model here.

Both kinds of name are understood in patterns, and adapters are stored under those of the checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from torch import nn

from ..errors import InputError, nearest, quoted
from ..patterns import NamePattern
from ..weights import (
    Alias,
    StateDict,
    StoredMatrix,
    Table,
    export,
    load_tensors,
    stored_matrices,
    targets,
    their_names,
)


def _same(name: str) -> str:
    return name


def names_of_parameters(model: nn.Module) -> tuple[tuple[str, ...], dict[str, str]]:
    """The names of all parameters, and the other names of those that are shared, as layers of ALBERT are."""
    first = {parameter: name for name, parameter in model.named_parameters()}
    every = model.named_parameters(remove_duplicate=False)
    return tuple(first.values()), {name: first[p] for name, p in every if first[p] != name}


@dataclass(frozen=True)
class ModelNames:
    """`parameters` are all names here; without a table, of a model of no family, there are no others."""

    parameters: tuple[str, ...]
    table: Table = ()
    of_table: Callable[[str], str] = _same  # a name of the table as the class of transformers has it
    to_table: Callable[[str], str] = _same  # and back
    prefixes: tuple[str, ...] = ()  # of the base model, in names of classes with a head
    linear_experts: bool = False  # whether each layer of an expert is a module of that class
    names_of_experts: frozenset[str] = frozenset()  # ends of names that PEFT takes for layers of experts
    # Other names of shared parameters, and that among `parameters`.
    aliases: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def matrices(self) -> dict[str, StoredMatrix]:
        """The linear layers of transformers' class by their names."""
        found = stored_matrices(self.parameters, self.table)
        return {self.of_table(name): matrix for name, matrix in found.items()}

    @cached_property
    def tensors(self) -> dict[str, tuple[str, ...]]:
        """The parameters of transformers' class by their names, each with the names here."""
        found = their_names(self.parameters, self.table)
        return {self.of_table(name): ours for name, ours in found.items()}

    @cached_property
    def modules(self) -> dict[str, tuple[str, ...]]:
        """Their linear layers by all names that they go by: with the prefix of the family and without."""
        found = {name: matrix.parts for name, matrix in stored_matrices(self.parameters, self.table).items()}
        return {**found, **{name: matrix.parts for name, matrix in self.matrices.items()}}

    @cached_property
    def tied(self) -> dict[str, tuple[str, ...]]:
        """Parameters with further names in transformers' class, as a table that is tied to the output."""
        found: dict[str, tuple[str, ...]] = {}
        for rule in self.table:
            if isinstance(rule, Alias) and rule.ours in self.parameters:
                found[rule.ours] = (*found.get(rule.ours, ()), self.of_table(rule.theirs))
        return found

    @cached_property
    def paths(self) -> list[str]:
        """All modules of transformers' class that hold a parameter, and those that these are in."""
        every = [*self.tensors, *(name for names in self.tied.values() for name in names)]
        parts = [name.split(".") for name in every]
        return sorted({".".join(each[:end]) for each in parts for end in range(1, len(each))})

    @property
    def fused(self) -> list[tuple[str, ...]]:
        """Layers here that are one matrix there."""
        return [matrix.parts for matrix in self.matrices.values() if len(matrix.parts) > 1]

    def of_module(self, ours: str) -> list[str]:
        """The names that the checkpoint has for a linear layer."""
        return [name for name, parts in self.modules.items() if ours in parts]

    def parameters_named(self, pattern: str, what: str) -> list[str]:
        """The names here of the parameters that a pattern names, in either spelling."""
        wanted = NamePattern(pattern, anywhere=True)
        theirs = {**their_names(self.parameters, self.table), **self.tensors}
        found = set(wanted.among(self.parameters))
        found |= {self.aliases[name] for name in wanted.among(self.aliases)}
        found |= {name for each in wanted.among(theirs) for name in theirs[each]}
        if not found:
            hint = nearest(pattern, [*self.parameters, *theirs])
            raise InputError(f"{what} {quoted(pattern)} matches no parameter; {hint}")
        return [name for name in self.parameters if name in found]

    def biases_of_modules(self, layers: Collection[str] | None = None) -> list[str]:
        """The biases here that are the bias of a module there: of these linear layers, or all.

        `final_logits_bias` of BART is a buffer, and `q_bias` of DeBERTa a parameter beside its matrix.
        """
        own = [name for name in self.parameters if name.endswith("bias")]
        if layers is not None:
            own = [name for name in own if name.removesuffix(".bias") in layers]
        if not self.table:
            return own
        inside = {name for theirs, ours in self.tensors.items() if theirs.endswith(".bias") for name in ours}
        if layers is not None:
            known = [name for path in self.matrices for name in self.tensors.get(f"{path}.bias", ())]
            inside &= set(known)
        return [name for name in own if name in inside]

    def has_bias_elsewhere(self, layer: str) -> bool:
        """Whether a linear layer here adds a bias that the layer there does not: it is added after it."""
        bias = f"{layer}.bias"
        return bias in self.parameters and bias not in self.biases_of_modules([layer])

    def is_buffer(self, ours: str) -> bool:
        """Whether a parameter is in no module of theirs, as `final_logits_bias` of BART, a buffer."""
        return any(ours in parts and "." not in name for name, parts in self.tensors.items())

    def is_unused(self, name: str) -> bool:
        """Whether a tensor of theirs is known, and belongs to a part that the model here does not have."""
        return targets(self.to_table(name), self.table) == ()

    def export(self, state: Mapping[str, object], names: Iterable[str]) -> StateDict:
        """Tensors of transformers' class: those that hold any of these parameters, out of the whole state."""
        wanted = set(names)
        needed = {part for parts in self.tensors.values() if wanted & set(parts) for part in parts}
        chosen: StateDict = {name: state[name] for name in needed}  # type: ignore[misc]
        return {self.of_table(name): x for name, x in export(chosen, self.table).items()} if chosen else {}

    def load(self, tensors: StateDict) -> tuple[StateDict, list[str]]:
        """Tensors of transformers' class as parameters here, and the names of those that are unknown."""
        loaded = load_tensors({self.to_table(name): x for name, x in tensors.items()}, self.table)
        return loaded.state, [*loaded.unknown, *loaded.kept]
