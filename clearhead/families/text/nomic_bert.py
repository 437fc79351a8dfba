"""Nomic BERT (Nussbaum 2024): BERT with rotary positions and gated feed-forward layers, without biases."""

from dataclasses import replace

from ...nn import Attention, Block, Gated, SingleStack, Tower
from ...weights import Fused, Ignore, Name, Table
from ..family import Config, HeadKind
from ..shared import activation, encoder_head_rules, rope
from . import bert


def spec(c: Config, task: HeadKind) -> SingleStack:
    feedforward = Gated(hidden=c["intermediate_size"], act=activation(c["hidden_act"]))
    return (
        bert.spec(Config({**c, "is_decoder": False}), task)
        .edit(Tower, positions=rope(c))
        .edit(Attention, bias="", head_dim=c["head_dim"])
        .edit(Block, feedforward=feedforward)
    )


def weights(c: Config, task: HeadKind) -> Table:
    """The names of the published files, which transformers writes, too; its modules have others."""
    theirs, ours = "nomic_bert.encoder.layers.{i}.", "tower.blocks.{i}."
    embeddings = {"word_embeddings.weight": "table.weight", "token_type_embeddings.weight": "types.weight"}
    feedforward = {"fc11": "up", "fc12": "gate", "fc2": "down"}
    return (
        *(Name(f"nomic_bert.embeddings.{a}", f"tower.embed.{b}") for a, b in embeddings.items()),
        Name("nomic_bert.emb_ln.{p}", "tower.embed.norm.{p}"),
        Fused(theirs + "attn.Wqkv.weight", tuple(f"{ours}attn.{x}.weight" for x in "qkv")),
        Name(theirs + "attn.out_proj.weight", ours + "attn.out.weight"),
        Name(theirs + "norm1.{p}", ours + "attn_norm.{p}"),
        *(Name(f"{theirs}mlp.{a}.weight", f"{ours}ff.{b}.weight") for a, b in feedforward.items()),
        Name(theirs + "norm2.{p}", ours + "ff_norm.{p}"),
        *encoder_head_rules(c, task, HEAD),
        Ignore("nomic_bert.rotary_emb.inv_freq", "rotary frequencies"),
    )


def class_weights(c: Config, task: HeadKind) -> Table:
    """The names of the modules of transformers."""
    theirs, ours = "nomic_bert.layers.{i}.", "tower.blocks.{i}."
    return (
        *(
            rule
            for rule in weights(c, task)
            if not any(x in rule.theirs for x in ("encoder.layers", "emb_ln"))
        ),
        Name("nomic_bert.embeddings.LayerNorm.{p}", "tower.embed.norm.{p}"),
        *(Name(f"{theirs}self_attn.{x}_proj.weight", f"{ours}attn.{x}.weight") for x in "qkv"),
        Name(theirs + "self_attn.o_proj.weight", ours + "attn.out.weight"),
        Name(theirs + "post_attention_layernorm.{p}", ours + "attn_norm.{p}"),
        *(Name(f"{theirs}mlp.{x}_proj.weight", f"{ours}ff.{x}.weight") for x in ("gate", "up", "down")),
        Name(theirs + "post_mlp_layernorm.{p}", ours + "ff_norm.{p}"),
    )


HEAD = {
    "dense": "cls.predictions.transform.dense.{p}", "norm": "cls.predictions.transform.layer_norm.{p}",
    "bias": "cls.predictions.bias", "decoder": "cls.predictions.decoder.weight",
    "pooler": "nomic_bert.pooler.dense.{p}", "classifier": "classifier.{p}",
}  # fmt: skip

# The published files have keys of the code they came with. The reference reads none of them.
OLDER = {
    "n_embd": 768, "n_layer": 12, "n_head": 12, "n_inner": 3072, "layer_norm_epsilon": 1e-12, "causal": False,
    "activation_function": "swiglu", "rotary_emb_base": 1000, "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False, "rotary_emb_scale_base": None, "rotary_scaling_factor": None,
    "prenorm": False, "parallel_block": False, "use_rms_norm": False, "qkv_proj_bias": False,
    "mlp_fc1_bias": False, "mlp_fc2_bias": False, "scale_attn_by_inverse_layer_idx": False,
    "moe_every_n_layers": 0,
}  # fmt: skip
FAMILY = replace(
    bert.FAMILY,
    name="nomic_bert",
    title="Nomic BERT",
    year=2024,
    paper="https://arxiv.org/abs/2402.01613",
    uses="retrieval, classification, tagging",
    spec=spec,
    weights=weights,
    class_weights=class_weights,
    prefix="nomic_bert.",
    parent="bert",
    architectures={
        "tokens": "NomicBertForMaskedLM", "labels": "NomicBertForSequenceClassification",
        "tags": "NomicBertForTokenClassification", "hidden": "NomicBertModel",
    },
    defaults={
        **{key: value for key, value in bert.DEFAULTS.items() if key != "is_decoder"},
        "vocab_size": 30528, "hidden_act": "silu", "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0, "max_position_embeddings": 2048, "head_dim": None,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1000.0},
    },
    only=OLDER,
    sizes={"nomic-embed-text-v1.5": {}},
)  # fmt: skip
