"""Clearhead: every Transformer, one clear core. Load it, train it, run it fast, and see inside it.

Importing this package imports nothing heavy: torch comes in when a model is first needed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .bundle import Bundle, build, compare, from_pretrained, load, merge, save, together, tune
    from .families import families
    from .recipes import train
    from .spec import Spec

__version__ = "0.1.0"
__all__ = [
    "load",
    "from_pretrained",
    "save",
    "build",
    "train",
    "tune",
    "together",
    "compare",
    "merge",
    "families",
    "Bundle",
    "Spec",
]

_PACKAGES = {
    "load": ".bundle",
    "from_pretrained": ".bundle",
    "save": ".bundle",
    "build": ".bundle",
    "together": ".bundle",
    "compare": ".bundle",
    "merge": ".bundle",
    "families": ".families",
    "Bundle": ".bundle",
    "Spec": ".spec",
}


# Packages for those who write their own parts: `ch.nn.Recorder` needs no import of its own.
_PARTS = ("nn", "spec", "text", "data", "tasks", "generate", "lens", "recipes", "store", "weights")


def __getattr__(name: str) -> Any:
    if name in ("train", "tune") or name in _PARTS:  # packages that can be called
        return import_module(f".{name}", __name__)
    if name not in _PACKAGES:
        raise AttributeError(f"module 'clearhead' has no attribute {name!r}")
    return getattr(import_module(_PACKAGES[name], __name__), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
