"""Tiny random models of `transformers`, one for every family and head, with every parameter moved.

The sizes come from the key names, which families share; a new family needs no line here. VARIATIONS add the
choices that its config offers.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from torch.overrides import TorchFunctionMode

from clearhead.families import FAMILIES, Family, HeadKind

TINY = {
    "vocab_size": 99, "decoder_vocab_size": 99,
    "hidden_size": 32, "d_model": 32, "n_embd": 32, "dim": 32, "embedding_size": 16,
    "num_hidden_layers": 4, "n_layer": 2, "n_layers": 2, "num_layers": 2, "num_decoder_layers": 3,
    "encoder_layers": 2, "decoder_layers": 3,
    "num_attention_heads": 4, "n_head": 4, "n_heads": 4, "num_heads": 4, "encoder_attention_heads": 4,
    "decoder_attention_heads": 2, "num_key_value_heads": 2, "d_kv": 8, "head_dim": 8,
    "intermediate_size": 48, "hidden_dim": 48, "d_ff": 48, "d_inner": 48, "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 40,
    "attention_window": 4, "block_size": 1, "num_random_blocks": 2,
    "max_encoder_position_embeddings": 64, "max_decoder_position_embeddings": 48,
    "max_position_embeddings": 64, "n_positions": 64, "sliding_window": 5, "query_pre_attn_scalar": 10,
    "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2,
    "id2label": {0: "a", 1: "b", 2: "c"}, "forced_eos_token_id": 2,
}  # fmt: skip
LLAMA3 = {"rope_type": "llama3", "rope_theta": 1e4, "factor": 4.0, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0, "original_max_position_embeddings": 16}  # fmt: skip
ROPES = {
    "linear": {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0},
    "dynamic": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0},
    "yarn": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 16},
    "llama3": LLAMA3,
}
# What a family needs in every case, and what its language model needs besides.
BASE: dict[str, dict[str, Any]] = {
    "reformer": {"attention_head_size": 8, "axial_pos_shape": [8, 8], "axial_pos_embds_dim": [12, 20],
                 "attn_layers": ["local", "lsh", "lsh", "local"], "feed_forward_size": 48, "num_hashes": 2,
                 "hash_seed": 3, "lsh_attn_chunk_length": 4, "local_attn_chunk_length": 4},
}  # fmt: skip
SPEAKING: dict[str, dict[str, Any]] = {"reformer": {"is_decoder": True}}
VARIATIONS: dict[str, dict[str, dict[str, Any]]] = {
    "transformer": {
        "three-tables": {"tie_word_embeddings": False},
        "untied": {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False,
                   "decoder_vocab_size": 77, "activation_function": "swish", "scale_embedding": True},
    },
    "openai-gpt": {"relu": {"afn": "relu"}},
    "gpt2": {
        "scaled-by-layer": {"scale_attn_by_inverse_layer_idx": True, "n_inner": 40},
        "unscaled": {"scale_attn_weights": False, "activation_function": "relu"},
        "untied": {"tie_word_embeddings": False, "layer_norm_epsilon": 1e-3},
    },
    "llama": {
        "biased-tied": {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
        "wide-heads": {"head_dim": 14, "num_key_value_heads": 1, "rms_norm_eps": 1e-3},
        "all-heads": {"num_key_value_heads": 4, "hidden_act": "gelu"},
        **{name: {"rope_parameters": said, "max_position_embeddings": 12 if name == "dynamic" else 64}
           for name, said in ROPES.items()},
    },
    "mistral": {"open": {"sliding_window": None}},
    "qwen2": {"sliding": {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 2}},
    "qwen3": {"biased": {"attention_bias": True, "tie_word_embeddings": True}},
    "gemma2": {"uncapped": {"attn_logit_softcapping": None, "final_logit_softcapping": None}},
    "gpt_neox": {
        "one-after-another": {"use_parallel_residual": False, "attention_bias": False},
        "half-turned": {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4,
                                            "partial_rotary_factor": 0.5}},
    },
    "bert": {"decoder": {"is_decoder": True},
             "relu": {"hidden_act": "relu", "layer_norm_eps": 1e-3, "type_vocab_size": 3}},
    "roberta": {"decoder": {"is_decoder": True},
                "one-type": {"type_vocab_size": 1, "hidden_act": "gelu_new"}},
    "albert": {"two-groups": {"num_hidden_groups": 2}, "exact-gelu": {"hidden_act": "gelu"}},
    "distilbert": {"waves": {"sinusoidal_pos_embds": True}},
    "t5": {
        "v1.1": {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
        "few-buckets": {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 10},
        "gated-silu": {"feed_forward_proj": "gated-silu", "d_kv": 6},
    },
    "xlnet": {
        "causal": {"attn_type": "uni", "tie_word_embeddings": False},
        "clamped": {"clamp_len": 4, "ff_activation": "relu"},
    },
    "reformer": {
        "factors": {"num_buckets": [2, 4], "num_hashes": 3, "attn_layers": ["lsh", "local"] * 2},
        "learned": {"axial_pos_embds": False, "local_attn_chunk_length": 8},
    },
    "big_bird": {
        "full": {"attention_type": "original_full"},
        "rescaled": {"rescale_embeddings": True, "use_bias": False, "num_random_blocks": 1},
    },
    "longformer": {"many-windows": {"attention_window": [4, 8, 4, 16]}},
    "led": {"many-windows": {"attention_window": [8, 4]}, "three-tables": {"tie_word_embeddings": False}},
    "bart": {"scaled": {"scale_embedding": True, "activation_function": "relu"},
             "three-tables": {"tie_word_embeddings": False}},
    "mbart": {"three-tables": {"tie_word_embeddings": False}},
}  # fmt: skip

GLOBAL = {"longformer", "led"}  # called with global tokens, too


@dataclass(frozen=True)
class Reference:
    family: Family
    task: HeadKind
    name: str
    changes: dict[str, Any]

    @property
    def takes_globals(self) -> bool:
        """Classifiers make the first token global themselves."""
        return self.family.name in GLOBAL and self.task != "labels"

    def config(self) -> Any:
        """Theirs, with the sizes of TINY where it has such a key."""
        plain = transformers.AutoConfig.for_model(self.family.key).to_dict()
        sizes = {key: value for key, value in TINY.items() if key in plain}
        sizes |= BASE.get(self.family.name, {})
        if self.task == "tokens":
            sizes |= SPEAKING.get(self.family.name, {})
        if self.task == "span":  # the first and the last token of an answer
            sizes["id2label"] = {0: "first", 1: "last"}
        return transformers.AutoConfig.for_model(self.family.key, **sizes | self.changes)

    def model(self, dtype: torch.dtype = torch.float32) -> Any:
        kind = getattr(transformers, self.family.architectures[self.task])
        config = self.config()
        config.architectures = [kind.__name__]
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = kind(config).to(dtype).eval()
            with torch.no_grad():
                for p in model.parameters():  # norms start at one and biases at zero: that hides errors
                    if p.requires_grad:  # all but Marian's sines
                        p.add_(torch.randn_like(p) * 0.05)
                for name, b in model.named_buffers():
                    if name.endswith("final_logits_bias"):
                        b.add_(torch.randn_like(b) * 0.1)
        return model

    def files(self, folder: Path, dtype: torch.dtype = torch.float32) -> Any:
        """The model, and its folder as `transformers` writes it."""
        model = self.model(dtype)
        model.save_pretrained(folder)
        return model

    def __str__(self) -> str:
        return f"{self.family.name}/{self.task}/{self.name}"


# What the installed package no longer has is proven by golden tensors: see tests/golden.
GOLDEN = {"transfo-xl"}
KNOWN = {name: family for name, family in FAMILIES.items() if name not in GOLDEN}


def references() -> Iterator[Reference]:
    for family in KNOWN.values():
        for task in family.architectures:
            yield Reference(family, task, "plain", {})
        for name, changes in VARIATIONS.get(family.name, {}).items():
            yield Reference(family, "tokens", name, changes)


REFERENCES = {str(r): r for r in references()}

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


def patient(model: Any) -> None:
    """Reformer scores a token with itself at -1e5, where 32 bits have steps of 0.008: one that meets nobody
    else gets 0.998 of itself. At -50 the score is as negligible beside others, and has its digits."""
    for name, buffer in model.named_buffers():
        if name.endswith("self_mask_value_float32"):
            buffer.fill_(-50.0)


def in_own_memory(model: Any) -> Any:
    """The model with every tensor contiguous and aligned as torch allocates it."""
    for x in (*model.parameters(), *model.buffers()):
        x.data = x.data.clone(memory_format=torch.contiguous_format)
    return model


class Exact(TorchFunctionMode):
    """Inside, a reference computes in float64 throughout; it otherwise rounds norms and angles to 32 bits."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.float:
            return args[0].double()
        args = tuple(torch.float64 if a is torch.float32 else a for a in args)
        kwargs = {k: torch.float64 if v is torch.float32 else v for k, v in (kwargs or {}).items()}
        return func(*args, **kwargs)
