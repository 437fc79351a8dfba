"""GGUF files of small random models, written with the `gguf` library as llama.cpp's converter writes them."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from trained import trained
from transformers import LlamaConfig, LlamaForCausalLM

gguf = pytest.importorskip("gguf", reason="the gguf library is not here: pip install 'clearhead[gguf]'")
Type = gguf.GGMLQuantizationType

NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "model.layers.": "blk.",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def llama(**changes: object) -> LlamaForCausalLM:
    torch.manual_seed(0)
    sizes = {
        "vocab_size": trained("bytes").get_vocab_size(),
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {"rope_type": "default", "rope_theta": 50000.0},
    }
    model = LlamaForCausalLM(LlamaConfig(**sizes | changes)).eval()
    for parameter in model.parameters():  # norms and biases too
        torch.nn.init.normal_(parameter, std=0.3)
    return model


def permuted(x: np.ndarray, heads: int) -> np.ndarray:
    """As llama.cpp's convert_hf_to_gguf.py does it."""
    rows = x.reshape(heads, 2, x.shape[0] // heads // 2, *x.shape[1:])
    return rows.swapaxes(1, 2).reshape(x.shape)


def their_name(name: str) -> str:
    for ours, theirs in NAMES.items():
        name = name.replace(ours, theirs)
    return name


def write(
    path: Path,
    model: LlamaForCausalLM,
    kind: Type = Type.F32,
    tokens: Callable[[gguf.GGUFWriter], None] | None = None,
    change: Callable[[gguf.GGUFWriter], None] | None = None,
    architecture: str = "llama",
) -> Path:
    config = model.config
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(config.head_dim)
    (tokens or byte_tokens)(writer)
    if change:
        change(writer)
    for name, x in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        add(writer, name, x.numpy(), config, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def add(writer: gguf.GGUFWriter, name: str, x: np.ndarray, config: LlamaConfig, kind: Type) -> None:
    if "q_proj" in name:
        x = permuted(x, config.num_attention_heads)
    if "k_proj" in name:
        x = permuted(x, config.num_key_value_heads)
    if x.ndim == 1 or kind == Type.F32:
        writer.add_tensor(their_name(name), np.ascontiguousarray(x))
    else:
        writer.add_tensor(their_name(name), gguf.quants.quantize(x, kind), raw_dtype=kind)


def byte_tokens(writer: gguf.GGUFWriter, pre: str = "gpt-2") -> None:
    state = json.loads(trained("bytes").to_str())["model"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(sorted(state["vocab"], key=state["vocab"].get))
    writer.add_token_types([3] * 4 + [1] * (len(state["vocab"]) - 4))
    writer.add_token_merges([" ".join(merge) for merge in state["merges"]])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_pad_token_id(2)
    writer.add_unk_token_id(3)
    writer.add_chat_template("{{ messages }} 你好")


def after(x: np.ndarray, kind: Type) -> np.ndarray:
    """What is left of a matrix once it has been stored as this type."""
    return (
        x if x.ndim == 1 or kind == Type.F32 else gguf.quants.dequantize(gguf.quants.quantize(x, kind), kind)
    )
