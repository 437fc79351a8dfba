"""The studio behind the page: what every route may use."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from .compute_queue import ComputeQueue
from .registry import ModelRegistry
from .runs import RunManager


@dataclass(frozen=True)
class Studio:
    registry: ModelRegistry
    queue: ComputeQueue = field(default_factory=ComputeQueue)

    @cached_property
    def runs(self) -> RunManager:
        return RunManager(self.registry)
