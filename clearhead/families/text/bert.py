"""BERT (Devlin 2018): post-norm encoder, segment types, a dense layer before the masked-word head."""

from ...nn import MLP, Attention, Block, Learned, Normal, SingleStack, Softmax, Tokens, Tower, Transform
from ...nn.norm import Layer
from ...weights import Ignore, Name, Table
from ..family import Config, Family, HeadKind
from ..shared import activation, encoder_head, encoder_head_rules


def spec(c: Config, task: HeadKind) -> SingleStack:
    norm, pooler = Layer(eps=c["layer_norm_eps"]), Transform(act="tanh")
    dropout = c["hidden_dropout_prob"]
    return SingleStack(
        tower=Tower(
            width=c["hidden_size"],
            depth=c["num_hidden_layers"],
            causal=c["is_decoder"],
            embed=Tokens(vocab=c["vocab_size"], types=c["type_vocab_size"], norm=norm, dropout=dropout),
            positions=Learned(length=c["max_position_embeddings"]),
            block=Block(
                attention=Attention(
                    heads=c["num_attention_heads"],
                    bias="qkvo",
                    kernel=Softmax(dropout=c["attention_probs_dropout_prob"]),
                ),
                norm=norm,
                order="post",
                feedforward=MLP(hidden=c["intermediate_size"], act=activation(c["hidden_act"])),
                dropout=dropout,
            ),
        ),
        head=encoder_head(c, task, norm, pooler),
        second=encoder_head(c, "pair", norm, pooler) if task == "pretrain" else None,
        init=Normal(std=c["initializer_range"]),
    )


def tower_rules(prefix: str) -> Table:
    """The encoder, which RoBERTa names alike."""
    theirs, ours = prefix + "encoder.layer.{i}.", "tower.blocks.{i}."
    tables = {"word": "embed.table", "position": "positions.table", "token_type": "embed.types"}
    qkv = {"query": "q", "key": "k", "value": "v"}
    return (
        *(Name(f"{prefix}embeddings.{a}_embeddings.weight", f"tower.{b}.weight") for a, b in tables.items()),
        Name(prefix + "embeddings.LayerNorm.{p}", "tower.embed.norm.{p}"),
        *(Name(f"{theirs}attention.self.{a}.{{p}}", f"{ours}attn.{b}.{{p}}") for a, b in qkv.items()),
        Name(theirs + "attention.output.dense.{p}", ours + "attn.out.{p}"),
        Name(theirs + "attention.output.LayerNorm.{p}", ours + "attn_norm.{p}"),
        Name(theirs + "intermediate.dense.{p}", ours + "ff.up.{p}"),
        Name(theirs + "output.dense.{p}", ours + "ff.down.{p}"),
        Name(theirs + "output.LayerNorm.{p}", ours + "ff_norm.{p}"),
        Ignore(prefix + "embeddings.position_ids", "the numbers 0, 1, 2, ..."),
        Ignore(prefix + "embeddings.token_type_ids", "zeros"),
    )


def weights(c: Config, task: HeadKind) -> Table:
    return tower_rules("bert.") + encoder_head_rules(c, task, HEAD)


HEAD = {
    "dense": "cls.predictions.transform.dense.{p}", "norm": "cls.predictions.transform.LayerNorm.{p}",
    "bias": "cls.predictions.bias", "decoder": "cls.predictions.decoder.weight",
    "pooler": "bert.pooler.dense.{p}", "classifier": "classifier.{p}", "span": "qa_outputs.{p}",
    "pair": "cls.seq_relationship.{p}",
}  # fmt: skip
DEFAULTS = {
    "vocab_size": 30522, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
    "intermediate_size": 3072, "hidden_act": "gelu", "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1, "max_position_embeddings": 512, "type_vocab_size": 2,
    "initializer_range": 0.02, "layer_norm_eps": 1e-12, "pad_token_id": 0, "tie_word_embeddings": True,
    "is_decoder": False,
}  # fmt: skip
LARGE = {
    "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096,
}  # fmt: skip

FAMILY = Family(
    name="bert",
    title="BERT",
    year=2018,
    paper="https://arxiv.org/abs/1810.04805",
    mode="bidirectional",
    uses="classification, tagging, question answering, retrieval",
    spec=spec,
    weights=weights,
    prefix="bert.",
    parent="transformer",
    architectures={
        "tokens": "BertForMaskedLM", "labels": "BertForSequenceClassification",
        "tags": "BertForTokenClassification", "span": "BertForQuestionAnswering",
        "choice": "BertForMultipleChoice",
        "pair": "BertForNextSentencePrediction", "pretrain": "BertForPreTraining", "hidden": "BertModel",
    },
    defaults=DEFAULTS,
    sizes={
        "bert-base": {},
        "bert-large": LARGE,
        "minilm-l6": {
            "hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536,
        },
    },
)  # fmt: skip
