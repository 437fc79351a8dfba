"""GPT-BigCode, as SantaCoder and StarCoder (Ben Allal 2023): GPT-2 whose heads share one key and value."""

from dataclasses import replace

from ...nn import Attention, SingleStack
from ...weights import Fused, Name, Table
from ..family import Config, HeadKind
from ..shared import decoder_head_rules
from . import gpt2


def spec(c: Config, task: HeadKind) -> SingleStack:
    config = Config({**c, "scale_attn_by_inverse_layer_idx": False})
    return gpt2.spec(config, task).edit(Attention, kv_heads=1 if c["multi_query"] else None)


def weights(c: Config, task: HeadKind) -> Table:
    theirs, ours = "transformer.h.{i}.", "tower.blocks.{i}."
    qkv = tuple(f"{ours}attn.{x}.{{p}}" for x in "qkv")
    keys = 1 if c["multi_query"] else c["n_head"]  # each behind its queries, and its value behind it
    return (
        Name("transformer.wte.weight", "tower.embed.table.weight"),
        Name("transformer.wpe.weight", "tower.positions.table.weight"),
        Name(theirs + "ln_1.{p}", ours + "attn_norm.{p}"),
        Fused(theirs + "attn.c_attn.{p}", qkv, per_head=keys, sizes=(c["n_head"] // keys, 1, 1)),
        Name(theirs + "attn.c_proj.{p}", ours + "attn.out.{p}"),
        Name(theirs + "ln_2.{p}", ours + "ff_norm.{p}"),
        Name(theirs + "mlp.c_fc.{p}", ours + "ff.up.{p}"),
        Name(theirs + "mlp.c_proj.{p}", ours + "ff.down.{p}"),
        Name("transformer.ln_f.{p}", "tower.norm.{p}"),
        *decoder_head_rules(c, task, "lm_head.weight", tags="classifier"),
    )


FAMILY = replace(
    gpt2.FAMILY,
    name="gpt_bigcode",
    title="GPT-BigCode",
    also=("StarCoder",),
    year=2023,
    paper="https://arxiv.org/abs/2301.03988",
    uses="programs from comments, continuation",
    spec=spec,
    weights=weights,
    parent="gpt2",
    architectures={
        "tokens": "GPTBigCodeForCausalLM", "labels": "GPTBigCodeForSequenceClassification",
        "tags": "GPTBigCodeForTokenClassification", "hidden": "GPTBigCodeModel",
    },
    defaults={
        "vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12, "n_inner": None,
        "activation_function": "gelu_pytorch_tanh", "resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1,
        "layer_norm_epsilon": 1e-5, "initializer_range": 0.02, "scale_attn_weights": True,
        "multi_query": True, "tie_word_embeddings": True, "bos_token_id": 50256, "eos_token_id": 50256,
    },
    sizes={
        "santacoder": {
            "vocab_size": 49280, "n_positions": 2048, "n_embd": 2048, "n_layer": 24, "n_head": 16,
            "bos_token_id": 49152, "eos_token_id": 49152,
        },
        "starcoder": {
            "vocab_size": 49152, "n_positions": 8192, "n_embd": 6144, "n_layer": 40, "n_head": 48,
            "bos_token_id": 0, "eos_token_id": 0,
        },
    },
)  # fmt: skip
