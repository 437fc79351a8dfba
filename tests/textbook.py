"""Shared by the tests of the torch primer: random tensors and weights, a small Transformer and its ids."""

from typing import Any

import torch
from torch import Tensor, nn

from clearhead.primer import torch as primer


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def shaken(module: nn.Module) -> Any:
    """Every parameter drawn anew, biases and gains too: forgetting one then changes the answer."""
    for i, p in enumerate(module.parameters()):
        p.data = random(*p.shape, seed=i) * 0.3
    return module.double().eval()


SIZES: dict[str, Any] = {"d_model": 16, "num_heads": 2, "num_layers": 2, "d_ff": 32}
SRC = torch.tensor([[5, 6, 7, 0, 0], [8, 9, 10, 11, 12]])
TGT = torch.tensor([[1, 7, 8, 0], [1, 4, 5, 6]])


def small(**more: Any) -> primer.Transformer:
    return primer.Transformer(20, 30, **SIZES, seed=0, **more).double().eval()
