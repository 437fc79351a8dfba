"""All fused operators, compiled by numba at first use and kept on disk."""

from .attention import ATTEND, STORED, attend
from .rows import ACTIVATION_CODES, ADD_NORM, GATE, add_norm, gate

__all__ = ["ACTIVATION_CODES", "ADD_NORM", "ATTEND", "GATE", "STORED", "add_norm", "attend", "gate"]
