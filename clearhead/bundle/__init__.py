"""Bundles: a folder, a name or a spec in; a model with everything that belongs to it out."""

from .bundle import Bundle
from .load import load
from .make import build
from .report import Report
from .save import save

__all__ = ["Bundle", "Report", "build", "load", "save"]
