"""RemBERT (Chung 2020): BERT with a narrow table for its inputs and a wide, untied one for its outputs."""

from dataclasses import replace

from ...nn import SingleStack, Tokens
from ...weights import Name, Table
from ..family import Config, HeadKind
from ..shared import encoder_head_rules
from . import bert


def spec(c: Config, task: HeadKind) -> SingleStack:
    own = {"classifier_dropout": c["classifier_dropout_prob"], "head_width": c["output_embedding_size"]}
    return bert.spec(_untied(c, own), task).edit(Tokens, factor=c["input_embedding_size"])


def _untied(c: Config, changes: dict[str, object] | None = None) -> Config:
    """Theirs has two tables even where the config says "tied"."""
    config = Config({**c, **(changes or {}), "tie_word_embeddings": False})
    config.stored = c.stored
    return config


def weights(c: Config, task: HeadKind) -> Table:
    project = Name("rembert.encoder.embedding_hidden_mapping_in.{p}", "tower.embed.project.{p}")
    return (*bert.tower_rules("rembert."), project, *encoder_head_rules(_untied(c), task, HEAD))


HEAD = {
    "dense": "cls.predictions.dense.{p}", "norm": "cls.predictions.LayerNorm.{p}",
    "bias": "cls.predictions.decoder.bias", "decoder": "cls.predictions.decoder.weight",
    "pooler": "rembert.pooler.dense.{p}", "classifier": "classifier.{p}", "span": "qa_outputs.{p}",
}  # fmt: skip

FAMILY = replace(
    bert.FAMILY,
    name="rembert",
    title="RemBERT",
    year=2020,
    paper="https://arxiv.org/abs/2010.12821",
    uses="the same, in a hundred languages",
    spec=spec,
    weights=weights,
    prefix="rembert.",
    parent="bert",
    architectures={
        "tokens": "RemBertForMaskedLM", "labels": "RemBertForSequenceClassification",
        "tags": "RemBertForTokenClassification", "span": "RemBertForQuestionAnswering",
        "choice": "RemBertForMultipleChoice", "hidden": "RemBertModel",
    },
    defaults={
        **bert.DEFAULTS, "vocab_size": 250300, "hidden_size": 1152, "num_hidden_layers": 32,
        "num_attention_heads": 18, "input_embedding_size": 256, "output_embedding_size": 1664,
        "intermediate_size": 4608, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
        "classifier_dropout_prob": 0.1, "bos_token_id": 312, "eos_token_id": 313,
        "tie_word_embeddings": False,
    },
    sizes={"rembert": {}},
)  # fmt: skip
