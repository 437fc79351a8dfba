"""Doctors: a machine or a run in; what was measured, what looks wrong and what to try, out."""

from .environment import environment
from .finding import Finding, is_healthy
from .runs import examine

__all__ = ["Finding", "environment", "examine", "is_healthy"]
