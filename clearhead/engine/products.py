"""Products: a matrix packed for this machine. Rows in; rows times the transposed matrix, plus the bias, out.

    float32     oneDNN's packed layout
    bfloat16    the same with half the bytes: inputs are rounded, sums are float32
    plain       no packing: `F.linear`, in either number
    int8, int4  in modules of those names

Shape suffixes: I inputs, O outputs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ..nn import one_call
from .layout import Stamp, stamp

Pack = Callable[[Tensor, Tensor | None], "Product"]  # a weight (O, I) and a bias (O,) in, a product out


class Product:
    """One packed matrix. Inputs are (..., I) of any float type, outputs (..., O) of the same type."""

    name: ClassVar[str]  # as `clearhead bench products` lists it
    out_features: int
    bytes: int  # size of the packed matrix, its scales and its bias

    def __call__(self, x: Tensor) -> Tensor:
        return apply_product(x, self)

    is_quantized: ClassVar[bool] = False
    takes: torch.dtype = torch.float32  # the number of the rows that `multiply` takes
    gives: torch.dtype = torch.float32  # and of its results

    def compute(self, x: Tensor) -> Tensor:
        """The product in the type of x."""
        y = self.multiply(x if x.dtype == self.takes else x.to(self.takes))
        return y if y.dtype == x.dtype else y.to(x.dtype)

    def multiply(self, x: Tensor) -> Tensor:
        """The product of rows of `takes`, as `gives`."""
        raise NotImplementedError

    def dequantized(self) -> Tensor:
        """The matrix (O, I) it multiplies by, in float32: what packing made of the weights."""
        raise NotImplementedError

    def __deepcopy__(self, memo: object) -> Product:
        return self  # it never changes; and its layer notices that a copied weight is another one


@one_call
def apply_product(x: Tensor, product: Product) -> Tensor:
    """The product of these rows; what it calls may depend on their number and even on the numbers in them."""
    return product.compute(x)


class PackedProduct(Product):
    """oneDNN's packed layout: the speed of the memory for few rows, that of the processor for many."""

    def __init__(self, weight_OI: Tensor, bias_O: Tensor | None) -> None:
        weight = weight_OI.detach().to(self.takes).contiguous()
        self.out_features = len(weight)
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight)
        self._bias = None if bias_O is None else bias_O.detach().to(self.takes).contiguous()
        self.bytes = (weight.numel() + (0 if bias_O is None else len(bias_O))) * weight.element_size()
        # Without `_op`, parsing the arguments takes as long as a small product.
        self._operator = torch.ops.mkldnn._linear_pointwise.default._op

    def multiply(self, x: Tensor) -> Tensor:
        y: Tensor = self._operator(x, self._weight, self._bias, "none", [], "")
        return y

    def dequantized(self) -> Tensor:
        weight: Tensor = self._weight.to_dense()
        return weight.float()


class PackedFloat32(PackedProduct):
    name = "packed float32"


class PackedBfloat16(PackedProduct):
    name = "packed bfloat16"
    takes = gives = torch.bfloat16


class PlainProduct(Product):
    """`F.linear` on a private copy of the weights."""

    def __init__(self, weight_OI: Tensor, bias_O: Tensor | None) -> None:
        kind = torch.contiguous_format
        self._weight = weight_OI.detach().to(self.takes, copy=True, memory_format=kind)
        self._bias = None if bias_O is None else bias_O.detach().to(self.takes)
        self.out_features = len(self._weight)
        self.bytes = (self._weight.numel() + (0 if bias_O is None else len(bias_O))) * self.takes.itemsize

    def multiply(self, x: Tensor) -> Tensor:
        return F.linear(x, self._weight, self._bias)

    def dequantized(self) -> Tensor:
        return self._weight.float()


class PlainFloat32(PlainProduct):
    name = "float32"


class PlainFloat32ByInputs(PlainFloat32):
    """The matrix stored by inputs, the transpose of a contiguous one: faster than by outputs on many CPUs."""

    name = "float32 by inputs"

    def __init__(self, weight_OI: Tensor, bias_O: Tensor | None) -> None:
        super().__init__(weight_OI, bias_O)
        self._weight = self._weight.t().contiguous().t()


class PlainBfloat16(PlainProduct):
    name = "bfloat16"
    takes = gives = torch.bfloat16


class RoundedFloat32(PackedFloat32):
    """Weights rounded to bfloat16, kept in float32: for a CPU that multiplies only those fast."""

    name = "packed float32, rounded to bfloat16"

    def __init__(self, weight_OI: Tensor, bias_O: Tensor | None) -> None:
        super().__init__(weight_OI.detach().bfloat16(), bias_O)


class FusedProduct:
    """One product for several layers over the same input, which get their slice of the output each.

    The first layer that is called with an input computes it for all. Each slice is returned once; a second
    request computes it again.

        q(x), k(x), v(x)   ->   product(x) = [ q | k | v ]
    """

    def __init__(self, product: Product, widths: Sequence[int]) -> None:
        self.product, self.widths = product, list(widths)
        self._using = set(range(len(self.widths)))  # layers that take their slice
        # The input and the slices that were not asked for yet. One attribute: another thread must not see
        # the input of one call with the slices of another.
        self._pending: tuple[Tensor | None, dict[int, Tensor]] = None, {}

    def output(self, i: int, x: Tensor) -> Tensor:
        if len(self.widths) == 1:
            return self.product(x)
        x_before, slices = self._pending
        if x_before is not x or i not in slices:
            self._using.add(i)
            parts = torch.split(self.product(x), self.widths, dim=-1)
            slices = {index: part for index, part in enumerate(parts) if index in self._using}
        output = slices.pop(i)
        # When the last slice is returned nothing is kept, so that no activation outlives its step.
        self._pending = (x, slices) if slices else (None, {})
        return output

    def dequantized(self, i: int) -> Tensor:
        """The matrix of one layer, in float32."""
        start = sum(self.widths[:i])
        return self.product.dequantized()[start : start + self.widths[i]]

    def leave(self, i: int) -> None:
        """Layer `i` computes with its parameters now: a slice kept for it would never be asked for."""
        if i in self._using:
            self._using.discard(i)
            self._pending = None, {}

    def __deepcopy__(self, memo: object) -> FusedProduct:
        return FusedProduct(self.product, self.widths)


class BoundProduct:
    """The product of one layer, with a note of the weights it was packed from.

    It holds on to their memory: were that freed, other weights could be given the same address.
    """

    is_base = False  # whether its layer belongs to a model whose adapters are trained

    def __init__(self, fused: FusedProduct, index: int, weight: Tensor, bias: Tensor | None) -> None:
        self.fused, self.index = fused, index
        self._held: Sequence[Tensor] = [x.detach() for x in (weight, bias) if x is not None]
        self._packed_from: tuple[Stamp, Stamp | None] | None = _stamps(weight, bias)

    def fits(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
        gradient = torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad)
        if not gradient and self._packed_from == _stamps(weight, bias):
            return True
        self.fused.leave(self.index)
        return False

    @property
    def trains_adapters(self) -> bool:
        return self.is_base and self.fused.product.is_quantized

    def dequantized(self) -> Tensor:
        return self.fused.dequantized(self.index)

    def shared(self, fused: FusedProduct) -> BoundProduct:
        """The same for a layer of another tree of modules that has the same weights, and adapters.

        `fused` is the product there: it has the same matrix, and keeps the outputs of its own tree.
        """
        other = copy.copy(self)
        other.fused, other.is_base = fused, True
        return other

    def expire(self) -> None:
        """From now on the layer computes with its parameters."""
        self._packed_from, self._held = None, ()

    def __call__(self, x: Tensor) -> Tensor:
        return self.fused.output(self.index, x)

    def __deepcopy__(self, memo: dict[int, object]) -> BoundProduct:
        copied = copy.copy(self)
        copied.fused = copy.deepcopy(self.fused, memo)
        copied.expire()  # the copied layer has weights of its own
        return copied


def _stamps(weight: Tensor, bias: Tensor | None) -> tuple[Stamp, Stamp | None]:
    return stamp(weight), None if bias is None else stamp(bias)
