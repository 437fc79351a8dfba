"""Doctors: a machine or a run in; what was measured, what looks wrong and what to try, out."""

from .finding import Finding, is_healthy
from .machine import environment
from .runs import examine

__all__ = ["Finding", "environment", "examine", "is_healthy"]
