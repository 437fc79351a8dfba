"""RoBERTa and XLM-R (Liu 2019, Conneau 2019): BERT trained longer; positions start after the padding id.

Also CamemBERT (Martin 2019) and data2vec for text (Baevski 2022): RoBERTa with other training data and with
another objective.
"""

from dataclasses import replace
from functools import partial

from ...nn import Learned, SingleStack
from ...weights import Ignore, Table
from ..family import Config, HeadKind
from ..shared import encoder_head_rules
from . import bert


def spec(c: Config, task: HeadKind) -> SingleStack:
    start = c["pad_token_id"] + 1
    config = Config({**c, "head_act": "gelu"})  # their masked-word head has its own activation
    return bert.spec(config, task).edit(Learned, length=c["max_position_embeddings"] - start, offset=start)


def weights(c: Config, task: HeadKind, prefix: str = "roberta.") -> Table:
    pooler = prefix + "pooler.dense.{p}"
    if task == "choice":  # BERT's pooler, which no other head of theirs uses
        return (*bert.tower_rules(prefix), *encoder_head_rules(c, task, {**HEAD, "pooler": pooler}))
    names = {**HEAD, "classifier": "classifier.out_proj.{p}"} if task == "labels" else HEAD
    unused = Ignore(pooler, "the pooler, which this head does not use")
    return (*bert.tower_rules(prefix), unused, *encoder_head_rules(c, task, names))


HEAD = {
    "dense": "lm_head.dense.{p}", "norm": "lm_head.layer_norm.{p}", "bias": "lm_head.bias",
    "decoder": "lm_head.decoder.weight", "pooler": "classifier.dense.{p}", "classifier": "classifier.{p}",
    "span": "qa_outputs.{p}",
}  # fmt: skip
DEFAULTS = {
    **bert.DEFAULTS, "vocab_size": 50265, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2,
}  # fmt: skip
ROBERTA_BASE = {"max_position_embeddings": 514, "type_vocab_size": 1, "layer_norm_eps": 1e-5}


def classes(stem: str) -> dict[HeadKind, str]:
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
    architectures=classes("Roberta"),
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
    architectures=classes("XLMRoberta"),
    defaults={**DEFAULTS, "vocab_size": 30522},
    sizes={
        "xlm-roberta-base": {**ROBERTA_BASE, "vocab_size": 250002},
        "xlm-roberta-large": {**ROBERTA_BASE, **bert.LARGE, "vocab_size": 250002},
    },
)
CAMEMBERT = replace(
    FAMILY,
    name="camembert",
    title="CamemBERT",
    paper="https://arxiv.org/abs/1911.03894",
    parent="roberta",
    uses="the same, in French",
    architectures=classes("Camembert"),
    defaults={**DEFAULTS, "vocab_size": 30522},
    sizes={
        "camembert-base": {**ROBERTA_BASE, "vocab_size": 32005},
        "camembert-large": {**ROBERTA_BASE, **bert.LARGE, "vocab_size": 32005},
    },
)
DATA2VEC = replace(
    FAMILY,
    name="data2vec-text",
    title="data2vec (text)",
    year=2022,
    paper="https://arxiv.org/abs/2202.03555",
    parent="roberta",
    weights=partial(weights, prefix="data2vec_text."),
    prefix="data2vec_text.",
    architectures=classes("Data2VecText"),
    defaults={**DEFAULTS, "vocab_size": 30522},
    sizes={"data2vec-text-base": {**ROBERTA_BASE, "vocab_size": 50265}},
)
