"""DistilBERT (Sanh 2019): BERT with half the layers, without segment types."""

from dataclasses import replace

from ...nn import MLP, Attention, Block, Learned, Normal, SingleStack, Softmax, Tokens, Tower, Transform
from ...nn.norm import Layer
from ...weights import Ignore, Name, Table
from ..family import Config, HeadKind
from ..shared import activation, encoder_head, encoder_head_rules
from . import bert


def spec(c: Config, task: HeadKind) -> SingleStack:
    norm = Layer(eps=1e-12)
    config = Config({**c, "hidden_act": c["activation"], "classifier_dropout": c["seq_classif_dropout"]})
    return SingleStack(
        tower=Tower(
            width=c["dim"],
            depth=c["n_layers"],
            embed=Tokens(vocab=c["vocab_size"], norm=norm, dropout=c["dropout"]),
            positions=Learned(length=c["max_position_embeddings"]),
            block=Block(
                attention=Attention(
                    heads=c["n_heads"], bias="qkvo", kernel=Softmax(dropout=c["attention_dropout"])
                ),
                norm=norm,
                order="post",
                feedforward=MLP(hidden=c["hidden_dim"], act=activation(c["activation"])),
                dropout=c["dropout"],
            ),
        ),
        head=encoder_head(config, task, norm, pooler=Transform(act="relu")),
        init=Normal(std=c["initializer_range"]),
    )


HEAD = {
    "dense": "vocab_transform.{p}", "norm": "vocab_layer_norm.{p}", "bias": "vocab_projector.bias",
    "decoder": "vocab_projector.weight", "pooler": "pre_classifier.{p}", "classifier": "classifier.{p}",
    "span": "qa_outputs.{p}",
}  # fmt: skip


def weights(c: Config, task: HeadKind) -> Table:
    theirs, ours = "distilbert.transformer.layer.{i}.", "tower.blocks.{i}."
    return (
        Name("distilbert.embeddings.word_embeddings.weight", "tower.embed.table.weight"),
        Name("distilbert.embeddings.position_embeddings.weight", "tower.positions.table.weight"),
        Name("distilbert.embeddings.LayerNorm.{p}", "tower.embed.norm.{p}"),
        *(Name(f"{theirs}attention.{x}_lin.{{p}}", f"{ours}attn.{x}.{{p}}") for x in ("q", "k", "v", "out")),
        Name(theirs + "sa_layer_norm.{p}", ours + "attn_norm.{p}"),
        Name(theirs + "ffn.lin1.{p}", ours + "ff.up.{p}"),
        Name(theirs + "ffn.lin2.{p}", ours + "ff.down.{p}"),
        Name(theirs + "output_layer_norm.{p}", ours + "ff_norm.{p}"),
        *encoder_head_rules(c, task, HEAD),
        Ignore("distilbert.embeddings.position_ids", "the numbers 0, 1, 2, ..."),
    )


FAMILY = replace(
    bert.FAMILY,
    name="distilbert",
    title="DistilBERT",
    year=2019,
    paper="https://arxiv.org/abs/1910.01108",
    spec=spec,
    weights=weights,
    prefix="distilbert.",
    parent="bert",
    architectures={
        "tokens": "DistilBertForMaskedLM", "labels": "DistilBertForSequenceClassification",
        "tags": "DistilBertForTokenClassification", "span": "DistilBertForQuestionAnswering",
        "choice": "DistilBertForMultipleChoice", "hidden": "DistilBertModel",
    },
    defaults={
        "vocab_size": 30522, "max_position_embeddings": 512, "dim": 768, "n_layers": 6, "n_heads": 12,
        "hidden_dim": 3072, "dropout": 0.1, "attention_dropout": 0.1, "activation": "gelu",
        "initializer_range": 0.02, "seq_classif_dropout": 0.2, "pad_token_id": 0, "tie_word_embeddings": True,
    },
    sizes={"distilbert-base": {}},
)  # fmt: skip
