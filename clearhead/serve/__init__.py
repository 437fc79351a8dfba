"""The studio server: serves the local web studio and its API for the models and runs of this machine."""

from .app import create_app
from .registry import ModelRegistry
from .studio import Studio

__all__ = ["create_app", "ModelRegistry", "Studio"]
