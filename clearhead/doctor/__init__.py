"""Diagnosis: a machine or a run in; findings with measured values and advice out."""

from .findings import Finding, is_healthy
from .machine import check_machine
from .runs import check_run

__all__ = ["Finding", "check_machine", "check_run", "is_healthy"]
