"""ESM-1b, ESM-1v and ESM-2 (Rives 2019, Lin 2022): protein language models, pre-norm BERT over amino acids.

Positions are learned (ESM-1) or rotary (ESM-2). Masked tokens are zero and the others are scaled up for them,
where the config has `token_dropout`.
"""

from dataclasses import replace

from ...errors import SpecError
from ...nn import Block, Learned, MaskedZero, Rope, SingleStack, Tokens, Tower
from ...nn.norm import Layer
from ...weights import Ignore, Name, Table
from ..family import Config, HeadKind
from ..shared import encoder_head_rules
from . import bert, roberta


def spec(c: Config, task: HeadKind) -> SingleStack:
    if c["is_folding_model"]:
        raise SpecError("is_folding_model is true; only false (no ESMFold) can be built here")
    theta = (c.get("rope_parameters") or {}).get("rope_theta", 10000.0)
    if theta != 10000.0:
        raise SpecError(f"rope_theta is {theta}; only 10000 can be built here")
    norm = Layer(eps=c["layer_norm_eps"])
    # The activations are theirs in every config; the embeddings have no segments and no dropout.
    fixed = {"hidden_act": "gelu", "type_vocab_size": 0}
    masked = MaskedZero(id=c["mask_token_id"]) if c["token_dropout"] else None
    return (
        bert.spec(Config({**c, **fixed}), task)
        .edit(Tokens, norm=norm if c["emb_layer_norm_before"] else None, dropout=0.0, masked=masked)
        .edit(Block, order="pre")
        .edit(Tower, positions=_positions(c), last_norm=norm)
    )


def _positions(c: Config) -> Learned | Rope:
    kind = c["position_embedding_type"]
    if kind == "rotary":
        return Rope()
    if kind != "absolute":
        raise SpecError(
            f"position_embedding_type is {kind!r}; only 'absolute' and 'rotary' can be built here"
        )
    start = c["pad_token_id"] + 1
    return Learned(length=c["max_position_embeddings"] - start, offset=start)


def weights(c: Config, task: HeadKind) -> Table:
    theirs, ours = "esm.encoder.layer.{i}.", "tower.blocks.{i}."
    # transformers 5 writes the norms of the layers with names from TensorFlow; published files have torch's.
    old = any(name.endswith("LayerNorm.gamma") for name in c.stored)
    norm = {"gamma": "weight", "beta": "bias"} if old else {"{p}": "{p}"}
    names = {**roberta.HEAD, "decoder_bias": roberta.HEAD["bias"]}
    names = {**names, "classifier": "classifier.out_proj.{p}"} if task == "labels" else names
    return (
        *(
            Name(f"{theirs}{them}LayerNorm.{a}", f"{ours}{us}.{b}")
            for them, us in {"attention.": "attn_norm", "": "ff_norm"}.items()
            for a, b in norm.items()
        ),
        Name("esm.encoder.emb_layer_norm_after.{p}", "tower.norm.{p}"),
        Name("esm.embeddings.layer_norm.{p}", "tower.embed.norm.{p}"),
        # A file of a model with rotary positions may have a table of positions, which nothing reads.
        *((UNUSED_TABLE,) if c["position_embedding_type"] == "rotary" else ()),
        *(rule for rule in bert.tower_rules("esm.") if "LayerNorm" not in rule.theirs),
        Ignore("esm.pooler.dense.{p}", "the pooler, which no head uses"),
        Ignore("esm.contact_head.regression.{p}", "the head for contacts of residues"),
        Ignore("esm.rotary_embeddings.inv_freq", "rotary frequencies"),
        Ignore(theirs + "attention.self.rotary_embeddings.inv_freq", "rotary frequencies"),
        Ignore(theirs.format(i="*") + "attention.self.rotary_embeddings.inv_freq", "rotary frequencies"),
        *encoder_head_rules(c, task, names),
    )


def class_weights(c: Config, task: HeadKind) -> Table:
    """The names of the modules of transformers, whose norms have torch's names."""
    return weights(Config(c), task)  # a config that has read no file


UNUSED_TABLE = Ignore("esm.embeddings.position_embeddings.weight", "positions, which are rotary here")
ESM2 = {
    "position_embedding_type": "rotary", "token_dropout": True, "emb_layer_norm_before": False,
    "layer_norm_eps": 1e-5, "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}  # fmt: skip
FAMILY = replace(
    bert.FAMILY,
    name="esm",
    title="ESM",
    year=2019,
    paper="https://doi.org/10.1101/622803",
    uses="masked residues, labels and tags of proteins",
    spec=spec,
    weights=weights,
    class_weights=class_weights,
    prefix="esm.",
    parent="bert",
    architectures={
        "tokens": "EsmForMaskedLM", "labels": "EsmForSequenceClassification",
        "tags": "EsmForTokenClassification", "hidden": "EsmModel",
    },
    # Theirs has no defaults for the ids: those of the published models.
    defaults={
        "vocab_size": 33, "mask_token_id": 32, "pad_token_id": 1, "hidden_size": 768,
        "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072,
        "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1, "max_position_embeddings": 1026,
        "initializer_range": 0.02, "layer_norm_eps": 1e-12, "position_embedding_type": "absolute",
        "emb_layer_norm_before": None, "token_dropout": False, "is_folding_model": False,
        "is_decoder": False, "tie_word_embeddings": True, "eos_token_id": 2,
    },
    sizes={
        "esm2-8m": {
            **ESM2, "hidden_size": 320, "num_hidden_layers": 6, "num_attention_heads": 20,
            "intermediate_size": 1280,
        },
        "esm2-650m": {
            **ESM2, "hidden_size": 1280, "num_hidden_layers": 33, "num_attention_heads": 20,
            "intermediate_size": 5120,
        },
    },
)  # fmt: skip
