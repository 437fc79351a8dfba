"""Functions that count as one call: several torch calls in; one call out, for whoever watches torch's calls.

A decode step is captured by a TorchFunctionMode, which records the torch calls of a step. A function with
this decorator is recorded as one call, because it dispatches through torch's `__torch_function__` protocol.
It can then be replayed as it is, or by an operator that computes it in one pass (`clearhead.engine.fused`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from torch.overrides import handle_torch_function, has_torch_function_unary

P = ParamSpec("P")
T = TypeVar("T")


def one_call(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function whose first argument is a tensor, and which is called without keywords."""

    @wraps(function)
    def dispatched(*args: P.args, **kwargs: P.kwargs) -> T:
        if has_torch_function_unary(args[0]):
            result: T = handle_torch_function(dispatched, (args[0],), *args, **kwargs)
            return result
        return function(*args, **kwargs)

    return dispatched
