"""Peers: other people's libraries, imported by name when a bench asks for them, and kept quiet."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any


@contextmanager
def quiet() -> Iterator[None]:
    """They have much to say that is not about speed."""
    logging.disable(logging.WARNING)
    try:
        library: Any = import_module("transformers")
        library.logging.set_verbosity_error()
        library.logging.disable_progress_bar()
        yield
    finally:
        logging.disable(logging.NOTSET)
