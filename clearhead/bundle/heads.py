"""Another head on a checkpoint: its config and label names in; the config of a model with that head out.

The head a task needs replaces the one that a checkpoint has. What both have in common (BERT's pooler) keeps
its weights; the rest of the old head is dropped, and the new one starts from random weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ..errors import InputError, nearest, quoted
from ..families import Family, HeadKind
from ..weights import Table, targets

WITH_LABELS = ("labels", "tags")  # heads whose outputs have names
HEAD = ("head.", "second.")  # our names of the parameters of heads
PROJECTION = "head.project."  # our names of the last layer of a head with classes
GENERIC = "LABEL_{}"  # what transformers calls labels that nobody named


@dataclass(frozen=True)
class HeadChange:
    """The config with the new head, and whether the weights of the stored head are used again."""

    config: dict[str, Any]
    head: HeadKind
    replaced: bool


def change_head(
    family: Family, config: Mapping[str, Any], head: str | None, labels: Sequence[str] | None
) -> HeadChange:
    """`head` None keeps the stored one; stored labels in another order keep the stored order."""
    stored = family.task(config)
    new_head = stored if head is None else _check_head(family, head)
    tower = family.tower_of(stored)
    if tower is not None and family.tower_of(new_head) != tower:
        raise InputError(f"this checkpoint is the {tower} of {family.title} alone; {head!r} needs more of it")
    if labels is not None:
        _check_labels(new_head, labels)
    names = stored_labels(config)
    if new_head == stored and (labels is None or new_head not in WITH_LABELS or set(labels) == set(names)):
        return HeadChange(dict(config), stored, replaced=False)
    unnamed = new_head == stored and labels is not None and _unnamed(config, len(labels))
    changed = {**config, "architectures": [family.architectures[new_head]]}
    changed |= family.head_config.get(new_head, {})
    if new_head == "span":  # transformers sizes this head, too, by the number of labels
        changed |= _label_keys(["first", "last"])
    if new_head in WITH_LABELS:
        changed |= _label_keys(labels if labels is not None else [GENERIC.format(i) for i in range(2)])
    for key in ("num_labels", "problem_type"):  # of the old head; `id2label` says how many there are
        changed.pop(key, None)
    return HeadChange(changed, new_head, replaced=not unnamed)


def _label_keys(names: Sequence[str]) -> dict[str, Any]:
    return {
        "id2label": {str(i): name for i, name in enumerate(names)},
        "label2id": {name: i for i, name in enumerate(names)},
    }


def stored_labels(config: Mapping[str, Any]) -> list[str]:
    """The label names of a config by class index; none if they are still transformers' LABEL_0, ..."""
    by_number = {int(number): str(name) for number, name in (config.get("id2label") or {}).items()}
    names = [by_number[number] for number in sorted(by_number)]
    return [] if names == [GENERIC.format(i) for i in range(len(names))] else names


def _unnamed(config: Mapping[str, Any], count: int) -> bool:
    """Whether a stored head has this many classes without names: it keeps its weights and gets the names."""
    classes = len(config.get("id2label") or {}) or int(config.get("num_labels") or 2)
    return not stored_labels(config) and classes == count


def without_old_head(
    tensors: Mapping[str, Tensor], old: Table, new: Table, parameters: Set[str]
) -> tuple[Mapping[str, Tensor], tuple[str, ...]]:
    """The tensors for a model with the new head, which has these parameters; the names of the others."""
    dropped = []
    for name in tensors:
        before, after = targets(name, old), targets(name, new)
        if before is None:
            continue  # of neither head: the check of all names reports it
        of_old_head = any(ours.startswith(HEAD) for ours in before)
        # A pooler is used again; a classifier is of other classes, even in the same shape.
        again = after and all(
            ours in parameters and ours.startswith(HEAD) and not ours.startswith(PROJECTION) for ours in after
        )
        if after is None or (of_old_head and not again):
            dropped.append(name)
    return {name: tensors[name] for name in tensors if name not in dropped}, tuple(dropped)


def _check_head(family: Family, head: str) -> HeadKind:
    for kind in family.architectures:
        if kind == head:
            return kind
    raise InputError(f"{family.title} has no head {quoted(head)}; {nearest(head, family.architectures)}")


def _check_labels(head: HeadKind, labels: Sequence[str]) -> None:
    if head not in WITH_LABELS:
        raise InputError(f"labels are for heads with classes ({', '.join(WITH_LABELS)}); this is {head!r}")
    if isinstance(labels, str) or not labels or not all(isinstance(name, str) for name in labels):
        raise InputError(f"labels are a list of names, such as ['neg', 'pos']; given {quoted(labels)}")
    if len(set(labels)) < len(labels):
        raise InputError(f"labels has a name twice: {quoted(labels)}")
