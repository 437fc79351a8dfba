"""The studio behind the page: what every route may use."""

from __future__ import annotations

from dataclasses import dataclass, field

from .desk import Desk
from .shelf import Shelf


@dataclass(frozen=True)
class Studio:
    shelf: Shelf
    desk: Desk = field(default_factory=Desk)
