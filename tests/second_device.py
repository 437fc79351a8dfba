"""A second device for machines that have one: its tensors hold CPU tensors and say that they are elsewhere.

It behaves as a GPU does where that matters: an operation on tensors of two devices is an error (single
numbers may come from the CPU), a tensor has no memory that Python can read (`.numpy()`, `.data_ptr()`), and
nothing moves but by `.to`, `.cpu` and `copy_`. Results are those of the CPU, up to the order of rounding.
torch has a device type `lazy` without a backend in its builds: nothing else answers to that name.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

SECOND = torch.device("lazy", 0)
CPU = torch.device("cpu")
COPIES = ("aten::copy_", "aten::_to_copy")
calls: Counter[str] = Counter()  # how often each operation ran there, in the open `second_device`


class SecondTensor(Tensor):
    """A tensor on the second device; `inner` is its CPU tensor."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> "SecondTensor":
        return Tensor._make_wrapper_subclass(  # type: ignore[no-any-return, attr-defined]
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=SECOND,
        )

    def __init__(self, inner: Tensor) -> None:
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.data_ptr:
            raise RuntimeError(f"a tensor on {SECOND} has no address in the memory of the CPU")
        if func is Tensor.tolist:  # torch does not offer it to subclasses; on a GPU it copies
            return args[0].cpu().tolist()
        with torch._C.DisableTorchFunctionSubclass():
            out = func(*args, **(kwargs or {}))
        if func == Tensor.data.__set__:  # type: ignore[attr-defined]
            args[0].inner = args[1].inner  # torch swaps the storage below Python; ours is a Python attribute
        return out


class _Device(TorchDispatchMode):
    """Catches what has no tensor of the device among its arguments: factories, and copies from the CPU."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


class _FromNumbers(TorchFunctionMode):
    """`torch.tensor` fills memory itself, where no dispatch sees it: here it fills the CPU's, and moves."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        target = kwargs.get("device")
        if func in (torch.tensor, torch.as_tensor) and target is not None:
            return func(*args, **kwargs | {"device": CPU}).to(target)
        return func(*args, **kwargs)


class _Module:
    """What `torch.cuda` is to CUDA: activation checkpointing asks it for its generator, the CPU's."""

    _initialized = True
    device = staticmethod(lambda number: nullcontext())
    get_rng_state = staticmethod(lambda number=0: torch.get_rng_state())
    set_rng_state = staticmethod(lambda state, number=0: torch.set_rng_state(state))


@contextmanager
def second_device() -> Iterator[torch.device]:
    """While it is open the device exists, and modules keep their parameters when they move to it."""
    calls.clear()
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    # In inference mode torch dispatches to subclasses before it has taken composite operations apart.
    no_inference_mode = patch.object(
        torch, "inference_mode", lambda mode=True: torch.set_grad_enabled(not mode)
    )
    module = patch.object(torch, SECOND.type, _Module, create=True)
    try:
        with _Device(), _FromNumbers(), no_inference_mode, module:
            yield SECOND
    finally:
        torch.__future__.set_swap_module_params_on_conversion(before)


def _run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
    ours = [x for x in tensors if isinstance(x, SecondTensor)]
    name = func._schema.name
    if ours and name not in COPIES:
        strangers = [x for x in tensors if not isinstance(x, SecondTensor) and x.ndim > 0]
        if strangers:
            shapes = ", ".join(f"{tuple(x.shape)} on {x.device}" for x in tensors)
            raise RuntimeError(f"Expected all tensors to be on the same device, {name} got {shapes}")
    target = kwargs.get("device") or (SECOND if ours else CPU)
    if target.type != SECOND.type and not ours:
        return func(*args, **kwargs)
    calls[name] += 1
    out = func(*tree_map(_inner, args), **tree_map(_inner, kwargs))
    if target.type != SECOND.type:
        return out
    # An operation in place, or a view of nothing new, gives the tensor that it was given.
    known = {id(x.inner): x for x in ours}
    return tree_map(lambda x: known[id(x)] if id(x) in known else _wrapped(x), out)


def _inner(x: Any) -> Any:
    if isinstance(x, torch.device):
        return CPU
    return x.inner if isinstance(x, SecondTensor) else x


def _wrapped(x: Any) -> Any:
    return SecondTensor(x) if isinstance(x, Tensor) else x
