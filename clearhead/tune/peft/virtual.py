"""PEFT's prefix and prompt tuning: virtual tokens in, one tensor `prompt_embeddings` out; and back.

    prompt    (P, width); before the encoder of an encoder-decoder, where a second half is stored and not used
    prefix    (P, 2 layers x heads x head width): the keys of layer i are entry 2 i, its values 2 i + 1

In an encoder-decoder PEFT puts a prefix before the self-attention of the decoder alone, and layer i reads the
entries 4 i and 4 i + 1, counted around: half of what is stored is never read. That is read here, not written.

Shape suffixes: P virtual tokens, H key/value heads, E head width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...errors import LoadError, UnsupportedError
from ...nn import Attention, PrefixModule, TransformerModel
from ...weights import StateDict
from ..files import AdapterFiles
from ..names import ModelNames
from ..tuning import AttachedTuning
from ..virtual import Prefix, Prompt
from .layout import COMMON, PROMPT

VIRTUAL: dict[str, Any] = COMMON | {
    "num_attention_heads": None, "num_layers": None, "num_transformer_submodules": 1,
    "num_virtual_tokens": None, "token_dim": None,
}  # fmt: skip
PREFIX_CONFIG = VIRTUAL | {
    "encoder_hidden_size": None, "init_weights": None, "peft_type": "PREFIX_TUNING",
    "prefix_projection": False,
}  # fmt: skip
PROMPT_CONFIG = VIRTUAL | {
    "peft_type": "PROMPT_TUNING", "prompt_tuning_init": "RANDOM", "prompt_tuning_init_text": None,
    "tokenizer_kwargs": None, "tokenizer_name_or_path": None,
}  # fmt: skip


def write_prompt(
    model: TransformerModel, attached: AttachedTuning, names: ModelNames, task_type: str | None
) -> AdapterFiles:
    table = model.get_parameter(_table(model)).detach()
    tower, two = model.spec.head_tower, task_type == "SEQ_2_SEQ_LM"
    attention = tower.pattern[0].attention
    config = PROMPT_CONFIG | {
        # Without a number, PEFT looks for one in the config of the model.
        "num_attention_heads": attention.heads if isinstance(attention, Attention) else 1,
        "num_layers": next(iter(model.spec.towers.values())).depth,
        "num_transformer_submodules": 2 if two else 1,
        "num_virtual_tokens": len(table),
        "token_dim": table.shape[1],
    }
    stored = torch.cat([table, torch.zeros_like(table)]) if two else table
    return AdapterFiles(config, {PROMPT: stored})


def write_prefix(
    model: TransformerModel, attached: AttachedTuning, names: ModelNames, task_type: str | None
) -> AdapterFiles:
    if model.spec.source_tower is not None:
        raise UnsupportedError("PEFT stores no prefix for every attention of an encoder-decoder")
    module = next(iter(model.stacks.values())).virtual
    assert isinstance(module, PrefixModule)
    entries = [x.detach() for pair in zip(module.keys, module.values, strict=True) for x in pair]
    if len({x.shape for x in entries}) > 1 or any(block.attn.is_latent for block in _blocks(model)):
        raise UnsupportedError("PEFT stores a prefix of one size for all layers, keys and values")
    heads, count, width = entries[0].shape
    # (2 L, H, P, E) as (P, 2 L H E)
    table = torch.stack(entries).permute(2, 0, 1, 3).reshape(count, -1)
    config = PREFIX_CONFIG | {
        "encoder_hidden_size": heads * width,
        "num_attention_heads": heads,
        "num_layers": len(entries) // 2,
        "num_virtual_tokens": count,
        "token_dim": heads * width,
    }
    return AdapterFiles(config, {PROMPT: table})


def _blocks(model: TransformerModel) -> Any:
    return next(iter(model.stacks.values())).blocks


def prompt_tuning(files: AdapterFiles, names: ModelNames) -> Prompt:
    return Prompt(length=_count(files))


def prefix_tuning(files: AdapterFiles, names: ModelNames) -> Prefix:
    parts = ("decoder",) if files.config.get("num_transformer_submodules") == 2 else Prefix.parts
    return Prefix(length=_count(files), parts=parts)


def _count(files: AdapterFiles) -> int:
    count = files.config.get("num_virtual_tokens")
    stored = _stored(files)
    if not isinstance(count, int) or not 1 <= count <= len(stored):
        raise LoadError(f"the adapter says {count!r} virtual tokens, and stores {len(stored)}")
    return count


def _stored(files: AdapterFiles) -> Tensor:
    stored = files.tensors.get(PROMPT)
    if stored is None or stored.ndim != 2:
        raise LoadError(f"the adapter has no matrix {PROMPT}; its file is damaged")
    return stored


def prompt_state(
    files: AdapterFiles, model: TransformerModel, attached: AttachedTuning, names: ModelNames
) -> StateDict:
    return {_table(model): _stored(files)[: _count(files)]}


def prefix_state(
    files: AdapterFiles, model: TransformerModel, attached: AttachedTuning, names: ModelNames
) -> StateDict:
    count, stored = _count(files), _stored(files)
    two = files.config.get("num_transformer_submodules") == 2
    name, stack = list(model.stacks.items())[-1]
    heads, _, width = stack.virtual.keys[0].shape  # type: ignore[union-attr, index]
    if stored.shape[1] % (2 * heads * width):
        raise LoadError(
            f"the prefix has {stored.shape[1]} numbers for a token, and this model {heads} heads of {width}; "
            f"it is of another base"
        )
    entries = stored.reshape(count, -1, heads, width).permute(1, 2, 0, 3)
    layers, step = len(stack.blocks), 4 if two else 2
    if not two and len(entries) != 2 * layers:
        raise LoadError(f"the prefix is for {len(entries) // 2} layers, and this model has {layers}")
    found: StateDict = {}
    for i in range(layers):
        found[f"{name}.virtual.keys.{i}"] = entries[step * i % len(entries)]
        found[f"{name}.virtual.values.{i}"] = entries[(step * i + 1) % len(entries)]
    return found


def _table(model: TransformerModel) -> str:
    return f"{next(iter(model.stacks))}.virtual.table"
