"""Kernels on their own: noise, a view, a kernel with first weights, one call."""

import torch
from torch import Tensor
from zoo import sample

from clearhead import nn as cn
from clearhead.nn import kernels
from clearhead.nn.init import initialise

KERNELS = {name: sample(kind) for name, kind in kernels.AttentionKernel.kinds().items()}


def noise(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def view(mask: cn.Mask, batch: int, queries: int, keys: int, start: int = 0) -> cn.View:
    slots = torch.arange(keys)[None]
    return cn.View(mask, batch, torch.arange(start, start + queries)[None], slots, start)


def made(spec: kernels.AttentionKernel, heads: int, head_dim: int) -> cn.Kernel:
    """A kernel that stands alone; those that learn something begin as they would in a model."""
    kernel = spec.build(heads, head_dim)
    initialise(kernel, cn.Normal(), 0)
    return kernel.eval()


def mix(
    spec: kernels.AttentionKernel, q: Tensor, k: Tensor, v: Tensor, over: cn.View, **more: object
) -> Tensor:
    kernel = made(spec, q.shape[1], q.shape[-1])
    tap = more.pop("tap", cn.OFF)
    return kernel(cn.AttentionCall(q, k, v, over, **{"scale": q.shape[-1] ** -0.5} | more), tap)
