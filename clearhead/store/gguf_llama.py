"""LLaMA as llama.cpp writes it: metadata in, config.json and Hugging Face's tensor names out."""

from __future__ import annotations

from collections.abc import Mapping
from math import pi
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import LoadError
from .gguf_header import Metadata, StoredTensor

EMBEDDING_WEIGHT, OUTPUT_WEIGHT, ROPE_FACTORS = "token_embd.weight", "output.weight", "rope_freqs.weight"
SPECIAL_TOKEN_KEYS = {"bos_token_id": "bos", "eos_token_id": "eos", "pad_token_id": "padding"}
LLAMA3_ROPE = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}

TensorPlan = dict[
    str, tuple[str, tuple[int, ...]]
]  # their name -> Hugging Face's, and the shape it must have


def read_config(
    metadata: Metadata, tensors: Mapping[str, StoredTensor], rope_factors: Tensor | None
) -> dict[str, Any]:
    """The metadata as a Hugging Face config. What this family cannot express is an error."""
    _check_supported(metadata)
    heads, width = metadata.integer("llama.attention.head_count"), metadata.integer("llama.embedding_length")
    head_dim = metadata.integer("llama.attention.key_length", width // heads)
    for key in ("llama.attention.value_length", "llama.rope.dimension_count"):
        if metadata.integer(key, head_dim) != head_dim:
            raise LoadError(f"{key} is {metadata[key]} and a head is {head_dim} wide; expected the same")
    if EMBEDDING_WEIGHT not in tensors:
        raise LoadError(f"it has no {EMBEDDING_WEIGHT}")
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": tensors[EMBEDDING_WEIGHT].shape[0],  # the list of tokens may be shorter than the table
        "hidden_size": width,
        "intermediate_size": metadata.integer("llama.feed_forward_length"),
        "num_hidden_layers": metadata.integer("llama.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": metadata.integer("llama.attention.head_count_kv", heads),
        "head_dim": head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": metadata.integer("llama.context_length"),
        "rms_norm_eps": _shortest_decimal(metadata.positive_float("llama.attention.layer_norm_rms_epsilon")),
        "rope_parameters": _rope(metadata, head_dim, rope_factors),
        "attention_bias": "blk.0.attn_q.bias" in tensors,
        "mlp_bias": "blk.0.ffn_up.bias" in tensors,
        "tie_word_embeddings": OUTPUT_WEIGHT not in tensors,
        **{
            name: _token_id(metadata, f"tokenizer.ggml.{role}_token_id")
            for name, role in SPECIAL_TOKEN_KEYS.items()
        },
    }


def plan_tensors(config: Mapping[str, Any], tensors: Mapping[str, StoredTensor]) -> TensorPlan:
    """Every tensor that such a model has; the file must have these, in these shapes, and no others."""
    width, vocab, depth = config["hidden_size"], config["vocab_size"], config["num_hidden_layers"]
    expected: TensorPlan = {
        EMBEDDING_WEIGHT: ("model.embed_tokens.weight", (vocab, width)),
        "output_norm.weight": ("model.norm.weight", (width,)),
    }
    if OUTPUT_WEIGHT in tensors:
        expected[OUTPUT_WEIGHT] = ("lm_head.weight", (vocab, width))
    if depth > len(tensors):  # checked before a list of that length is created
        raise LoadError(f"llama.block_count is {depth}; the file has {len(tensors)} tensors in all")
    for i in range(depth):
        for theirs, (name, shape) in _layer_tensors(config).items():
            expected[f"blk.{i}.{theirs}"] = (f"model.layers.{i}.{name}", shape)
    missing = sorted(expected.keys() - tensors.keys())
    unknown = sorted(tensors.keys() - expected.keys() - {ROPE_FACTORS})
    if missing or unknown:
        what, names = ("lacks", missing) if missing else ("has, unexpectedly,", unknown)
        raise LoadError(f"it {what} {', '.join(names[:3])}{' and others' if len(names) > 3 else ''}")
    for theirs, (_, shape) in expected.items():
        if tensors[theirs].shape != shape:
            raise LoadError(f"{theirs} is {tensors[theirs].shape}; by its metadata it should be {shape}")
    return expected


def unpermute(theirs: str, x: Tensor, config: Mapping[str, Any]) -> Tensor:
    """llama.cpp rotates neighbouring channels of a head as pairs, Hugging Face channel i with i + half."""
    part = theirs.split(".")[-2]
    if part not in ("attn_q", "attn_k"):
        return x
    heads = config["num_attention_heads" if part == "attn_q" else "num_key_value_heads"]
    pairs = x.reshape(heads, config["head_dim"] // 2, 2, *x.shape[1:])
    return pairs.transpose(1, 2).reshape(x.shape)


def _layer_tensors(config: Mapping[str, Any]) -> TensorPlan:
    width, hidden, head = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    q, kv = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    matrices = {
        "attn_q": ("self_attn.q_proj", (q, width)),
        "attn_k": ("self_attn.k_proj", (kv, width)),
        "attn_v": ("self_attn.v_proj", (kv, width)),
        "attn_output": ("self_attn.o_proj", (width, q)),
        "ffn_gate": ("mlp.gate_proj", (hidden, width)),
        "ffn_up": ("mlp.up_proj", (hidden, width)),
        "ffn_down": ("mlp.down_proj", (width, hidden)),
    }
    layer: TensorPlan = {
        "attn_norm.weight": ("input_layernorm.weight", (width,)),
        "ffn_norm.weight": ("post_attention_layernorm.weight", (width,)),
    }
    for theirs, (name, shape) in matrices.items():
        layer[f"{theirs}.weight"] = (f"{name}.weight", shape)
        if config["attention_bias" if theirs.startswith("attn") else "mlp_bias"]:
            layer[f"{theirs}.bias"] = (f"{name}.bias", shape[:1])
    return layer


def _check_supported(metadata: Metadata) -> None:
    architecture = metadata.string("general.architecture")
    if architecture != "llama":
        raise LoadError(f"its architecture is {architecture!r}; of GGUF files, those of llama are read")
    if metadata.get("split.count", 1) not in (0, 1):
        raise LoadError("it is one of several parts; join them with llama-gguf-split --merge")
    if metadata.get("llama.expert_count"):
        raise LoadError("it is a mixture of experts; of GGUF files, dense LLaMA models are read")


def _rope(metadata: Metadata, head_dim: int, factors: Tensor | None) -> dict[str, Any]:
    rope: dict[str, Any] = {"rope_type": "default"}
    rope["rope_theta"] = theta = _shortest_decimal(metadata.positive_float("llama.rope.freq_base", 10000.0))
    kind = metadata.string("llama.rope.scaling.type", "none")
    if factors is not None:
        return rope | _llama3_rope(factors, theta, head_dim)
    if kind == "linear":
        return rope | {"rope_type": "linear", "factor": metadata.positive_float("llama.rope.scaling.factor")}
    if kind != "none":
        raise LoadError(f"llama.rope.scaling.type is {kind!r}; known: none, linear")
    return rope


def _llama3_rope(factors: Tensor, theta: float, head_dim: int) -> dict[str, Any]:
    """LLaMA 3.1 and later store a divisor for each frequency, not the four parameters it is computed from.

    Three of them have never changed and the fourth is the largest divisor: recomputed from these,
    the divisors must equal the stored ones.
    """
    factor = float(factors.max())
    low, high, length = LLAMA3_ROPE.values()
    # How often each frequency rotates within the original length.
    rotations = length / (2 * pi * theta ** (torch.arange(0, head_dim, 2) / head_dim))
    smooth = ((rotations - low) / (high - low)).clamp(0, 1)
    recomputed = 1 / ((1 - smooth) / factor + smooth)
    if factors.shape != recomputed.shape or not torch.allclose(factors.float(), recomputed, rtol=1e-3):
        raise LoadError(f"{ROPE_FACTORS} is not of the kind that LLaMA 3 has")
    return {"rope_type": "llama3", "factor": _shortest_decimal(factor), **LLAMA3_ROPE}


def _token_id(metadata: Metadata, key: str) -> int | None:
    return metadata.integer(key, least=0) if key in metadata else None


def _shortest_decimal(value: float) -> float:
    """Numbers are stored as float32; 9.999999747378752e-06 was meant as 1e-05."""
    return float(str(np.float32(value)))
