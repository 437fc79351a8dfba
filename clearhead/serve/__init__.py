"""Serving: models and runs of this machine in; the studio page and its API out, to this machine alone."""

from .app import create_app
from .registry import ModelRegistry
from .studio import Studio

__all__ = ["create_app", "ModelRegistry", "Studio"]
