"""Initialisation: an empty model in, initial weights out.

Every parameter has its own random generator, seeded by the seed and the parameter's name. The values do not
depend on the order of building or on torch's global generator; equal seeds give bit-identical models.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..errors import InputError
from ..malloc import available_memory
from ..spec import Spec
from .block import BlockModule
from .layers import InitDistribution, generator
from .multi_head import MultiHead
from .stack import Stack


class Init(Spec):
    """How matrices are initialised. Norms start as the identity and biases at zero in every scheme."""

    def distribution(self, matrix: Matrix) -> InitDistribution:
        raise NotImplementedError


@dataclass(frozen=True)
class Matrix:
    """What an initialisation scheme knows about a matrix."""

    name: str  # its address, as in tower.blocks.3.attn.out.weight
    rows: int
    columns: int  # for a linear layer the number of inputs
    is_table: bool  # an embedding
    head_dim: int | None  # for the projections of an attention
    residuals: int  # number of sub-layers that add to the residual stream of its tower

    @property
    def is_residual(self) -> bool:
        """Whether its output is added to the residual stream: the last matrix of a sub-layer."""
        return self.name.endswith((".out.weight", ".down.weight"))


@dataclass(frozen=True, kw_only=True)
class Xavier(Init):
    """Uniform, scaled by inputs and outputs (Glorot 2010); tables have unit variance after * sqrt(width)."""

    def distribution(self, matrix: Matrix) -> InitDistribution:
        if matrix.is_table:
            return InitDistribution(matrix.columns**-0.5)
        return InitDistribution(math.sqrt(2 / (matrix.rows + matrix.columns)), uniform=True)


@dataclass(frozen=True, kw_only=True)
class Normal(Init):
    """One standard deviation for everything (BERT)."""

    std: float = 0.02

    def distribution(self, matrix: Matrix) -> InitDistribution:
        return InitDistribution(self.std)


@dataclass(frozen=True, kw_only=True)
class ResidualNormal(Init):
    """As Normal, but matrices that add to the residual stream are divided by sqrt(their number) (GPT-2)."""

    std: float = 0.02

    def distribution(self, matrix: Matrix) -> InitDistribution:
        return InitDistribution(self.std / math.sqrt(matrix.residuals) if matrix.is_residual else self.std)


@dataclass(frozen=True, kw_only=True)
class FanIn(Init):
    """Scaled by inputs; queries include the factor head_dim ** -0.5, which T5 does not apply to scores."""

    factor: float = 1.0

    def distribution(self, matrix: Matrix) -> InitDistribution:
        if matrix.is_table:
            # The table of T5's relative positions holds scores, not vectors.
            small = matrix.name.endswith(("positions.table.weight", "positions.block_table.weight"))
            return InitDistribution(self.factor * (matrix.rows**-0.5 if small else 1.0))
        query = matrix.head_dim if matrix.name.endswith(".q.weight") and matrix.head_dim else 1
        return InitDistribution(self.factor * (matrix.columns * query) ** -0.5)


@torch.no_grad()
def initialise(model: nn.Module, init: Init, seed: int) -> None:
    """Fill every parameter of an empty model."""
    for name, parameter in model.named_parameters():
        path, _, leaf = name.rpartition(".")
        owner = model.get_submodule(path)
        if parameter.ndim < 2:
            # Norms start as the identity; a centred norm stores weight - 1, so its identity is 0.
            is_gain = leaf == "weight" and not getattr(owner, "centred", False)
            parameter.fill_(1.0 if is_gain else 0.0)
        else:
            distribution = getattr(owner, "init_distribution", None) or init.distribution(
                _matrix(model, name, owner, parameter)
            )
            parameter.copy_(_draw(parameter, distribution, generator(seed, "init", name)))


def _matrix(model: nn.Module, name: str, owner: nn.Module, parameter: Tensor) -> Matrix:
    parts = name.split(".")
    parents = [model.get_submodule(".".join(parts[:i])) for i in range(1, len(parts))]
    heads = [p.head_dim for p in parents if isinstance(p, MultiHead)]
    blocks = [block for p in parents if isinstance(p, Stack) for block in p.blocks]
    return Matrix(
        name=name,
        rows=parameter.shape[0],
        columns=parameter[0].numel(),
        is_table=isinstance(owner, nn.Embedding),
        head_dim=heads[-1] if heads else None,
        residuals=max(sum(len(block.steps) for block in blocks if isinstance(block, BlockModule)), 1),
    )


def _draw(like: Tensor, distribution: InitDistribution, key: torch.Generator) -> Tensor:
    """Sampled in float32 on the CPU, so that a seed gives the same values for every dtype and device."""
    empty = torch.empty(like.shape, dtype=torch.float32)
    if distribution.uniform:
        edge = distribution.std * math.sqrt(3)
        return empty.uniform_(-edge, edge, generator=key)
    return empty.normal_(0.0, distribution.std, generator=key)


def check_weights_fit(model: nn.Module, device: str) -> None:
    """Raise a one-line error before more is allocated than there is."""
    needed = sum(p.numel() * p.element_size() for p in model.parameters())
    free = available_memory() if needed > 2**30 and torch.device(device).type == "cpu" else None
    if free is not None and needed > free:
        raise InputError(
            f"a model of {needed / 1e9:.3g} GB does not fit into the {free / 1e9:.3g} GB that are free; "
            f"make it smaller by its config, or count it without building: spec.count()"
        )
