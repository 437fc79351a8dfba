"""A model whose layers are on several devices: each is called where it is, and activations move there."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from difflib import get_close_matches
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import InputError, nearest
from ...nn import Context, Everyone, Given, Mask, Stack, View
from .attention import ModelArgs
from .model import Transformer

Device = torch.device | str
Config = Mapping[str, Any] | ModelArgs | object
# ModelArgs' names for the arguments of a Transformer.
OTHER_NAMES = {"dim": "d_model", "n_layers": "num_layers"}


class DistributedTransformer(Transformer):
    """A `Transformer` from a config, its layers spread over devices in order: `devices=("cuda:0", "cuda:1")`.

    The config is a dict, a `ModelArgs`, or any object with such attributes; keywords override it. Without a
    vocabulary it has 10,000 words per side. The whole config stays readable as `model.config`.

    This is model parallelism: one layer after another, for a model that is too large for one device. It is no
    faster than one device would be. To train faster on several, wrap a `Transformer` in torch's own
    `nn.parallel.DistributedDataParallel`; `clearhead train` uses a single process.
    """

    def __init__(
        self,
        config: Config | None = None,
        *,
        devices: Sequence[Device] | None = None,
        **settings: Any,
    ) -> None:
        given = {} if config is None else _as_dict(config)
        super().__init__(**_settings({**given, **settings}, strict=isinstance(config, Mapping)))
        self.config = {**given, **settings}
        found = [f"cuda:{i}" for i in range(torch.cuda.device_count())] or ["cpu"]
        self.devices = [torch.device(device) for device in (found if devices is None else devices)]
        if not self.devices:
            raise InputError("devices is empty; give at least one, such as ('cpu',)")
        for stack in self.inner.stacks.values():
            self._place(stack)
        if self.inner.head is not None:
            self.inner.head.to(self.devices[-1])

    @property
    def placement(self) -> dict[str, str]:
        """Which layer is on which device."""
        return {
            f"{side}.{i}": str(self._device(i, len(stack.blocks)))
            for side, stack in self.inner.stacks.items()
            for i in range(len(stack.blocks))
        }

    def _device(self, layer: int, depth: int) -> torch.device:
        return self.devices[layer * len(self.devices) // depth]

    def _place(self, stack: Stack) -> None:
        stack.embed.to(self.devices[0])
        for i, block in enumerate(stack.blocks):
            block.to(self._device(i, len(stack.blocks)))
            block.register_forward_pre_hook(_arrive(self._device(i, len(stack.blocks))))
        for last in (stack.norm, stack.project):
            if last is not None:
                last.to(self._device(len(stack.blocks) - 1, len(stack.blocks)))


def _as_dict(config: Config) -> dict[str, Any]:
    """The settings that a dict, a dataclass, a namespace or a class with attributes holds."""
    if isinstance(config, Mapping):
        return dict(config)
    if isinstance(config, ModelArgs):
        settings = {field.name: getattr(config, field.name) for field in fields(config)}
        return {**settings, "d_ff": 4 * config.dim}
    names = [name for name in dir(config) if not name.startswith("_")]
    return {name: value for name in names if not callable(value := getattr(config, name))}


def _settings(config: Mapping[str, Any], *, strict: bool) -> dict[str, Any]:
    """The arguments of a `Transformer` that a config holds; it may name one vocabulary for both sides.

    A dict has no other keys. An object may, since programs keep everything in one; but a name that is nearly
    an argument's is an error, because the default would silently be used instead.
    """
    known = [*inspect.signature(Transformer).parameters]
    names = {*known, *OTHER_NAMES, "vocab_size", "n_embd"}
    for name in config.keys() - names:
        if strict or get_close_matches(name, names, cutoff=0.8):
            hint = nearest(name, names)
            raise InputError(f"the config has {name!r}, which a Transformer does not know; {hint}")
    given = {OTHER_NAMES.get(name, name): value for name, value in config.items()}
    if given.get("n_embd", given.get("d_model")) != given.get("d_model"):
        raise InputError(f"n_embd is {given['n_embd']}, dim {given.get('d_model')}; residuals need one width")
    vocab = given.get("vocab_size", ModelArgs().vocab_size)
    both = {"src_vocab_size": vocab, "tgt_vocab_size": vocab}
    return {**both, **{name: value for name, value in given.items() if name in known}}


def _arrive(device: torch.device) -> Any:
    """Before a layer is called, all its inputs are moved to its device."""

    def move(block: nn.Module, given: tuple[Tensor, Context]) -> tuple[Tensor, Context]:
        x_BTD, ctx = given
        there = replace(ctx, view=_moved(ctx.view, device))
        if ctx.encoder_output is not None and ctx.encoder_view is not None:
            there = replace(
                there,
                encoder_output=ctx.encoder_output.to(device),
                encoder_view=_moved(ctx.encoder_view, device),
            )
        return x_BTD.to(device), there

    return move


def _moved(view: View, device: torch.device) -> View:
    """The same view on another device; its rule is moved as a mask tensor."""
    rule: Mask = Everyone() if view.dense is None else Given(view.dense.to(device))
    return replace(
        view,
        mask=rule,
        q_pos=view.q_pos.to(device),
        k_pos=view.k_pos.to(device),
        _restricted={},
        _attn_masks={},
    )
