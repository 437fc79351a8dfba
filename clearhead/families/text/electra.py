"""ELECTRA (Clark 2020): BERT trained to find replaced words; a table that may be narrower than the model.

The published discriminators have a head that finds replaced words (ElectraForPreTraining), the generators
one for masked words.
"""

from dataclasses import replace

from ...errors import SpecError
from ...nn import Labels, SingleStack, Tags, Tokens, Transform
from ...weights import Ignore, Name, Table
from ..family import Config, HeadKind
from ..shared import activation, encoder_head_rules
from . import bert

_POOLS = {"first": "first", "last": "last", "mean": "mean"}


def spec(c: Config, task: HeadKind) -> SingleStack:
    # Their masked-word head has its own activation, and the width of the table even where it is untied.
    width = None if c["tie_word_embeddings"] else c["embedding_size"]
    inner: HeadKind = "hidden" if task == "replaced" else task
    base = bert.spec(Config({**c, "head_act": "gelu", "head_width": width}), inner)
    if c["embedding_size"] != c["hidden_size"]:
        base = base.edit(Tokens, factor=c["embedding_size"])
    if task == "replaced":
        return replace(base, head=Tags(count=1, transform=Transform(act=activation(c["hidden_act"]))))
    if task == "labels":
        return base.edit(Labels, transform=Transform(act="gelu"))
    if task == "choice":
        if c["summary_type"] not in _POOLS or not c["summary_use_proj"]:
            raise SpecError(
                f"summary_type is {c['summary_type']!r} and summary_use_proj {c['summary_use_proj']}; only "
                f"first, last and mean with a projection can be built here"
            )
        summary = Transform(act=activation(c["summary_activation"]))
        pool, dropout = _POOLS[c["summary_type"]], c["summary_last_dropout"]
        return base.edit(Labels, pool=pool, transform=summary, dropout=dropout)
    return base


def weights(c: Config, task: HeadKind) -> Table:
    names = {**HEAD, "classifier": "classifier.out_proj.{p}"} if task == "labels" else HEAD
    if task == "choice":
        names = {**HEAD, "pooler": "sequence_summary.summary.{p}"}
    return (
        *bert.tower_rules("electra."),
        Name("electra.embeddings_project.{p}", "tower.embed.project.{p}"),
        *encoder_head_rules(c, "hidden" if task == "replaced" else task, names),
        *_discriminator_rules(task),
    )


def _discriminator_rules(task: HeadKind) -> Table:
    """The head that finds replaced words, which published checkpoints have beside others."""
    dense, last = (f"discriminator_predictions.{x}.{{p}}" for x in ("dense", "dense_prediction"))
    if task == "replaced":
        return Name(dense, "head.transform.dense.{p}"), Name(last, "head.project.{p}")
    return tuple(Ignore(name, "the head that finds replaced words") for name in (dense, last))


HEAD = {
    "dense": "generator_predictions.dense.{p}", "norm": "generator_predictions.LayerNorm.{p}",
    "bias": "generator_lm_head.bias", "decoder": "generator_lm_head.weight",
    "pooler": "classifier.dense.{p}", "classifier": "classifier.{p}", "span": "qa_outputs.{p}",
}  # fmt: skip
ELECTRA_BASE = {
    "embedding_size": 768, "hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072,
}  # fmt: skip

FAMILY = replace(
    bert.FAMILY,
    name="electra",
    title="ELECTRA",
    year=2020,
    paper="https://arxiv.org/abs/2003.10555",
    spec=spec,
    weights=weights,
    prefix="electra.",
    parent="bert",
    architectures={
        "tokens": "ElectraForMaskedLM", "labels": "ElectraForSequenceClassification",
        "tags": "ElectraForTokenClassification", "span": "ElectraForQuestionAnswering",
        "choice": "ElectraForMultipleChoice", "replaced": "ElectraForPreTraining", "hidden": "ElectraModel",
    },
    defaults={
        **bert.DEFAULTS, "embedding_size": 128, "hidden_size": 256, "num_attention_heads": 4,
        "intermediate_size": 1024, "summary_type": "first", "summary_use_proj": True,
        "summary_activation": "gelu", "summary_last_dropout": 0.1,
    },
    sizes={
        "electra-small": {},
        "electra-base": ELECTRA_BASE,
        "electra-large": {**bert.LARGE, "embedding_size": 1024},
    },
)  # fmt: skip
