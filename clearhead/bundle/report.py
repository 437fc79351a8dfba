"""The load report: what became of every tensor of a checkpoint and every parameter of the model."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from ..weights import Loaded
from .merge_report import MergeReport


@dataclass(frozen=True)
class Report:
    """What became of the stored tensors. `aliases` and `kept` are written back when the bundle is saved."""

    used: tuple[str, ...] = ()
    aliases: dict[str, Tensor] = field(default_factory=dict)  # other names of used tensors (tied weights)
    kept: dict[str, Tensor] = field(default_factory=dict)  # known, but not used
    reasons: dict[str, str] = field(default_factory=dict)  # why each of them is not used
    fresh: tuple[str, ...] = ()  # parameters that no file has and that are initialised instead
    dropped: tuple[str, ...] = ()  # tensors of a head that was replaced by another
    merged: float | None = None  # of merged adapters: the largest difference to the tuned model
    merge: MergeReport | None = None  # of merged models: how much changed
    bare: bool = False  # names have no prefix, as those of base models

    @staticmethod
    def of(loaded: Loaded, fresh: tuple[str, ...], dropped: tuple[str, ...] = (), *, bare: bool) -> Report:
        return Report(
            tuple(loaded.used),
            dict(loaded.aliases),
            dict(loaded.kept),
            dict(loaded.reasons),
            fresh,
            dropped,
            bare=bare,
        )

    def __str__(self) -> str:
        total = len(self.used) + len(self.aliases) + len(self.kept) + len(self.dropped)
        parts = [f"{len(self.used)} of {total} tensors used"]
        if self.aliases:
            parts.append(f"{len(self.aliases)} tied to another")
        if self.kept:
            parts.append(f"{len(self.kept)} known and not needed")
        if self.dropped:
            parts.append(f"{len(self.dropped)} of the old head dropped")
        named = (
            f", made new: {self.fresh[0]}" + (", ..." if len(self.fresh) > 1 else "") if self.fresh else ""
        )
        parts.append(f"{len(self.fresh)} missing{named}")
        if self.merged is not None:
            parts.append(f"adapter merged, largest difference {self.merged:.1e} on random tokens")
        if self.merge is not None:
            parts.append(f"merged by {self.merge.method}: {self.merge}")
        return " · ".join(parts)
