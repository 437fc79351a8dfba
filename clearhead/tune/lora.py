"""LoRA (Hu 2021): two narrow matrices beside a wide one. y = W x + b + scale * up (down x)

DoRA (Liu 2024) gives every row of the sum W + scale * up down a length of its own, which is learned. With
the start "principal" (PiSSA, Meng 2024) the two matrices begin as the largest singular directions of W, and
what they are at the start is subtracted, so that the model begins as it was.

Shape suffixes: I inputs, O outputs, R rank.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..engine import layout
from ..errors import InputError, quoted
from ..nn import Dropout, LinearLayer, TokenLogits, TransformerModel, generator, training_linear
from ..patterns import NamePattern
from ..spec import Count, Positive, Rate
from .linear import LayerAdapter, MergedWeights, TunedLayer, adapter_dtype, base_matrix, tuned_layer
from .names import ModelNames
from .targets import ALL_LINEAR, addresses_of, find_targets, linear_layers, nearest_name
from .tree import replace_modules
from .tuning import Attachment, Tuning

LoraStart = Literal["zero", "gaussian", "principal"]


@dataclass(frozen=True, kw_only=True)
class Lora(Tuning):
    """Two narrow matrices beside each layer that `targets` names: `rank` x inputs, and outputs x `rank`."""

    rate: ClassVar[float] = 10.0

    rank: Count = 8  # width of the narrow matrices
    alpha: Positive = 16.0  # the sum is scaled by alpha / rank
    targets: str | tuple[str, ...] = ALL_LINEAR  # patterns of linear layers; all-linear: those of the blocks
    exclude: tuple[str, ...] = ()  # patterns of layers that `targets` names and that are left out
    scaling: Literal["rank", "sqrt-rank"] = "rank"  # sqrt-rank: alpha / sqrt(rank) (rsLoRA)
    variant: Literal["lora", "dora"] = "lora"  # dora: rows of the sum have lengths that are learned
    # down is drawn uniformly or normally and up is zero; principal: the largest singular directions
    start: LoraStart = "zero"
    dropout: Rate = 0.0  # on the input of the narrow matrices
    rank_pattern: tuple[tuple[str, Count], ...] = ()  # other ranks, by pattern; the first that matches
    alpha_pattern: tuple[tuple[str, Positive], ...] = ()  # other alphas, by pattern
    bias: Literal["none", "all", "lora_only"] = "none"  # which biases of the model learn, too

    def rank_of(self, names: Sequence[str]) -> int:
        """The rank of a layer by its names."""
        return int(_by_pattern(self.rank_pattern, names, self.rank))

    def alpha_of(self, names: Sequence[str]) -> float:
        return _by_pattern(self.alpha_pattern, names, self.alpha)

    def scale(self, rank: int, alpha: float) -> float:
        return alpha / (rank if self.scaling == "rank" else math.sqrt(rank))

    def attach(self, model: TransformerModel, names: ModelNames, seed: int) -> Attachment:
        hit = find_targets(model, self.targets, names, "Lora")
        left_out = set()
        for pattern in self.exclude:
            left_out |= set(find_targets(model, pattern, names, "Lora.exclude"))
        hit = [name for name in hit if name not in left_out]
        if not hit:
            raise InputError(f"Lora.exclude {quoted(list(self.exclude))} leaves no layer of the targets")
        layers = linear_layers(model)
        called = {name: names.of_module(name) for name in layers}  # the names that each of them goes by
        for address, name in addresses_of(model, layers).items():
            called[name].append(address)
        known = [each for every in called.values() for each in every]
        for patterns, field in ((self.rank_pattern, "rank_pattern"), (self.alpha_pattern, "alpha_pattern")):
            for pattern, _ in patterns:
                _check_pattern(pattern, known, f"Lora.{field}")
        adapters = dict[str, LoraAdapter]()
        for name in hit:
            rank, alpha = self.rank_of(called[name]), self.alpha_of(called[name])
            _check_rank(rank, layers[name].weight.shape, name, self.start)  # type: ignore[union-attr]
            adapters[name] = LoraAdapter(self, layers[name], rank, alpha, generator(seed, "tune", name))
        for group in names.fused:
            _share_down([adapters[name] for name in group if name in adapters], len(group))
        replace_modules(model, {layers[n]: tuned_layer(layers[n], a) for n, a in adapters.items()})
        return Attachment(layers=tuple(hit), learn=self._biases(names, hit))

    def _biases(self, names: ModelNames, hit: Sequence[str]) -> tuple[str, ...]:
        """The names of the biases of the model that learn: those that PEFT trains, too."""
        if self.bias == "none":
            return ()
        return tuple(names.biases_of_modules(None if self.bias == "all" else hit))


def _check_rank(rank: int, shape: Sequence[int], name: str, start: LoraStart) -> None:
    outputs, inputs = shape
    if start == "principal" and rank > min(shape):
        raise InputError(f"Lora.rank is {rank:,}; {name} has {min(shape):,} singular directions")
    if rank > outputs + inputs:
        raise InputError(
            f"Lora.rank is {rank:,}; {name} is a matrix of {outputs:,} x {inputs:,}, expected a smaller rank"
        )


def _check_pattern(pattern: str, known: Sequence[str], what: str) -> None:
    """Raise an error for a pattern that names no linear layer of the model."""
    if not NamePattern(pattern, anywhere=True).among(known):
        hint = nearest_name(pattern, known)
        raise InputError(f"{what} {quoted(pattern)} matches no linear layer; {hint}")


def _by_pattern(patterns: Sequence[tuple[str, float]], names: Sequence[str], default: float) -> float:
    for pattern, value in patterns:
        wanted = NamePattern(pattern, anywhere=True)
        if any(wanted.matches(name) for name in names):
            return value
    return default


def _share_down(adapters: Sequence[LoraAdapter], whole: int) -> None:
    """Layers that the checkpoint stores as one matrix have one `down`, as one layer of the reference has."""
    shapes = {(adapter.down.shape, adapter.alpha) for adapter in adapters}
    if len(adapters) == whole > 1 and len(shapes) == 1 and adapters[0].start_down is None:
        for adapter in adapters[1:]:
            adapter.down = adapters[0].down


class LoraAdapter(LayerAdapter):
    kind = "lora"

    def __init__(
        self, spec: Lora, layer: LinearLayer | TokenLogits, rank: int, alpha: float, key: torch.Generator
    ) -> None:
        super().__init__()
        weight_OI = layer.weight
        assert isinstance(weight_OI, Tensor)
        outputs, inputs = weight_OI.shape
        number, device = adapter_dtype(weight_OI), weight_OI.device
        self.alpha, self.scale, self.dropout = alpha, spec.scale(rank, alpha), Dropout(spec.dropout)
        down_RI, up_OR = torch.empty(rank, inputs), torch.zeros(outputs, rank)
        self.start_down: nn.Parameter | None = None
        self.start_up: nn.Parameter | None = None
        if spec.start == "principal":
            down_RI, up_OR = _principal(weight_OI, rank, self.scale)
            self.start_down, self.start_up = _frozen(down_RI, number), _frozen(up_OR, number)
        elif spec.start == "gaussian":
            down_RI.normal_(0.0, 1 / rank, generator=key)
        else:
            edge = inputs**-0.5
            down_RI.uniform_(-edge, edge, generator=key)
        self.down = nn.Parameter(down_RI.to(device, number))
        self.up = nn.Parameter(up_OR.to(device, number))
        self.magnitude: nn.Parameter | None = None
        self._lengths: tuple[tuple[layout.Stamp, ...], Tensor] | None = None
        if spec.variant == "dora":
            self.magnitude = nn.Parameter(self._row_lengths(layer).clone())

    def after(self, x: Tensor, y: Tensor, layer: TunedLayer) -> Tensor:
        x = self.dropout(x) if self.training else x
        low = self._low_rank(x.to(self.down.dtype), self.down, self.up)
        if self.start_down is not None and self.start_up is not None:
            low = low - self._low_rank(x.to(self.down.dtype), self.start_down, self.start_up)
        if self.magnitude is None:
            return y + low.to(y.dtype)
        ratio_O = self.magnitude / self._row_lengths(layer)
        alone = y if layer.bias is None else y - layer.bias  # a bias has no length to learn
        # In this form the output is that of the layer, bit for bit, as long as the ratio is one.
        return y + ((ratio_O - 1) * alone + ratio_O * low).to(y.dtype)

    def _low_rank(self, x: Tensor, down_RI: Tensor, up_OR: Tensor) -> Tensor:
        product = training_linear if self.training else F.linear
        return product(product(x, down_RI, None) * self.scale, up_OR, None)

    @torch.no_grad()
    def _row_lengths(self, layer: LinearLayer | TokenLogits) -> Tensor:
        """The lengths of the rows of the sum; constants for the gradient, as in the paper."""
        assert isinstance(layer.weight, Tensor)
        stamps = tuple(map(layout.stamp, (layer.weight, self.down, self.up)))
        if self._lengths is not None and self._lengths[0] == stamps and _is_usable(self._lengths[1]):
            return self._lengths[1]
        lengths_O: Tensor = (base_matrix(layer).to(self.up.dtype) + self.delta()).norm(dim=1)
        # Kept between calls in inference alone: torch's fused optimizers do not count their writes.
        self._lengths = None if self.training else (stamps, lengths_O)
        return lengths_O

    def train(self, mode: bool = True) -> LoraAdapter:  # noqa: FBT001, FBT002 (torch's own signature)
        self._lengths = None
        return super().train(mode)

    def factors(self) -> list[tuple[Tensor, Tensor]]:
        """Pairs of `down` and scaled `up`, whose products add up to what is added to the matrix."""
        pairs = [(self.down.detach(), self.scale * self.up.detach())]
        if self.start_down is not None and self.start_up is not None:
            pairs.append((self.start_down, -self.scale * self.start_up))
        return pairs

    def length_ratio(self, layer: LinearLayer | TokenLogits) -> Tensor:
        """Of DoRA: by how much each row of the sum is stretched."""
        assert self.magnitude is not None
        return self.magnitude.detach() / self._row_lengths(layer)

    def delta(self) -> Tensor:
        """What is added to the matrix of the layer, (O, I)."""
        sum_OI = self.up @ self.down
        if self.start_down is not None and self.start_up is not None:
            sum_OI = sum_OI - self.start_up @ self.start_down
        return self.scale * sum_OI

    def merge(self, weight_OI: Tensor, bias_O: Tensor | None) -> MergedWeights:
        delta = self.up.double() @ self.down.double()
        if self.start_down is not None and self.start_up is not None:
            delta = delta - self.start_up.double() @ self.start_down.double()
        merged = weight_OI + self.scale * delta
        if self.magnitude is not None:
            merged = merged * (self.magnitude.double() / merged.norm(dim=1))[:, None]
        return MergedWeights(merged, bias_O)


def _is_usable(x: Tensor) -> bool:
    """Gradients cannot flow past a tensor that was made in inference mode, as generation is."""
    return torch.is_inference_mode_enabled() or not x.is_inference()


@torch.no_grad()
def _principal(weight_OI: Tensor, rank: int, scale: float) -> tuple[Tensor, Tensor]:
    """The largest singular directions, their size shared between both matrices: up down = W_rank / scale."""
    left, size, right = torch.linalg.svd(weight_OI.double(), full_matrices=False)
    root = (size[:rank] / scale).sqrt()
    return root[:, None] * right[:rank], left[:, :rank] * root


def _frozen(x: Tensor, number: torch.dtype) -> nn.Parameter:
    return nn.Parameter(x.to(number).clone(), requires_grad=False)
