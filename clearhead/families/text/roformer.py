"""RoFormer (Su 2021): BERT with rotary positions, the first model to have them."""

from dataclasses import replace

from ...errors import SpecError
from ...nn import Labels, Rope, SingleStack, Tokens, Tower, Transform
from ...weights import Ignore, Name, Table
from ..family import Config, HeadKind
from ..shared import activation, encoder_head_rules, sinusoid_table
from . import bert


def spec(c: Config, task: HeadKind) -> SingleStack:
    if c["rotary_value"]:
        raise SpecError("rotary_value is true; only false (values are not rotated) can be built here")
    table = c["embedding_size"] or c["hidden_size"]
    width = None if c["tie_word_embeddings"] else table
    base = bert.spec(Config({**c, "head_width": width}), task)
    base = base.edit(Tower, positions=Rope(pairing="neighbours"))
    if table != c["hidden_size"]:
        base = base.edit(Tokens, factor=table)
    if task == "labels":
        return base.edit(Labels, transform=Transform(act=activation(c["hidden_act"])))
    if task == "choice":
        given = {key: c[key] for key in SUMMARY if c.get(key) not in (None, SUMMARY[key])}
        if given:
            raise SpecError(f"{', '.join(given)} is set; only the last token as it is can be built here")
        return base.edit(Labels, pool="last", transform=None, dropout=0.0)
    return base


SUMMARY = {"summary_type": "last", "summary_use_proj": False, "summary_activation": ""}


def weights(c: Config, task: HeadKind) -> Table:
    names = {**bert.HEAD, "pooler": "classifier.dense.{p}"}
    names = {**names, "classifier": "classifier.out_proj.{p}"} if task == "labels" else names
    head = (
        rule
        for rule in encoder_head_rules(c, task, names)
        if task != "choice" or rule.theirs != names["pooler"]
    )
    return (
        *(rule for rule in bert.tower_rules("roformer.") if "position" not in rule.theirs),
        Name("roformer.embeddings_project.{p}", "tower.embed.project.{p}"),
        Ignore("roformer.encoder.embed_positions.weight", "sines and cosines", value=sinusoid_table),
        *head,
    )


FAMILY = replace(
    bert.FAMILY,
    name="roformer",
    title="RoFormer",
    year=2021,
    paper="https://arxiv.org/abs/2104.09864",
    spec=spec,
    weights=weights,
    prefix="roformer.",
    parent="bert",
    architectures={
        "tokens": "RoFormerForMaskedLM", "labels": "RoFormerForSequenceClassification",
        "tags": "RoFormerForTokenClassification", "span": "RoFormerForQuestionAnswering",
        "choice": "RoFormerForMultipleChoice", "hidden": "RoFormerModel",
    },
    defaults={
        **bert.DEFAULTS, "vocab_size": 50000, "embedding_size": None, "max_position_embeddings": 1536,
        "rotary_value": False,
    },
    sizes={
        "roformer-chinese-base": {"embedding_size": 768},
        "roformer-chinese-small": {
            "embedding_size": 384, "hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 6,
            "intermediate_size": 1536, "max_position_embeddings": 512,
        },
    },
)  # fmt: skip
