"""Cost totals: a spec and how it is called in; parameters, FLOPs and bytes out. Each part says its own."""

from .total import Cost, cost

__all__ = ["Cost", "cost"]
