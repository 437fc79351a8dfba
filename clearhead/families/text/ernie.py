"""ERNIE 1, 2 and 3 (Sun 2019): BERT with other masking; from version 2 on with an embedding of the task."""

from dataclasses import replace

from ...nn import SingleStack, Tokens
from ...weights import Name, Table
from ..family import Config, HeadKind
from ..shared import encoder_head_rules
from . import bert


def spec(c: Config, task: HeadKind) -> SingleStack:
    return bert.spec(c, task).edit(Tokens, tasks=c["task_type_vocab_size"] if c["use_task_id"] else 0)


def weights(c: Config, task: HeadKind) -> Table:
    names = {**bert.HEAD, "pooler": "ernie.pooler.dense.{p}"}
    tasks = Name("ernie.embeddings.task_type_embeddings.weight", "tower.embed.tasks.weight")
    return (*bert.tower_rules("ernie."), tasks, *encoder_head_rules(c, task, names))


FAMILY = replace(
    bert.FAMILY,
    name="ernie",
    title="ERNIE",
    year=2019,
    paper="https://arxiv.org/abs/1904.09223",
    uses="classification, tagging, question answering, in Chinese and English",
    spec=spec,
    weights=weights,
    prefix="ernie.",
    parent="bert",
    architectures={
        "tokens": "ErnieForMaskedLM", "labels": "ErnieForSequenceClassification",
        "tags": "ErnieForTokenClassification", "span": "ErnieForQuestionAnswering",
        "choice": "ErnieForMultipleChoice",
        "pair": "ErnieForNextSentencePrediction", "pretrain": "ErnieForPreTraining", "hidden": "ErnieModel",
    },
    defaults={**bert.DEFAULTS, "task_type_vocab_size": 3, "use_task_id": False},
    sizes={
        "ernie-1.0-base": {
            "vocab_size": 18000, "max_position_embeddings": 513, "hidden_act": "relu", "layer_norm_eps": 1e-5,
        },
        "ernie-3.0-base": {
            "vocab_size": 40000, "max_position_embeddings": 2048, "type_vocab_size": 4, "use_task_id": True,
            "layer_norm_eps": 1e-5,
        },
    },
)  # fmt: skip
