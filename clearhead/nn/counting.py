"""Counting costs: a module in; the cost of a call out, measured by running it on torch's meta device.

The meta device computes shapes only, so a call is fast; torch's FLOP counter and autograd's hooks still see
it. For kinds of specs that have no formula of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeVar

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from ..errors import ClearheadError, UnsupportedError
from ..spec import Dims, Spec
from .cost import Bias, CostSettings, HiddenShape, PartCost, PositionCost
from .masks import Causal, Everyone
from .view import View

if TYPE_CHECKING:
    from .positions import BoundPositions, Positions

ModuleT = TypeVar("ModuleT", bound=nn.Module)
Counted = Literal["here", "elsewhere"]
FLOAT_BY_BYTES = {2: torch.bfloat16, 4: torch.float32, 8: torch.float64}


class SavedTensors:
    """The storages that autograd saves for the backward pass, each counted once."""

    def __init__(self) -> None:
        self.bytes: dict[int, int] = {}
        self._alive: list[Tensor] = []  # a freed storage could pass its address on to another

    def keep(self, x: Tensor) -> Tensor:
        self.bytes[x.untyped_storage()._cdata] = x.untyped_storage().nbytes()
        self._alive.append(x)
        return x

    def total(self, without: Sequence[Tensor]) -> int:
        gone = {x.untyped_storage()._cdata for x in without}
        return sum(size for storage, size in self.bytes.items() if storage not in gone)


@torch.inference_mode(mode=False)
@torch.enable_grad()
def count_cost(
    spec: Spec,
    build: Callable[[], ModuleT],
    run: Callable[..., Tensor | Sequence[Tensor]],
    shapes: Sequence[tuple[int, ...]],
    at: CostSettings,
    *,
    inputs_count: Counted = "elsewhere",
    outputs_count: Counted | Literal["saved"] = "elsewhere",
    without: Sequence[Tensor] = (),
) -> PartCost:
    """The cost of `run(module, *inputs)`, with inputs of these shapes.

    Bytes are those of the tensors that autograd saves, without parameters and the tensors in `without`.
    `inputs_count`: "here" counts inputs that are saved; "elsewhere" means the caller has counted all inputs
    as saved, so those that are not are subtracted. `outputs_count`: always ("here"), never ("elsewhere"), or
    only those that are "saved".
    """
    forward, both, saved = FlopCounterMode(display=False), FlopCounterMode(display=False), SavedTensors()
    try:
        module, inputs = on_meta(build, shapes, at)
        with both, torch.random.fork_rng(devices=[]):
            with forward, torch.autograd.graph.saved_tensors_hooks(saved.keep, lambda x: x):
                made = run(module, *inputs)
            outputs = [made] if isinstance(made, Tensor) else list(made)
            learned = [x.sum() for x in outputs if x.requires_grad]
            if learned:
                torch.autograd.backward(learned)
    except ClearheadError:
        raise
    except RuntimeError as error:  # it reads values, which a meta tensor does not have
        raise unknown_cost(spec) from error
    if outputs_count == "here":
        for x in outputs:
            saved.keep(x)
    without = [*without, *module.parameters(), *(outputs if outputs_count == "elsewhere" else [])]
    kept = saved.total(without)
    if inputs_count == "elsewhere":
        kept -= sum(x.untyped_storage().nbytes() for x in inputs)
    return PartCost(
        parameters=sum(p.numel() for p in module.parameters()),
        flops=forward.get_total_flops(),
        backward=both.get_total_flops() - forward.get_total_flops(),
        saved=kept if at.training else 0,
    )


@torch.inference_mode(mode=False)
@torch.enable_grad()
def count_steps(
    spec: Spec,
    build: Callable[[], ModuleT],
    run: Callable[..., Iterable[Tensor]],
    shape: tuple[int, ...],
    at: CostSettings,
) -> list[PartCost]:
    """The cost of every step of a run, without parameters. `run(module, x)` yields what each step returns.

    A tensor that several steps save counts in the first; what a step returns counts in the step that saves
    it, and what the last one returns nowhere.
    """
    forward, both, saved = FlopCounterMode(display=False), FlopCounterMode(display=False), SavedTensors()
    flops, kept, after = [0], [0], {}

    def mark(step: int, _: Tensor) -> None:
        after[step] = both.get_total_flops()

    try:
        module, inputs = on_meta(build, [shape], at)
        without = list(module.parameters())
        with both, torch.random.fork_rng(devices=[]):
            with forward, torch.autograd.graph.saved_tensors_hooks(saved.keep, lambda x: x):
                for i, x in enumerate(run(module, *inputs)):
                    flops.append(forward.get_total_flops())
                    kept.append(saved.total(without))
                    # The gradient of what a step returns is complete when all later steps are done.
                    x.register_hook(partial(mark, i))  # type: ignore[no-untyped-call]
            x.sum().backward()  # type: ignore[no-untyped-call]
    except ClearheadError:
        raise
    except RuntimeError as error:
        raise unknown_cost(spec) from error
    kept[-1] = saved.total([*without, x])
    count = len(flops) - 1
    total = [both.get_total_flops(), *(after[i] for i in range(count))]
    return [
        PartCost(
            flops=flops[i + 1] - flops[i],
            backward=total[i] - total[i + 1],
            saved=kept[i + 1] - kept[i] if at.training else 0,
        )
        for i in range(count)
    ]


def on_meta(
    build: Callable[[], ModuleT], shapes: Sequence[tuple[int, ...]], at: CostSettings
) -> tuple[ModuleT, list[Tensor]]:
    dtype = FLOAT_BY_BYTES[at.number]
    with torch.device("meta"):
        module = build().to(dtype).train(at.training)
        return module, [torch.empty(shape, dtype=dtype).requires_grad_() for shape in shapes]


def unknown_cost(spec: Spec) -> UnsupportedError:
    name = type(spec).__name__
    return UnsupportedError(
        f"the cost of {name} is unknown: it has no formula, and it cannot be counted without real inputs "
        f"({name}.cost gives a formula)"
    )


@torch.inference_mode(mode=False)
@torch.enable_grad()
def count_position_cost(spec: Positions, shape: HiddenShape, dims: Dims) -> PositionCost:
    """The cost of a position scheme without a formula: that of a layer is the difference of two and one."""
    real = count_cost(spec, lambda: spec.build(dims, shape.width), lambda scheme: [], [], shape)
    dims = replace(dims, depth=max(dims.depth, 2))
    one, two = (_of_layers(spec, shape, dims, count) for count in (1, 2))
    flops, backward, saved = two.flops - one.flops, two.backward - one.backward, two.saved - one.saved
    bias, size, joined = _effect(spec, shape, dims)
    return PositionCost(
        tower=PartCost(real.parameters, one.flops - flops, one.backward - backward, one.saved - saved),
        layer=PartCost(flops=flops, backward=backward, saved=saved),
        bias=bias,
        shared_bias=size if bias == "learned" or (bias == "fixed" and dims.causal) else 0,
        joined=joined,
    )


class _SchemeInLayer(nn.Module):
    """A position scheme, and projections to queries and keys for one that uses those of a layer."""

    def __init__(self, spec: Positions, shape: HiddenShape, dims: Dims) -> None:
        super().__init__()
        self.scheme, self.heads = spec.build(dims, shape.width), dims.heads
        self.q, self.k = (nn.Linear(dims.width, dims.heads * dims.head_dim) for _ in range(2))

    def bind(self, view: View) -> BoundPositions:
        return self.scheme.bind(view).in_layer(self)

    def queries(self, x_BTD: Tensor) -> Tensor:
        q: Tensor = self.q(x_BTD)
        return q.reshape(*q.shape[:2], self.heads, -1).transpose(1, 2)

    def keys(self, x_BTD: Tensor) -> Tensor:
        k: Tensor = self.k(x_BTD)
        return k.reshape(*k.shape[:2], self.heads, -1).transpose(1, 2)


def _of_layers(spec: Positions, shape: HiddenShape, dims: Dims, count: int) -> PartCost:
    """Embeddings changed once, queries and keys of `layers` layers; their outputs are counted elsewhere."""
    view = _view(shape, dims)
    heads = (shape.batch, shape.length, dims.heads, dims.head_dim)

    def run(module: _SchemeInLayer, x_BTD: Tensor, *qk: Tensor) -> list[Tensor]:
        outputs, bound = [module.scheme.add(x_BTD, view.q_pos)], module.bind(view)
        for layer in range(count):
            q, k = (x.transpose(1, 2) for x in qk[2 * layer : 2 * layer + 2])
            q, k = bound.rotate_q(q), bound.rotate_k(k)
            if shape.lead:
                k = torch.cat([k.new_zeros(*k.shape[:2], shape.lead, k.shape[3]), k], dim=2)
            bias = bound.bias(layer, q, k)
            outputs += [q, k]
            if bias is None:
                continue
            # A kernel saves a fixed bias merged with the mask; for a learned one, the result of the merge.
            outputs.append(bias)
            if not bias.requires_grad:
                joined = view.attn_mask(bias)
                assert joined is not None
                outputs[-1] = joined * joined.new_ones(()).requires_grad_()
        return outputs

    sizes = [(shape.batch, shape.length, shape.width), *[heads] * (2 * count)]
    build = lambda: _SchemeInLayer(spec, shape, dims)  # noqa: E731
    return count_cost(spec, build, run, sizes, shape, inputs_count="here")


def _effect(spec: Positions, shape: HiddenShape, dims: Dims) -> tuple[Bias, int, bool]:
    """The kind of bias a scheme adds to the scores, its bytes, and whether rotation changes the layout."""
    heads = (shape.batch, shape.length, dims.heads, dims.head_dim)
    module, (q, k) = on_meta(lambda: _SchemeInLayer(spec, shape, dims), [heads] * 2, shape)
    q, k, bound = q.transpose(1, 2), k.transpose(1, 2), module.bind(_view(shape, dims))
    rotated = bound.rotate_q(q)
    joined = rotated.stride() != q.stride()
    k = torch.cat([k.new_zeros(*k.shape[:2], shape.lead, k.shape[3]), k], dim=2)
    bias = bound.bias(0, rotated.detach(), k.detach())
    if bias is None:
        return "none", 0, joined
    differentiable = bound.bias(0, rotated, k)
    kind: Bias = "learned" if bias.requires_grad else "fixed"
    if differentiable is not None and differentiable.requires_grad:
        grads = torch.autograd.grad(differentiable.sum(), (q, k), allow_unused=True)
        kind = "content" if any(grad is not None for grad in grads) else kind
    return kind, bias.numel() * shape.number, joined


def _view(shape: HiddenShape, dims: Dims) -> View:
    slots = torch.arange(shape.keys, device="meta")[None]
    mask = Causal() if dims.causal else Everyone()
    return View(mask, shape.batch, slots[:, shape.lead :], slots, shape.lead)
