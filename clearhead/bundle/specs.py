"""Specs of families: a family, its config and a head in; the spec, and what an edit of it added, out."""

from __future__ import annotations

from ..errors import SpecError
from ..families import Config, Family, HeadKind
from ..nn import Model

EXTRA = "clearhead."  # prefix of tensors that only an edited model has


def spec_of(family: Family, config: Config, task: HeadKind) -> Model:
    if task not in family.architectures:
        heads = ", ".join(family.architectures)
        raise SpecError(f"{family.title} has no head for {task!r} here; it has {heads}")
    return family.spec(config, task)


def added_parameters(plain: Model, edited: Model) -> list[str]:
    """The parameters that only the edited model has."""
    known = {name for name, _ in plain.empty().named_parameters()}
    return [name for name, _ in edited.empty().named_parameters() if name not in known]


def removed_parameters(plain: Model, edited: Model) -> set[str]:
    """The parameters that the edited model no longer has."""
    return set(added_parameters(edited, plain))
