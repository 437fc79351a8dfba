"""RoBERTa and XLM-R (Liu 2019, Conneau 2019): BERT trained longer; positions start after the padding id."""

from dataclasses import replace

from ..nn import Learned, SingleStack
from ..weights import Ignore, Table
from . import bert
from .family import Config, HeadKind
from .shared import encoder_head_rules


def spec(c: Config, task: HeadKind) -> SingleStack:
    start = c["pad_token_id"] + 1
    config = Config({**c, "head_act": "gelu"})  # their masked-word head has its own activation
    return bert.spec(config, task).edit(Learned, length=c["max_position_embeddings"] - start, offset=start)


def weights(c: Config, task: HeadKind) -> Table:
    pooler = "roberta.pooler.dense.{p}"
    if task == "choice":  # BERT's pooler, which no other head of theirs uses
        return (*bert.tower_rules("roberta."), *encoder_head_rules(c, task, {**HEAD, "pooler": pooler}))
    names = {**HEAD, "classifier": "classifier.out_proj.{p}"} if task == "labels" else HEAD
    unused = Ignore(pooler, "the pooler, which this head does not use")
    return (*bert.tower_rules("roberta."), unused, *encoder_head_rules(c, task, names))


HEAD = {
    "dense": "lm_head.dense.{p}", "norm": "lm_head.layer_norm.{p}", "bias": "lm_head.bias",
    "decoder": "lm_head.decoder.weight", "pooler": "classifier.dense.{p}", "classifier": "classifier.{p}",
    "span": "qa_outputs.{p}",
}  # fmt: skip
DEFAULTS = {
    **bert.DEFAULTS, "vocab_size": 50265, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2,
}  # fmt: skip
ROBERTA_BASE = {"max_position_embeddings": 514, "type_vocab_size": 1, "layer_norm_eps": 1e-5}


def _classes(stem: str) -> dict[HeadKind, str]:
    return {
        "tokens": f"{stem}ForMaskedLM", "labels": f"{stem}ForSequenceClassification",
        "tags": f"{stem}ForTokenClassification", "span": f"{stem}ForQuestionAnswering",
        "choice": f"{stem}ForMultipleChoice", "hidden": f"{stem}Model",
    }  # fmt: skip


FAMILY = replace(
    bert.FAMILY,
    name="roberta",
    title="RoBERTa",
    year=2019,
    paper="https://arxiv.org/abs/1907.11692",
    spec=spec,
    weights=weights,
    prefix="roberta.",
    parent="bert",
    architectures=_classes("Roberta"),
    defaults=DEFAULTS,
    sizes={"roberta-base": ROBERTA_BASE, "roberta-large": {**ROBERTA_BASE, **bert.LARGE}},
)
XLMR = replace(
    FAMILY,
    name="xlm-roberta",
    title="XLM-R",
    paper="https://arxiv.org/abs/1911.02116",
    parent="roberta",
    uses="the same, in a hundred languages",
    architectures=_classes("XLMRoberta"),
    defaults={**DEFAULTS, "vocab_size": 30522},
    sizes={
        "xlm-roberta-base": {**ROBERTA_BASE, "vocab_size": 250002},
        "xlm-roberta-large": {**ROBERTA_BASE, **bert.LARGE, "vocab_size": 250002},
    },
)
