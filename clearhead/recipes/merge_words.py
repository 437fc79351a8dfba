"""Ways of merging by the words that people type: a word in; a kind of merging with some settings out.

`dare_ties` is what mergekit calls DareTies, `ties_svd` what PEFT calls Ties with its way of voting, as an
adapter of some rank.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from ..errors import InputError, nearest, quoted
from ..tune import Dare, DareTies, MergeMethod, Slerp, TaskArithmetic, Ties, WeightedAverage

# PEFT elects signs before differences are weighted, and divides by the number of those that agree.
AS_IN_PEFT = {"election": "unweighted", "average": "count"}


@dataclass(frozen=True)
class MergeWord:
    kind: type[MergeMethod]
    settings: Mapping[str, Any] = field(default_factory=dict)
    # Of a merged adapter: "exact", or "given" where a number is needed; None: the result is a model.
    rank: Literal["exact", "given"] | None = None


MERGE_WORDS = {
    "linear": MergeWord(WeightedAverage),
    "slerp": MergeWord(Slerp),
    "task": MergeWord(TaskArithmetic),
    "ties": MergeWord(Ties),
    "dare": MergeWord(Dare),
    "dare-ties": MergeWord(DareTies),
}
# What other libraries call them: mergekit's merge_method, PEFT's combination_type.
SAME_WORDS = {
    "average": MERGE_WORDS["linear"],
    "soup": MERGE_WORDS["linear"],
    "task-arithmetic": MERGE_WORDS["task"],
    "dare-linear": MERGE_WORDS["dare"],
    "cat": MergeWord(TaskArithmetic, rank="exact"),
    "svd": MergeWord(TaskArithmetic, rank="given"),
    "ties-svd": MergeWord(Ties, AS_IN_PEFT, rank="given"),
    "dare-linear-svd": MergeWord(Dare, rank="given"),
    "dare-ties-svd": MergeWord(DareTies, AS_IN_PEFT, rank="given"),
}
# Methods of theirs that are not here, and what is nearest.
NEAREST_METHODS = {
    "nuslerp": "slerp", "multislerp": "linear", "karcher": "linear", "model-stock": "linear",
    "breadcrumbs": "task", "breadcrumbs-ties": "ties", "della": "dare-ties", "della-linear": "dare",
    "sce": "ties", "ram": "ties", "ramplus-tl": "ties", "arcee-fusion": "ties", "nearswap": "slerp",
    "magnitude-prune": "ties", "magnitude-prune-svd": "ties-svd",
}  # fmt: skip
STACKING = "passthrough"  # layers of several models on top of each other


def merge_word(word: str) -> MergeWord:
    """What a word stands for; `_` is the same as `-`."""
    plain = word.lower().replace("_", "-")
    known = {**MERGE_WORDS, **SAME_WORDS}
    if plain in known:
        return known[plain]
    if plain == STACKING:
        raise InputError(
            f"method {quoted(word)} stacks layers of several models; here models of one shape are merged"
        )
    if plain in NEAREST_METHODS:
        near = NEAREST_METHODS[plain]
        raise InputError(f"method {quoted(word)} is not supported; the nearest here is {near!r}")
    raise InputError(f"method is {quoted(word)}; {nearest(plain, MERGE_WORDS)}")


def method_of(word: MergeWord, given: Mapping[str, Any]) -> MergeMethod:
    """The method with the settings given; one that it does not have is an error."""
    known = [f.name for f in fields(word.kind)]
    for name in given:
        if name not in known:
            takers = [
                each for each, other in MERGE_WORDS.items() if name in {f.name for f in fields(other.kind)}
            ]
            raise InputError(
                f"{name} is for the methods {', '.join(takers)}; {word.kind.__name__} has {', '.join(known)}"
            )
    return word.kind(**{**word.settings, **given})
