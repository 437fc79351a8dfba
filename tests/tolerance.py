"""The tolerances, in one place. A test that needs another says why beside it."""

import torch
from torch import Tensor

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 1.6e-2}


def assert_close(one: Tensor, two: Tensor, tolerance: float | None = None) -> None:
    """Equal shapes, and no element further apart than the tolerance of the dtype (relative above one)."""
    assert one.shape == two.shape, f"{tuple(one.shape)} is not {tuple(two.shape)}"
    allowed = TOLERANCE[one.dtype] if tolerance is None else tolerance
    torch.testing.assert_close(one, two, atol=allowed, rtol=allowed)
