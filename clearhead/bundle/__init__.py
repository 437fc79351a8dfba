"""Bundles: a folder, a name or a spec in; a model with everything that belongs to it out."""

from .bundle import Bundle
from .loading import load
from .making import build
from .report import Report
from .saving import save

__all__ = ["Bundle", "Report", "build", "load", "save"]
