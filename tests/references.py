"""Tiny random models of `transformers`, one for every family and head, with every parameter moved.

The sizes come from the key names, which families share; a new family needs no line here. VARIATIONS add the
choices that its config offers.
"""

import math
from collections.abc import Iterator
from copy import deepcopy
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
    "input_embedding_size": 16, "output_embedding_size": 40,
    "num_hidden_layers": 4, "n_layer": 2, "n_layers": 2, "num_layers": 2, "num_decoder_layers": 3,
    "encoder_layers": 2, "decoder_layers": 3,
    "num_attention_heads": 4, "n_head": 4, "n_heads": 4, "num_heads": 4, "encoder_attention_heads": 4,
    "decoder_attention_heads": 2, "num_key_value_heads": 2, "d_kv": 8, "head_dim": 8,
    "intermediate_size": 48, "hidden_dim": 48, "d_ff": 48, "d_inner": 48, "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 40, "ffn_dim": 48, "n_inner": 48, "ffn_hidden_size": 48, "rotary_dim": 4,
    "num_kv_heads": 2, "window_size": 5, "mask_token_id": 4, "local_attention": 6,
    "attention_window": 4, "local_radius": 4, "block_size": 1, "num_random_blocks": 2,
    "max_encoder_position_embeddings": 64, "max_decoder_position_embeddings": 48,
    "max_position_embeddings": 64, "n_positions": 64, "sliding_window": 5, "query_pre_attn_scalar": 10,
    "moe_intermediate_size": 24, "shared_expert_intermediate_size": 20, "num_experts": 6,
    "num_local_experts": 6, "n_routed_experts": 6, "num_experts_per_tok": 2,
    "kv_lora_rank": 12, "q_lora_rank": 14, "qk_rope_head_dim": 4, "qk_nope_head_dim": 6, "v_head_dim": 10,
    "first_k_dense_replace": 1, "n_group": 2, "topk_group": 1,
    "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2,
    "id2label": {0: "a", 1: "b", 2: "c"}, "forced_eos_token_id": 2,
}  # fmt: skip
LLAMA3 = {"rope_type": "llama3", "rope_theta": 1e4, "factor": 4.0, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0, "original_max_position_embeddings": 16}  # fmt: skip
LONGROPE = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0, 1.2, 1.5, 2.0],
            "long_factor": [1.0, 2.0, 3.0, 4.5]}  # fmt: skip
ROPES = {
    "linear": {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0},
    "dynamic": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0},
    "yarn": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 16},
    "llama3": LLAMA3,
}
DISENTANGLED = {"relative_attention": True, "position_biased_input": False, "pos_att_type": ["c2p", "p2c"]}
# What a family needs in every case, and what its language model needs besides.
BASE: dict[str, dict[str, Any]] = {
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "reformer": {"attention_head_size": 8, "axial_pos_shape": [8, 8], "axial_pos_embds_dim": [12, 20],
                 "attn_layers": ["local", "lsh", "lsh", "local"], "feed_forward_size": 48, "num_hashes": 2,
                 "hash_seed": 3, "lsh_attn_chunk_length": 4, "local_attn_chunk_length": 4},
    # With a padding token, theirs zeroes its vector after loading, in the head as well.
    "funnel": {"block_sizes": [2, 2, 1], "num_decoder_layers": 2, "d_head": 6, "pad_token_id": None},
}  # fmt: skip
BASE |= {name: {"num_key_value_heads": 4, "head_dim": 4} for name in ("deepseek_v2", "deepseek_v3")}
BASE["switch_transformers"] = {"num_sparse_encoder_layers": 1, "num_sparse_decoder_layers": 1}
SPEAKING: dict[str, dict[str, Any]] = {"reformer": {"is_decoder": True}}


def tiny_sizes(family: Family, task: HeadKind = "tokens") -> dict[str, Any]:
    """The config keys of a tiny model of this family, for `ch.build`."""
    sizes = {**TINY, **BASE.get(family.name, {})}
    sizes = {key: value for key, value in sizes.items() if key in family.defaults}
    return sizes | (SPEAKING.get(family.name, {}) if task == "tokens" else {})


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
    "mixtral": {"sliding": {"sliding_window": 4, "num_experts_per_tok": 3}},
    "qwen2_moe": {
        "some-dense": {"mlp_only_layers": [3], "decoder_sparse_step": 2, "norm_topk_prob": True},
        "sliding": {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 3,
                    "qkv_bias": False},
    },
    "qwen3_moe": {
        "some-dense": {"mlp_only_layers": [1], "norm_topk_prob": True, "tie_word_embeddings": True},
    },
    "deepseek_v2": {
        "plain-queries": {"q_lora_rank": None, "attention_bias": True, "first_k_dense_replace": 0,
                          "mlp_bias": True},
        "groups": {"topk_method": "group_limited_greedy", "n_routed_experts": 8, "n_group": 4,
                   "topk_group": 2, "routed_scaling_factor": 16.0},
        "yarn": {"rope_parameters": {**ROPES["yarn"], "mscale": 0.707, "mscale_all_dim": 0.9}},
    },
    "deepseek_v3": {
        "halves": {"rope_interleave": False, "norm_topk_prob": False, "n_shared_experts": 2},
        "yarn": {"rope_parameters": {**ROPES["yarn"], "mscale": 1.0, "mscale_all_dim": 1.0},
                 "q_lora_rank": None},
    },
    "gpt_oss": {
        "no-bias": {"attention_bias": False, "swiglu_limit": 0.3},
        "one-window": {"layer_types": ["full_attention"] * 3 + ["sliding_attention"]},
    },
    "qwen3": {"biased": {"attention_bias": True, "tie_word_embeddings": True}},
    "gemma": {"exact-gelu": {"hidden_act": "gelu"},
              "silu": {"hidden_act": "silu", "attention_bias": True, "tie_word_embeddings": False}},
    "gemma2": {"uncapped": {"attn_logit_softcapping": None, "final_logit_softcapping": None}},
    "gemma3": {
        "by-layer": {"layer_types": ["full_attention", "sliding_attention"] * 2,
                     "rope_parameters": {"full_attention": ROPES["linear"],
                                         "sliding_attention": {"rope_type": "default", "rope_theta": 77.0}}},
        "near-only": {"layer_types": ["sliding_attention"] * 4, "attention_bias": True},
        "both-ways": {"use_bidirectional_attention": True, "sliding_window": 6, "sliding_window_pattern": 2},
        "old-keys": {"rope_theta": 5000.0, "rope_local_base_freq": 300.0, "sliding_window_pattern": 3,
                     "rope_scaling": {"rope_type": "linear", "factor": 8.0}, "final_logit_softcapping": 3.0,
                     "tie_word_embeddings": False},
    },
    "starcoder2": {
        "open-unbiased": {"sliding_window": None, "use_bias": False, "tie_word_embeddings": False},
        "relu": {"hidden_act": "relu", "norm_epsilon": 1e-3, "num_key_value_heads": 4},
    },
    "granite": {
        "multiplied": {"embedding_multiplier": 3.0, "logits_scaling": 4.0, "residual_multiplier": 0.22,
                       "attention_multiplier": 0.3, "tie_word_embeddings": True},
        "biased": {"attention_bias": True, "mlp_bias": True, "residual_multiplier": 2},
    },
    "phi3": {
        "open": {"sliding_window": None, "num_key_value_heads": 4, "tie_word_embeddings": True},
        "partial": {"rope_parameters": {"rope_type": "default", "rope_theta": 1e3,
                                        "partial_rotary_factor": 0.5}},
        # A run of ours has one set of factors; theirs changes it when a text grows beyond the trained length.
        "long": {"rope_parameters": LONGROPE, "original_max_position_embeddings": 3},
        "short": {"rope_parameters": LONGROPE | {"rope_type": "su", "factor": 3.0,
                                                 "original_max_position_embeddings": 32},
                  "original_max_position_embeddings": 32},
        "amplified": {"rope_parameters": LONGROPE | {"rope_type": "yarn", "attention_factor": 1.3,
                                                     "partial_rotary_factor": 0.5, "long_factor": [2.0, 3.0],
                                                     "short_factor": [1.0, 1.5]},
                      "original_max_position_embeddings": 3},
    },
    "smollm3": {
        "sliding": {"use_sliding_window": True, "sliding_window": 4},
        "chosen": {"no_rope_layers": [0, 1, 1, 0], "attention_bias": True, "mlp_bias": True,
                   "layer_types": ["full_attention", "sliding_attention"] * 2, "sliding_window": 4,
                   "use_sliding_window": True},
        "all-turned": {"no_rope_layer_interval": 9, "tie_word_embeddings": False},
        "none-turned": {"no_rope_layer_interval": 1},
    },
    "olmo": {
        "clipped": {"clip_qkv": 0.3, "num_key_value_heads": 4},
        "biased-tied": {"attention_bias": True, "tie_word_embeddings": True, "hidden_act": "relu"},
    },
    "olmo2": {"biased-tied": {"attention_bias": True, "tie_word_embeddings": True, "rms_norm_eps": 1e-3}},
    "stablelm": {
        "parallel": {"use_parallel_residual": True, "qk_layernorm": True, "use_qkv_bias": True},
        "normed": {"qk_layernorm": True, "layer_norm_eps": 1e-3, "tie_word_embeddings": True},
        "half-turned": {"rope_parameters": {"rope_type": "default", "rope_theta": 1e3,
                                            "partial_rotary_factor": 0.5}},
        "old-keys": {"rope_theta": 1e3, "partial_rotary_factor": 0.75},
    },
    "olmo3": {
        "yarn": {"layer_types": ["full_attention", "sliding_attention"] * 2, "attention_bias": True,
                 "rope_parameters": {"full_attention": ROPES["yarn"],
                                     "sliding_attention": {"rope_type": "default", "rope_theta": 77.0}}},
        "old-keys": {"rope_theta": 5000.0, "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
    },
    "cohere2": {
        "chosen": {"layer_types": ["full_attention", "sliding_attention"] * 2, "tie_word_embeddings": False},
        "every-second": {"sliding_window_pattern": 2, "attention_bias": True, "logit_scale": 2.0},
    },
    "helium": {"biased-tied": {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}},
    "seed_oss": {"biased": {"attention_bias": False, "attention_out_bias": True, "mlp_bias": True}},
    "glm": {
        "unbiased-tied": {"attention_bias": False, "tie_word_embeddings": True},
        "all-turned": {"rope_parameters": {"rope_type": "default", "rope_theta": 1e3,
                                           "partial_rotary_factor": 1.0}},
    },
    "cohere": {
        "normed": {"use_qk_norm": True, "logit_scale": 2.0, "tie_word_embeddings": False},
        "biased": {"attention_bias": True, "num_key_value_heads": 4, "layer_norm_eps": 1e-3},
        "linear": {"rope_parameters": {"rope_type": "linear", "factor": 2.0}},
    },
    "gpt_neox": {
        "one-after-another": {"use_parallel_residual": False, "attention_bias": False},
        "half-turned": {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4,
                                            "partial_rotary_factor": 0.5}},
    },
    "gpt_neo": {
        "local-first": {"num_layers": 3, "attention_types": [[["local"], 2], [["global"], 1]]},
        "global": {"attention_types": [[["global"], 2]], "intermediate_size": None,
                   "activation_function": "relu"},
        "untied": {"tie_word_embeddings": False, "layer_norm_epsilon": 1e-3},
    },
    "opt": {
        "narrow-table": {"word_embed_proj_dim": 24, "do_layer_norm_before": False},
        "narrow-table-untied": {"word_embed_proj_dim": 24, "tie_word_embeddings": False},
        "no-last-norm": {"_remove_final_layer_norm": True, "activation_function": "gelu"},
        "post": {"do_layer_norm_before": False, "tie_word_embeddings": False},
        "plain-norms": {"layer_norm_elementwise_affine": False, "enable_bias": False},
    },
    "bloom": {
        "three-heads": {"n_head": 6, "hidden_size": 36, "layer_norm_epsilon": 1e-3},
        "untied": {"tie_word_embeddings": False},
        "normed-residual": {"apply_residual_connection_post_layernorm": True},
    },
    "gptj": {
        "whole-heads": {"rotary_dim": 8, "n_inner": None, "activation_function": "relu"},
        "tied": {"tie_word_embeddings": True, "layer_norm_epsilon": 1e-3},
    },
    "codegen": {
        "many-heads": {"n_head": 8, "n_embd": 48, "rotary_dim": 2, "n_inner": None},
        "tied": {"tie_word_embeddings": True},
    },
    "gpt_bigcode": {
        "all-heads": {"multi_query": False, "scale_attn_weights": False},
        "untied": {"tie_word_embeddings": False, "activation_function": "relu", "n_inner": None},
    },
    "falcon": {
        "two-norms": {"new_decoder_architecture": True, "bias": True},
        "new-one-norm": {"new_decoder_architecture": True, "num_ln_in_parallel_attn": 1},
        "alibi": {"alibi": True, "multi_query": False, "parallel_attn": False, "bias": True,
                  "num_attention_heads": 6, "hidden_size": 36, "num_kv_heads": 6},
        "alibi-one-key": {"alibi": True, "activation": "relu"},
        "untied": {"tie_word_embeddings": False, "ffn_hidden_size": None, "parallel_attn": False},
        "dynamic": {"rope_parameters": ROPES["dynamic"], "max_position_embeddings": 12},
    },
    "phi": {
        "qk-norm": {"qk_layernorm": True, "num_key_value_heads": 4, "layer_norm_eps": 1e-3},
        "tied": {"tie_word_embeddings": True, "hidden_act": "relu"},
        "whole-heads": {"rope_parameters": {"rope_type": "default", "rope_theta": 1e3,
                                            "partial_rotary_factor": 1.0}},
    },
    "bert": {"decoder": {"is_decoder": True},
             "relu": {"hidden_act": "relu", "layer_norm_eps": 1e-3, "type_vocab_size": 3}},
    "roberta": {"decoder": {"is_decoder": True},
                "one-type": {"type_vocab_size": 1, "hidden_act": "gelu_new"}},
    "camembert": {"decoder": {"is_decoder": True}},
    "data2vec-text": {"untied": {"tie_word_embeddings": False}},
    "ernie": {"tasks": {"use_task_id": True}, "decoder": {"is_decoder": True}},
    "electra": {"decoder": {"is_decoder": True},
                "wide-table": {"embedding_size": 32, "hidden_act": "relu"},
                "untied": {"tie_word_embeddings": False}},
    "mpnet": {"untied": {"tie_word_embeddings": False, "hidden_act": "relu"}},
    "rembert": {"decoder": {"is_decoder": True, "hidden_act": "relu"},
                "called-tied": {"tie_word_embeddings": True}},
    "xlm-roberta-xl": {"decoder": {"is_decoder": True}, "untied": {"tie_word_embeddings": False}},
    "roformer": {"decoder": {"is_decoder": True}, "wide-table": {"embedding_size": 32, "hidden_act": "relu"},
                 "untied": {"tie_word_embeddings": False}},
    "esm": {
        "rotary": {"position_embedding_type": "rotary", "token_dropout": True,
                   "emb_layer_norm_before": False},
        "normed": {"emb_layer_norm_before": True, "token_dropout": True, "tie_word_embeddings": False},
        "decoder": {"is_decoder": True},
    },
    "nomic_bert": {"untied": {"tie_word_embeddings": False, "head_dim": 6, "hidden_act": "gelu"}},
    "modernbert": {
        "biased": {"attention_bias": True, "mlp_bias": True, "norm_bias": True, "classifier_bias": True,
                   "decoder_bias": False, "classifier_activation": "relu", "hidden_activation": "silu"},
        "untied": {"tie_word_embeddings": False, "global_attn_every_n_layers": 2},
        "own-layers": {"layer_types": ["sliding_attention", "full_attention"] * 2,
                       "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 500.0},
                                           "sliding_attention": {"rope_type": "linear", "factor": 2.0}}},
        "old-thetas": {"global_rope_theta": 300.0, "local_rope_theta": 50.0},
    },
    "eurobert": {"biased-tied": {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
                 "dynamic": {"rope_parameters": ROPES["dynamic"], "max_position_embeddings": 12}},
    "albert": {"two-groups": {"num_hidden_groups": 2}, "exact-gelu": {"hidden_act": "gelu"}},
    "deberta": {
        "disentangled": DISENTANGLED,
        "far": {**DISENTANGLED, "max_relative_positions": 6, "position_biased_input": True},
        "from-positions": {**DISENTANGLED, "pos_att_type": "p2c", "type_vocab_size": 2},
        "to-positions": {**DISENTANGLED, "pos_att_type": ["c2p"]},
        "not-relative": {"position_biased_input": False, "pos_att_type": ["c2p"]},
        "narrow": {**DISENTANGLED, "position_biased_input": True, "embedding_size": 16},
        "newer-head": {"legacy": False}, "untied": {"tie_word_embeddings": False},
    },
    "deberta-v2": {
        "v3": {**DISENTANGLED, "position_buckets": 8, "share_att_key": True, "norm_rel_ebd": "layer_norm"},
        "xlarge": {**DISENTANGLED, "position_buckets": 4, "max_relative_positions": 12, "share_att_key": True,
                   "conv_kernel_size": 3, "conv_act": "gelu", "norm_rel_ebd": "layer_norm"},
        "own": {**DISENTANGLED, "position_buckets": 6},
        "far": {**DISENTANGLED, "max_relative_positions": 6, "position_biased_input": True},
        "from-positions": {**DISENTANGLED, "pos_att_type": "p2c", "share_att_key": True},
        "to-positions": {**DISENTANGLED, "pos_att_type": ["c2p"]},
        "not-relative": {"pos_att_type": ["c2p"], "conv_kernel_size": 5, "conv_groups": 4},
        "narrow": {**DISENTANGLED, "position_biased_input": True, "embedding_size": 16},
        "newer-head": {"legacy": False}, "untied": {"tie_word_embeddings": False},
    },
    "fnet": {"relu": {"hidden_act": "relu", "type_vocab_size": 2}, "untied": {"tie_word_embeddings": False}},
    "distilbert": {"waves": {"sinusoidal_pos_embds": True}},
    "t5": {
        "v1.1": {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
        "few-buckets": {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 10},
        "gated-silu": {"feed_forward_proj": "gated-silu", "d_kv": 6},
    },
    "longt5": {"v1.1": {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
               "narrow": {"local_radius": 2, "d_kv": 6}, "wide": {"local_radius": 30},
               # Of 13, 14 and 18 tokens: several blocks, with tokens behind the last; one for some; none.
               **{f"summaries-{size}": {"encoder_attention_type": "transient-global",
                                        "global_block_size": size, "local_radius": radius}
                  for size, radius in ((4, 4), (8, 1), (2, 30), (16, 3), (32, 4))}},
    "umt5": {"relu": {"feed_forward_proj": "relu", "d_kv": 6},
             "few-buckets": {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 10}},
    "switch_transformers": {
        "full-experts": {"expert_capacity": 2, "router_bias": True},
        "one-token": {"expert_capacity": 1, "num_experts": 2, "num_sparse_encoder_layers": 2,
                      "num_sparse_decoder_layers": 3, "dense_act_fn": "gelu_new"},
        "second-layer": {"num_sparse_encoder_layers": 0, "num_sparse_decoder_layers": 0, "d_kv": 6},
        "dense": {"num_sparse_encoder_layers": 9, "num_sparse_decoder_layers": 9},
        "untied": {"tie_word_embeddings": False, "num_decoder_layers": None, "expert_capacity": 3},
    },
    "xlnet": {
        "causal": {"attn_type": "uni", "tie_word_embeddings": False},
        "clamped": {"clamp_len": 4, "ff_activation": "relu"},
    },
    "funnel": {
        "factorized": {"attention_type": "factorized", "hidden_act": "relu"},
        "max": {"pooling_type": "max"}, "all-pooled": {"pool_q_only": False},
        "all-pooled-factorized": {"pool_q_only": False, "attention_type": "factorized"},
        "whole": {"truncate_seq": False}, "pairs": {"separate_cls": False},
        "pairs-all-max": {"separate_cls": False, "pool_q_only": False, "pooling_type": "max"},
        "repeats": {"block_repeats": [1, 2, 3], "tie_word_embeddings": False},
        "four-blocks": {"block_sizes": [1, 1, 1, 1]},
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
    "plbart": {"three-tables": {"tie_word_embeddings": False}, "unscaled": {"scale_embedding": False}},
    "pegasus": {"scaled": {"scale_embedding": True, "activation_function": "relu"},
                "three-tables": {"tie_word_embeddings": False}},
    "blenderbot": {"scaled": {"scale_embedding": True}, "three-tables": {"tie_word_embeddings": False}},
    "m2m_100": {"unscaled": {"scale_embedding": False, "activation_function": "gelu"},
                "three-tables": {"tie_word_embeddings": False}, "other-padding": {"pad_token_id": 0}},
}  # fmt: skip
# The same for heads beside that of words.
HEAD_VARIATIONS: dict[str, dict[str, tuple[HeadKind, dict[str, Any]]]] = {
    "funnel": {"repeats": ("labels", {"block_repeats": [2, 1, 2]}),
               "one-block": ("labels", {"block_sizes": [3]}),
               "whole": ("encoder", {"truncate_seq": False, "pool_q_only": False})},
    "electra": {"last": ("choice", {"summary_type": "last", "summary_activation": "relu"}),
                "mean": ("choice", {"summary_type": "mean"}), "relu": ("labels", {"hidden_act": "relu"})},
    "roformer": {"relu": ("labels", {"hidden_act": "relu"})},
    "modernbert": {"mean": ("labels", {"classifier_pooling": "mean", "classifier_bias": True}),
                   "mean-choice": ("choice", {"classifier_pooling": "mean"})},
    "eurobert": {"bos": ("labels", {"classifier_pooling": "bos"}),
                 "mean": ("labels", {"classifier_pooling": "mean"})},
    "esm": {"rotary-tags": ("tags", {"position_embedding_type": "rotary", "token_dropout": True})},
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

    @property
    def reads_to_the_end(self) -> bool:
        """Classifiers with both towers read the state of the last end token."""
        return self.family.mode == "encoder-decoder" and self.task == "labels"

    def given(self) -> dict[str, Any]:
        """What is given to their config class: the sizes of TINY where it has such a key, and the changes."""
        plain = transformers.AutoConfig.for_model(self.family.key).to_dict()
        sizes = {key: value for key, value in TINY.items() if key in plain}
        if self.family.defaults.get("decoder_start_token_id") is not None:  # T5's config class has none
            sizes["decoder_start_token_id"] = TINY["decoder_start_token_id"]
        sizes |= BASE.get(self.family.name, {})
        if self.task == "tokens":
            sizes |= SPEAKING.get(self.family.name, {})
        if self.task == "span":  # the first and the last token of an answer
            sizes["id2label"] = {0: "first", 1: "last"}
        # Some of their configs complete the objects that they are given.
        return deepcopy(sizes | self.changes)

    def config(self) -> Any:
        return transformers.AutoConfig.for_model(self.family.key, **self.given())

    def model(self, dtype: torch.dtype = torch.float32, config: Any = None) -> Any:
        kind = getattr(transformers, self.family.architectures[self.task])
        config = self.config() if config is None else config
        config.architectures = [kind.__name__]
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = kind(config).to(dtype).eval()
            with torch.no_grad():
                for p in model.parameters():  # norms start at one and biases at zero: that hides errors
                    if p.requires_grad:  # all but Marian's sines
                        p.add_(torch.randn_like(p) * 0.05)
                for name, b in model.named_buffers():
                    if name.endswith(("final_logits_bias", "e_score_correction_bias")):
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
        for name, (task, changes) in HEAD_VARIATIONS.get(family.name, {}).items():
            yield Reference(family, task, name, changes)


REFERENCES = {str(r): r for r in references()}

# Functions that a reference would compile stay Python: Exact sees the calls inside.
torch.jit.script = lambda function, *_, **__: function
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


def patient(model: Any) -> None:
    """Reformer scores a token with itself at -1e5, where 32 bits have steps of 0.008: one that meets nobody
    else gets 0.998 of itself. At -50 the score is as negligible beside others, and has its digits. And
    torch's grouped products of experts have no float64."""
    if hasattr(model.config, "num_experts_per_tok"):
        model.set_experts_implementation("eager")
    for name, buffer in model.named_buffers():
        if name.endswith("self_mask_value_float32"):
            buffer.fill_(-50.0)


def eager(model: Any) -> None:
    """Attention by single products, which returns its weights.

    Falcon ignores the switch, so its mask of true and false would be added to scores. Its eager ALiBi is
    added with the mask and once more to the scores, where its answer has it once: the second is left out.
    """
    model.set_attn_implementation("eager")
    model.config._attn_implementation = "eager"

    def once(_module: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        alibi = kwargs.get("alibi")
        return args, kwargs if alibi is None else {**kwargs, "alibi": torch.zeros_like(alibi)}

    for module in model.modules():
        if type(module).__name__ == "FalconAttention":
            module.register_forward_pre_hook(once, with_kwargs=True)


def in_own_memory(model: Any) -> Any:
    """The model with every tensor contiguous and aligned as torch allocates it."""
    for x in (*model.parameters(), *model.buffers()):
        x.data = x.data.clone(memory_format=torch.contiguous_format)
    return model


ROUNDED = {0.79788456: math.sqrt(2 / math.pi)}  # constants that a reference writes with eight digits (BLOOM)


class Exact(TorchFunctionMode):
    """Inside, a reference computes in float64 throughout; it otherwise rounds norms and angles to 32 bits."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.float:
            return args[0].double()
        args = tuple(torch.float64 if a is torch.float32 else a for a in args)
        args = tuple(ROUNDED.get(a, a) if type(a) is float else a for a in args)
        kwargs = {k: torch.float64 if v is torch.float32 else v for k, v in (kwargs or {}).items()}
        return func(*args, **kwargs)
