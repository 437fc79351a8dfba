"""Cost: a spec and how it is called in; parameters, operations and bytes out, by closed formulas."""

from .total import Cost, cost

__all__ = ["Cost", "cost"]
