"""What a learner has done: a small JSON file in the cache folder. Deleting it loses only check marks."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def place() -> Path:
    """`$CLEARHEAD_HOME`, else the platform's cache folder."""
    home = os.environ.get("CLEARHEAD_HOME")
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home or Path(cache) / "clearhead") / "learn.json"


def solved() -> set[str]:
    return {name for name, was in _read().items() if was.get("solved")}


def failures(name: str) -> int:
    """How many attempts failed: as many hints are shown."""
    return int(_read().get(name, {}).get("failed", 0))


def note(name: str, *, passed: bool) -> None:
    everything = _read()
    was = everything.setdefault(name, {})
    if passed:
        was["solved"] = True
    else:
        was["failed"] = int(was.get("failed", 0)) + 1
    try:
        place().parent.mkdir(parents=True, exist_ok=True)
        place().write_text(json.dumps(everything, indent=1), encoding="utf-8")
    except OSError:
        pass  # the clinic also works without a writable folder


def _read() -> dict[str, dict[str, Any]]:
    try:
        found = json.loads(place().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {name: was for name, was in found.items() if isinstance(was, dict)}
