"""A model whose layers stand on several devices: each is called where it stands, activations travel."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import InputError, nearest
from ...nn.context import Context
from ...nn.masks import Everyone, Given, Mask
from ...nn.tower import Stack
from ...nn.view import View
from .attention import ModelArgs
from .model import Transformer

Device = torch.device | str
TRAINING = ("warmup_steps", "label_smoothing")  # in the notes' config, and not the model's business


class DistributedTransformer(Transformer):
    """A `Transformer` from a config, its layers spread over devices in order: `devices=("cuda:0", "cuda:1")`.

    The notes hand the whole config to a layer that takes sizes (a TypeError), place encoder layers only, and
    never move what flows between them. This is model parallelism: one step after another, for a model that is
    too large for one device. To be faster with many, use data parallelism: `torchrun -m clearhead train`.
    """

    def __init__(
        self,
        config: Mapping[str, Any] | ModelArgs | None = None,
        *,
        devices: Sequence[Device] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(**_settings(config or {}, settings))
        found = [f"cuda:{i}" for i in range(torch.cuda.device_count())] or ["cpu"]
        self.devices = [torch.device(device) for device in (found if devices is None else devices)]
        if not self.devices:
            raise InputError("devices is empty; give at least one, such as ('cpu',)")
        for stack in (self.inner.encoder, self.inner.decoder):
            self._place(stack)
        if self.inner.head is not None:
            self.inner.head.to(self.devices[-1])

    @property
    def placement(self) -> dict[str, str]:
        """Which layer stands where."""
        return {
            f"{side}.{i}": str(self._device(i, len(stack.blocks)))
            for side, stack in (("encoder", self.inner.encoder), ("decoder", self.inner.decoder))
            for i in range(len(stack.blocks))
        }

    def _device(self, layer: int, depth: int) -> torch.device:
        return self.devices[layer * len(self.devices) // depth]

    def _place(self, stack: Stack) -> None:
        stack.embed.to(self.devices[0])
        for i, block in enumerate(stack.blocks):
            block.to(self._device(i, len(stack.blocks)))
            block.register_forward_pre_hook(_arrive(self._device(i, len(stack.blocks))))
        if stack.norm is not None:
            stack.norm.to(self._device(len(stack.blocks) - 1, len(stack.blocks)))


def _settings(config: Mapping[str, Any] | ModelArgs, more: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a `Transformer` in the notes' config, which may name one vocabulary for both."""
    if isinstance(config, ModelArgs):
        config = {
            "d_model": config.dim, "n_heads": config.n_heads, "num_layers": config.n_layers,
            "d_ff": 4 * config.dim, "max_len": config.max_seq_len, "dropout": config.dropout,
            "vocab_size": config.vocab_size,
        }  # fmt: skip
    given = {name: value for name, value in {**config, **more}.items() if name not in TRAINING}
    vocab = given.pop("vocab_size", None)
    both = {} if vocab is None else {"src_vocab_size": vocab, "tgt_vocab_size": vocab}
    known = [*inspect.signature(Transformer).parameters]
    for name in given:
        if name not in known:
            raise InputError(
                f"the config has {name!r}, which a Transformer does not know; {nearest(name, known)}"
            )
    return {**both, **given}


def _arrive(device: torch.device) -> Any:
    """Before a layer is called, everything it is called with comes to its device."""

    def move(block: nn.Module, given: tuple[Tensor, Context]) -> tuple[Tensor, Context]:
        x_BTD, ctx = given
        there = replace(ctx, view=_moved(ctx.view, device))
        if ctx.memory is not None and ctx.memory_view is not None:
            there = replace(there, memory=ctx.memory.to(device), memory_view=_moved(ctx.memory_view, device))
        return x_BTD.to(device), there

    return move


def _moved(view: View, device: torch.device) -> View:
    """The same view elsewhere; its rule travels as the tensor it stands for."""
    rule: Mask = Everyone() if view.dense is None else Given(view.dense.to(device))
    return replace(
        view, mask=rule, q_pos=view.q_pos.to(device), k_pos=view.k_pos.to(device), _under={}, _biased={}
    )
