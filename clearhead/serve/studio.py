"""The studio behind the page: what every route may use."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from .desk import Desk
from .runs import Runs
from .shelf import Shelf


@dataclass(frozen=True)
class Studio:
    shelf: Shelf
    desk: Desk = field(default_factory=Desk)

    @cached_property
    def runs(self) -> Runs:
        return Runs(self.shelf)
