"""A finding: one thing that was looked at, what was measured, and what to do if it is not as it should be."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "note", "wrong"]  # a note is worth knowing; only what is wrong makes somebody ill


@dataclass(frozen=True)
class Finding:
    name: str
    value: str
    level: Level = "ok"
    advice: str = ""  # what to do; empty where all is well


def is_healthy(findings: Iterable[Finding]) -> bool:
    return all(finding.level != "wrong" for finding in findings)
