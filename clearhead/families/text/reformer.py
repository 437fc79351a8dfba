"""Reformer (Kitaev 2020): alternating hashed and local attention, reversible layers, positions on a grid."""

from math import lcm

from ...errors import SpecError
from ...nn import (
    LSH,
    MLP,
    Attention,
    Axial,
    Block,
    Chunks,
    Head,
    Labels,
    Learned,
    Normal,
    Positions,
    SingleStack,
    Span,
    TokenHead,
    Tokens,
    Tower,
    Transform,
)
from ...nn.norm import Layer
from ...weights import Ignore, Name, Table, WeightRule
from ..family import Config, Family, HeadKind
from ..shared import activation


def spec(c: Config, task: HeadKind) -> SingleStack:
    norm = Layer(eps=c["layer_norm_eps"])
    return SingleStack(
        tower=Tower(
            width=c["hidden_size"],
            depth=len(c["attn_layers"]),
            causal=c["is_decoder"],
            residual="reversible",
            embed=Tokens(vocab=c["vocab_size"], dropout=c["hidden_dropout_prob"]),
            positions=_positions(c),
            block=tuple(
                Block(
                    attention=_attention(c, kind),
                    feedforward=MLP(
                        hidden=c["feed_forward_size"],
                        act=activation(c["hidden_act"]),
                        dropout=c["hidden_dropout_prob"],
                    ),
                    norm=norm,
                    dropout=c["hidden_dropout_prob"],
                )
                for kind in c["attn_layers"]
            ),
            last_norm=norm,
        ),
        head=_head(c, task),
        init=Normal(std=c["initializer_range"]),
    )


def _positions(c: Config) -> Positions:
    if not c["axial_pos_embds"]:
        return Learned(length=c["max_position_embeddings"])
    return Axial(shape=tuple(c["axial_pos_shape"]), widths=tuple(c["axial_pos_embds_dim"]))


def _attention(c: Config, kind: str) -> Attention:
    lengths = {"lsh": c["lsh_attn_chunk_length"], "local": c["local_attn_chunk_length"]}
    if kind not in lengths:
        raise SpecError(f"attn_layers has {kind!r}, expected 'lsh' or 'local'")
    # Texts are padded to whole chunks of every kind that the model has.
    multiple = lcm(*(lengths[name] for name in set(c["attn_layers"]) if name in lengths))
    heads, width = c["num_attention_heads"], c["attention_head_size"]
    neighbours = {"before": c[f"{kind}_num_chunks_before"], "after": c[f"{kind}_num_chunks_after"]}
    if kind == "local":
        dropout = c["local_attention_probs_dropout_prob"]
        kernel = Chunks(chunk=lengths[kind], multiple=multiple, dropout=dropout, **neighbours)
        return Attention(heads=heads, head_dim=width, kernel=kernel)
    buckets = c["num_buckets"]
    hashed = LSH(
        chunk=lengths[kind],
        multiple=multiple,
        rounds=c["num_hashes"],
        buckets=None if buckets is None else (buckets,) if isinstance(buckets, int) else tuple(buckets),
        seed=c["hash_seed"] or 0,  # theirs uses a new seed in every call unless one is given
        itself="alone",
        repeats="counted",
        dropout=c["lsh_attention_probs_dropout_prob"],
        **neighbours,
    )
    return Attention(heads=heads, head_dim=width, project="shared", kernel=hashed)


def _head(c: Config, task: HeadKind) -> Head | None:
    explicit = c["classifier_dropout"]
    dropout = c["hidden_dropout_prob"] if explicit is None else explicit
    heads: dict[HeadKind, Head | None] = {
        "hidden": None,
        "tokens": TokenHead(vocab=c["vocab_size"], tied=False),
        "labels": Labels(
            count=c.labels, transform=Transform(act="tanh", width=c["hidden_size"]), dropout=dropout
        ),
        "span": Span(),
    }
    return heads[task]


def weights(c: Config, task: HeadKind) -> Table:
    theirs, ours = "reformer.encoder.layers.{i}.", "tower.blocks.{i}."
    attention = {"query_key": "q", "query": "q", "key": "k", "value": "v"}
    rules: list[WeightRule] = [
        Name("reformer.embeddings.word_embeddings.weight", "tower.embed.table.weight"),
        Name("reformer.embeddings.position_embeddings.weights.{i}", "tower.positions.tables.{i}"),
        Name("reformer.embeddings.position_embeddings.embedding.weight", "tower.positions.table.weight"),
        Name(theirs + "attention.layer_norm.{p}", ours + "attn_norm.{p}"),
        Name(theirs + "attention.output.dense.weight", ours + "attn.out.weight"),
        Name(theirs + "feed_forward.layer_norm.{p}", ours + "ff_norm.{p}"),
        Name(theirs + "feed_forward.dense.dense.{p}", ours + "ff.up.{p}"),
        Name(theirs + "feed_forward.output.dense.{p}", ours + "ff.down.{p}"),
        Name("reformer.encoder.layer_norm.{p}", "tower.norm.{p}"),
    ]
    for i, kind in enumerate(c["attn_layers"]):
        parts = ("query_key", "value") if kind == "lsh" else ("query", "key", "value")
        layer, block = f"reformer.encoder.layers.{i}.attention.self_attention.", f"tower.blocks.{i}.attn."
        rules += [Name(f"{layer}{part}.weight", f"{block}{attention[part]}.weight") for part in parts]
    heads: dict[HeadKind, Table] = {
        "hidden": (),
        "tokens": (
            Name("lm_head.decoder.weight", "head.weight"),
            Ignore("lm_head.bias", "stored, never added"),
            Ignore("lm_head.decoder.bias", "stored, never added"),
        ),
        "labels": (
            Name("classifier.dense.{p}", "head.transform.dense.{p}"),
            Name("classifier.out_proj.{p}", "head.project.{p}"),
        ),
        "span": (Name("qa_outputs.{p}", "head.project.{p}"),),
    }
    return (*rules, *heads[task])


FAMILY = Family(
    name="reformer",
    title="Reformer",
    year=2020,
    paper="https://arxiv.org/abs/2001.04451",
    mode="causal",
    uses="very long texts in little memory",
    spec=spec,
    head_config={"tokens": {"is_decoder": True}},
    weights=weights,
    prefix="reformer.",
    parent="transformer",
    architectures={
        "tokens": "ReformerModelWithLMHead", "labels": "ReformerForSequenceClassification",
        "span": "ReformerForQuestionAnswering", "hidden": "ReformerModel",
    },
    defaults={
        "attention_head_size": 64, "attn_layers": ["local", "lsh", "local", "lsh", "local", "lsh"],
        "axial_pos_embds": True, "axial_pos_shape": [64, 64], "axial_pos_embds_dim": [64, 192],
        "feed_forward_size": 512, "hash_seed": None, "hidden_act": "relu", "hidden_dropout_prob": 0.05,
        "hidden_size": 256, "initializer_range": 0.02, "is_decoder": False, "layer_norm_eps": 1e-12,
        "local_num_chunks_before": 1, "local_num_chunks_after": 0,
        "local_attention_probs_dropout_prob": 0.05, "local_attn_chunk_length": 64,
        "lsh_attn_chunk_length": 64, "lsh_attention_probs_dropout_prob": 0.0, "lsh_num_chunks_before": 1,
        "lsh_num_chunks_after": 0, "max_position_embeddings": 4096, "num_attention_heads": 12,
        "num_buckets": None, "num_hashes": 1, "vocab_size": 320, "classifier_dropout": None,
        "pad_token_id": 0, "eos_token_id": 2, "tie_word_embeddings": False,
    },
    sizes={
        "reformer-crime": {
            "attn_layers": ["local", "lsh", "local", "lsh", "local", "lsh"], "is_decoder": True,
            "axial_pos_shape": [512, 1024], "max_position_embeddings": 524288, "num_attention_heads": 2,
            "num_buckets": [64, 128],
        },
    },
)  # fmt: skip
