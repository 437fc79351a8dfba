"""The state behind the page that all routes share: the model registry, the compute queue and the runs."""

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
