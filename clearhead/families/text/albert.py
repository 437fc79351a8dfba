"""ALBERT (Lan 2019): BERT whose layers share their weights, with a narrow embedding table."""

from dataclasses import replace

from ...errors import SpecError
from ...nn import SingleStack, Tokens, Tower
from ...weights import Ignore, Name, Table
from ..family import Config, HeadKind
from ..shared import encoder_head_rules
from . import bert


def spec(c: Config, task: HeadKind) -> SingleStack:
    if c["inner_group_num"] != 1:
        raise SpecError(f"ALBERT with inner_group_num {c['inner_group_num']} is not known here; expected 1")
    return (
        bert.spec(c, task)
        .edit(Tower, distinct=c["num_hidden_groups"])
        .edit(Tokens, factor=c["embedding_size"])
    )


HEAD = {
    "dense": "predictions.dense.{p}", "norm": "predictions.LayerNorm.{p}", "bias": "predictions.bias",
    "decoder": "predictions.decoder.weight", "pooler": "albert.pooler.{p}", "classifier": "classifier.{p}",
    "span": "qa_outputs.{p}",
}  # fmt: skip


def weights(c: Config, task: HeadKind) -> Table:
    rules: list[Name] = []
    for group in range(c["num_hidden_groups"]):
        theirs = f"albert.encoder.albert_layer_groups.{group}.albert_layers.0."
        ours = f"tower.blocks.{group * c['num_hidden_layers'] // c['num_hidden_groups']}."
        parts = {
            "attention.query": "attn.q", "attention.key": "attn.k", "attention.value": "attn.v",
            "attention.dense": "attn.out", "attention.LayerNorm": "attn_norm", "ffn": "ff.up",
            "ffn_output": "ff.down", "full_layer_layer_norm": "ff_norm",
        }  # fmt: skip
        rules += [Name(f"{theirs}{a}.{{p}}", f"{ours}{b}.{{p}}") for a, b in parts.items()]
    tables = {"word": "embed.table", "position": "positions.table", "token_type": "embed.types"}
    return (
        *(Name(f"albert.embeddings.{a}_embeddings.weight", f"tower.{b}.weight") for a, b in tables.items()),
        Name("albert.embeddings.LayerNorm.{p}", "tower.embed.norm.{p}"),
        Name("albert.encoder.embedding_hidden_mapping_in.{p}", "tower.embed.project.{p}"),
        *rules,
        *encoder_head_rules(c, task, HEAD),
        Ignore("sop_classifier.classifier.{p}", "the sentence-order head"),
        Ignore("albert.embeddings.position_ids", "the numbers 0, 1, 2, ..."),
        Ignore("albert.embeddings.token_type_ids", "zeros"),
    )


FAMILY = replace(
    bert.FAMILY,
    name="albert",
    title="ALBERT",
    year=2019,
    paper="https://arxiv.org/abs/1909.11942",
    spec=spec,
    weights=weights,
    prefix="albert.",
    parent="bert",
    architectures={
        "tokens": "AlbertForMaskedLM", "labels": "AlbertForSequenceClassification",
        "tags": "AlbertForTokenClassification", "span": "AlbertForQuestionAnswering",
        "choice": "AlbertForMultipleChoice", "hidden": "AlbertModel",
    },
    defaults={
        **bert.DEFAULTS, "vocab_size": 30000, "embedding_size": 128, "hidden_size": 4096,
        "num_attention_heads": 64, "intermediate_size": 16384, "hidden_act": "gelu_new",
        "num_hidden_groups": 1, "inner_group_num": 1, "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    },
    only={"is_decoder": False},
    sizes={
        "albert-base": {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072},
        "albert-xxlarge": {},
    },
)  # fmt: skip
