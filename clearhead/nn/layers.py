"""Linear layers and tables that are created empty, the random generator that `init` fills them with, dropout.

torch initialises a new layer at once, from its global generator. Here that would cost time for numbers that
are overwritten and, on the meta device, a second of imports.

Here is also what `clearhead.engine` needs to compute the same faster. A layer may have a `product`: the same
matrix, packed for this machine. Its parameters stay what they are; the product is used for inference only,
and only while it is a copy of them. A function may be `one_call` to what records the calls of torch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import ParamSpec, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import handle_torch_function, has_torch_function_unary

from .products import LayerProduct, training_linear, training_linear_frozen

P = ParamSpec("P")
T = TypeVar("T")

FAST_DROPOUT = ("cuda", "mps", "meta")  # devices on which torch's own dropout is taken


def generator(seed: int, *purpose: str | int) -> torch.Generator:
    """Random numbers as a function of a key: the same key gives the same numbers in any order of calls."""
    words = "/".join(map(str, (seed, *purpose)))
    digest = hashlib.sha256(words.encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little", signed=True))


@dataclass(frozen=True)
class InitDistribution:
    """The distribution of the initial values of a matrix: normal or uniform, with this standard deviation.

    A module whose matrices the model's scheme does not initialise has one as `init_distribution`.
    """

    std: float
    uniform: bool = False


class LinearLayer(nn.Linear):
    product: LayerProduct | None = None
    packs: bool = True  # False: what computes with its matrix does not call it
    differs_by_row: bool = False  # whether each row of a batch is multiplied by a matrix of its own

    def reset_parameters(self) -> None:
        """Left empty on purpose."""

    @property
    def matrix(self) -> Tensor:
        """The matrix, for code that multiplies by it in another way than a call does."""
        return self.weight

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias, self.product, training=self.training)


def linear(
    x: Tensor, weight: Tensor, bias: Tensor | None, product: LayerProduct | None, *, training: bool
) -> Tensor:
    """`F.linear`, or the packed product that computes the same."""
    # Of others torch computes the product in another order, row by row, if the weights take no gradient.
    x = x if x.is_contiguous() else x.contiguous()
    if training:
        if product is not None and product.trains_adapters:
            return training_linear_frozen(x, product.dequantized, bias)
        return training_linear(x, weight, bias)
    if product is None:
        return F.linear(x, weight, bias)
    if product.fits(x, weight, bias):
        return product(x)
    # A prepared model computes in float32, whatever number its weights are stored in.
    return F.linear(x, weight.to(x.dtype), None if bias is None else bias.to(x.dtype))


class EmbeddingTable(nn.Embedding):
    number: torch.dtype | None = None  # of the vectors that are looked up; None: as the table's

    def reset_parameters(self) -> None:
        """Left empty on purpose."""

    def forward(self, ids: Tensor) -> Tensor:
        found = F.embedding(ids, self.weight)
        return found if self.number is None else found.to(self.number)


def one_call(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function of a tensor and more, called without keywords: it is recorded as one call.

    A decode step is captured by a TorchFunctionMode, which records the torch calls of a step. The function
    dispatches through torch's `__torch_function__` protocol, so it is recorded whole, and can be replayed as
    it is or by an operator that computes it in one pass (`clearhead.engine.fused`).
    """

    @wraps(function)
    def dispatched(*args: P.args, **kwargs: P.kwargs) -> T:
        if has_torch_function_unary(args[0]):
            result: T = handle_torch_function(dispatched, (args[0],), *args, **kwargs)
            return result
        return function(*args, **kwargs)

    return dispatched


class Dropout(nn.Dropout):
    def forward(self, x: Tensor) -> Tensor:
        return apply_dropout(x, self.p) if self.training else x


def apply_dropout(x: Tensor, p: float) -> Tensor:
    """Zero a share `p` of the numbers and scale the others up, so that the mean stays.

    On a CPU four numbers share the 64 bits of one random draw; torch makes a slower draw for each, which was
    a fifth of a training step in bfloat16. `p` is rounded to a multiple of 2 ** -16.
    """
    dropped = round(p * 2**16)
    if not 0 < dropped < 2**16 or x.device.type in FAST_DROPOUT:
        return F.dropout(x, p)
    draws = torch.empty(-(-x.numel() // 4), dtype=torch.int64, device=x.device).random_(-(2**63), None)
    levels = draws.view(torch.int16)[: x.numel()].view(x.shape)  # uniform from -2 ** 15 to 2 ** 15 - 1
    kept = levels >= dropped - 2**15
    return x * kept.to(x.dtype).mul_(2**16 / (2**16 - dropped))
