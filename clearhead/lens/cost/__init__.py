"""Cost estimates: a spec and the shape of a call in; parameters, FLOPs and bytes out."""

from .complexity import TAPS, LayerComplexity, complexity_table, crossing
from .machine import Time, measure, step_time
from .plan import USABLE_MEMORY, Device, Plan, parse_layout, plan
from .split import Job, Share
from .total import Cost, cost

__all__ = [
    "Cost", "cost",
    # for the other packages
    "LayerComplexity", "TAPS", "complexity_table", "crossing", "Time", "measure", "step_time", "Device",
    "Plan", "USABLE_MEMORY", "parse_layout", "plan", "Job", "Share",
]  # fmt: skip
