"""The lens: specs, models and what happens inside them in; words, numbers and pictures out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .file import open_trace
    from .trace import Trace

__all__ = ["Trace", "open_trace"]


def __getattr__(name: str) -> Any:
    """Imported when asked for: counting a model needs no trace."""
    if name == "open_trace":
        from .file import open_trace

        return open_trace
    if name == "Trace":
        from .trace import Trace

        return Trace
    raise AttributeError(f"module 'clearhead.lens' has no attribute {name!r}")
