"""EuroBERT (Boizard 2025): LLaMA as an encoder, without the causal mask."""

from dataclasses import replace

from ...errors import SpecError, nearest
from ...nn import Head, Labels, SingleStack, Tags, TokenHead, Tower, Transform
from ...weights import Name, Table
from ..family import Config, HeadKind
from . import llama

_POOLS = {"bos": "first", "mean": "mean", "late": "mean"}


def spec(c: Config, task: HeadKind) -> SingleStack:
    return replace(llama.spec(c, "hidden").edit(Tower, causal=False), head=_head(c, task))


def _head(c: Config, task: HeadKind) -> Head | None:
    pooling = c["classifier_pooling"]
    if pooling not in _POOLS:
        raise SpecError(f"classifier_pooling is {pooling!r}; {nearest(pooling, _POOLS)}")
    heads: dict[HeadKind, Head | None] = {
        "hidden": None,
        "tokens": TokenHead(vocab=c["vocab_size"], tied=c["tie_word_embeddings"], bias=c["mlp_bias"]),
        "labels": Labels(
            count=c.labels,
            pool=_POOLS[pooling],  # type: ignore[arg-type]
            transform=Transform(act="gelu"),
            pool_at="transformed" if pooling == "late" else "states",
        ),
        "tags": Tags(count=c.labels),
    }
    return heads[task]


def weights(c: Config, task: HeadKind) -> Table:
    projections = (Name("classifier.{p}", "head.project.{p}"), Name("dense.{p}", "head.transform.dense.{p}"))
    bias = (Name("lm_head.bias", "head.bias"),)
    own: dict[HeadKind, Table] = {
        "labels": projections,
        "tags": projections[:1],
        "tokens": bias,
        "hidden": (),
    }
    # LLaMA's classifiers are others: of its head only the product with the vocabulary is the same.
    return (*llama.weights(c, "tokens" if task == "tokens" else "hidden"), *own[task])


SMALL = {"max_position_embeddings": 8192, "rope_parameters": {"rope_type": "default", "rope_theta": 250000.0}}
FAMILY = replace(
    llama.FAMILY,
    name="eurobert",
    title="EuroBERT",
    year=2025,
    paper="https://arxiv.org/abs/2503.05500",
    mode="bidirectional",
    uses="retrieval, classification, tagging, in fifteen languages",
    spec=spec,
    weights=weights,
    parent="llama",
    architectures={
        "tokens": "EuroBertForMaskedLM", "labels": "EuroBertForSequenceClassification",
        "tags": "EuroBertForTokenClassification", "hidden": "EuroBertModel",
    },
    defaults={
        **llama.DEFAULTS, "vocab_size": 128256, "hidden_size": 768, "intermediate_size": 3072,
        "num_hidden_layers": 12, "num_attention_heads": 12, "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5, "bos_token_id": 128000, "eos_token_id": 128001, "pad_token_id": 128001,
        "mask_token_id": 128002, "classifier_pooling": "late",
    },
    sizes={
        "eurobert-210m": SMALL,
        "eurobert-610m": {
            **SMALL, "hidden_size": 1152, "intermediate_size": 4096, "num_hidden_layers": 26,
            "num_attention_heads": 18, "num_key_value_heads": 6,
        },
    },
)  # fmt: skip
