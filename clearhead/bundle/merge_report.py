"""What a merge did, in figures: how much changed, what was in conflict, what an adapter keeps of it."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..tune import LowRank, MergeMethod


@dataclass(frozen=True)
class MergeReport:
    """`before` in the comments is the base, or the first model where there is none."""

    method: MergeMethod
    models: tuple[str, ...]
    base: str | None
    numbers: int  # of the model
    changed: float  # share of them that differ from before
    moved: float  # norm of the change, relative to that of the numbers before
    conflicts: float | None  # share of them where kept differences to the base have different signs
    rank: int | None = None  # of a merged adapter: the largest of its layers
    energy: float | None = None  # share of the squared differences of its layers that it keeps
    least: tuple[str, float] | None = None  # the layer that it keeps least of, and its share
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = [
            f"{100 * self.changed:.3g} % of {self.numbers:,} numbers changed, "
            f"by {100 * self.moved:.3g} % in norm"
        ]
        if self.conflicts is not None:
            parts.append(f"signs conflict at {100 * self.conflicts:.3g} % of them")
        if self.energy is not None:
            least = f", {100 * self.least[1]:.3g} % of {self.least[0]}" if self.least else ""
            parts.append(f"rank {self.rank} keeps {100 * self.energy:.4g} % of the change{least}")
        return " · ".join(parts)


@dataclass
class MergeFigures:
    """Counts that grow parameter by parameter."""

    numbers: int = 0
    changed: int = 0
    conflicts: int = 0
    squares: float = 0.0  # of the numbers before
    moved: float = 0.0  # squares of the changes
    kept: dict[str, tuple[float, float]] = field(default_factory=dict)  # by layer: squares kept, and all
    rank: int | None = None
    notes: list[str] = field(default_factory=list)

    def add(self, before: Tensor, after: Tensor | None = None, conflicts: int = 0) -> None:
        """A parameter or a piece of it; without `after` it stayed as it was."""
        exact = before.cpu().double()
        self.numbers += exact.numel()
        self.squares += float(exact.square().sum())
        self.conflicts += conflicts
        if after is not None:  # rounded alike: another number format is no change
            change = after.double() - exact.to(after.dtype).double()
            self.changed += int(torch.count_nonzero(change))
            self.moved += float(change.square().sum())

    def add_layer(self, name: str, low_rank: LowRank) -> None:
        self.kept[name] = low_rank.kept, low_rank.total
        self.rank = max(self.rank or 0, low_rank.rank)

    def report(self, method: MergeMethod, models: tuple[str, ...], base: str | None) -> MergeReport:
        shares = {name: kept / total for name, (kept, total) in self.kept.items() if total}
        kept, total = (sum(each[i] for each in self.kept.values()) for i in (0, 1))
        least = min(shares.items(), key=lambda item: item[1], default=None)
        return MergeReport(
            method,
            models,
            base,
            self.numbers,
            self.changed / max(self.numbers, 1),
            (self.moved / max(self.squares, 1e-300)) ** 0.5,
            self.conflicts / max(self.numbers, 1) if method.needs_base else None,
            self.rank,
            None if not self.kept else kept / total if total else 1.0,
            least if least is not None and least[1] < 1 else None,
            tuple(self.notes),
        )
