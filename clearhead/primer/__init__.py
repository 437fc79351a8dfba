"""The functions and classes of the usual textbook listings: in torch over the core, and in plain NumPy.

`from clearhead.primer import MultiHeadAttention` is short for `from clearhead.primer.torch import ...`; the
formulas in NumPy are in `clearhead.primer.numpy`.
"""

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    """The names of `primer.torch`, imported on first use: the NumPy half needs no torch."""
    if name.startswith("_"):
        raise AttributeError(name)
    found = import_module(".torch", __name__)
    if not hasattr(found, name):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(found, name)


def __dir__() -> list[str]:
    return ["numpy", "torch", *(name for name in dir(import_module(".torch", __name__)) if name[0] != "_")]
