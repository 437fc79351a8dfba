"""Funnel Transformer (Dai 2020): the sequence is halved between groups of layers, and restored at the end.

Classifiers of whole texts read the halved sequence; for heads that read every token, the decoder layers after
the funnel work on one state per token again.
"""

from ...errors import SpecError
from ...nn import (
    MLP,
    Attention,
    Block,
    Combined,
    Head,
    Labels,
    Normal,
    Pooling,
    RelativeTypes,
    RelativeWaves,
    SingleStack,
    Softmax,
    Span,
    Tags,
    TokenHead,
    Tokens,
    Tower,
    Transform,
    Xavier,
)
from ...nn.norm import Layer
from ...weights import Alias, Ignore, Name, Table, WeightRule
from ..family import Config, Family, HeadKind
from ..shared import activation

# The heads that read the halved sequence.
ENCODER_HEADS: frozenset[HeadKind] = frozenset({"encoder", "labels", "choice"})
CLS_TYPE = 2  # the segment type of the first token, which belongs to both texts of a pair


def _runs(c: Config, task: HeadKind) -> tuple[int, ...]:
    """For every layer with weights of its own, how often it runs; those of the decoder come last."""
    sizes, repeats = c["block_sizes"], c["block_repeats"] or [1] * len(c["block_sizes"])
    if len(sizes) != len(repeats):
        raise SpecError(f"block_sizes are {sizes}, block_repeats {repeats}; expected a repeat for each block")
    runs = tuple(times for size, times in zip(sizes, repeats, strict=True) for _ in range(size))
    if task in ENCODER_HEADS:
        return runs
    # Theirs adds the states of another layer than the last of the first block where its layers are repeated,
    # and doubles the states where there is nothing to restore.
    if repeats[0] != 1 or len(sizes) == 1 or not c["num_decoder_layers"]:
        raise SpecError(
            f"a head that reads every token needs two blocks or more, the first without repeats, and a "
            f"decoder; given block_sizes {sizes}, block_repeats {repeats} and "
            f"num_decoder_layers {c['num_decoder_layers']}"
        )
    return (*runs, *(1,) * c["num_decoder_layers"])


def _pooling(c: Config, task: HeadKind) -> Pooling | None:
    runs, sizes = _runs(c, task), c["block_sizes"]
    starts = [sum(sizes[:block]) for block in range(1, len(sizes))]
    before = tuple(sum(runs[:start]) for start in starts)
    if not before:
        return None
    return Pooling(
        before=before,
        restore=None if task in ENCODER_HEADS else sum(runs[: sum(sizes)]),
        groups="pairs"
        if not c["separate_cls"]
        else "first-alone-drop-last"
        if c["truncate_seq"]
        else "first-alone",
        reduce=c["pooling_type"],
        pooled="queries" if c["pool_q_only"] else "all",
    )


def spec(c: Config, task: HeadKind) -> SingleStack:
    # attention_type is how scores are computed: both ways give the same numbers.
    runs, std = _runs(c, task), c["initializer_std"]
    return SingleStack(
        tower=Tower(
            width=c["d_model"],
            depth=sum(runs),
            distinct=runs if max(runs) > 1 else None,
            embed=Tokens(
                vocab=c["vocab_size"], norm=Layer(eps=c["layer_norm_eps"]), dropout=c["hidden_dropout"]
            ),
            positions=Combined(
                schemes=(
                    RelativeWaves(
                        first="apart" if c["separate_cls"] else "counted", dropout=c["hidden_dropout"]
                    ),
                    RelativeTypes(
                        types=CLS_TYPE + 1,
                        neutral=CLS_TYPE,
                        first="apart" if c["separate_cls"] else "counted",
                    ),
                )
            ),
            pooling=_pooling(c, task),
            block=Block(
                attention=Attention(
                    heads=c["n_head"],
                    head_dim=c["d_head"],
                    bias="kvo",
                    kernel=Softmax(dropout=c["attention_dropout"]),
                ),
                feedforward=MLP(
                    hidden=c["d_inner"], act=activation(c["hidden_act"]), dropout=c["activation_dropout"]
                ),
                norm=Layer(eps=c["layer_norm_eps"]),
                order="post",
                dropout=c["hidden_dropout"],
            ),
        ),
        head=_head(c, task),
        init=Xavier() if std is None else Normal(std=std),
    )


def _head(c: Config, task: HeadKind) -> Head | None:
    pooler, dropout = Transform(act="tanh"), c["hidden_dropout"]
    heads: dict[HeadKind, Head | None] = {
        "hidden": None,
        "encoder": None,
        "tokens": TokenHead(vocab=c["vocab_size"], tied=c["tie_word_embeddings"], bias=True),
        "labels": Labels(count=c.labels, transform=pooler, dropout=dropout),
        "choice": Labels(count=1, transform=pooler, dropout=dropout),
        "tags": Tags(count=c.labels, dropout=dropout),
        "span": Span(),
        "replaced": Tags(count=1, transform=Transform(act=activation(c["hidden_act"]))),
    }
    return heads[task]


def weights(c: Config, task: HeadKind) -> Table:
    rules: list[WeightRule] = [
        Name("funnel.embeddings.word_embeddings.weight", "tower.embed.table.weight"),
        Name("funnel.embeddings.layer_norm.{p}", "tower.embed.norm.{p}"),
    ]
    runs, sizes = _runs(c, task), c["block_sizes"]
    theirs = [f"encoder.blocks.{block}.{i}" for block, size in enumerate(sizes) for i in range(size)]
    theirs += [f"decoder.layers.{i}" for i in range(c["num_decoder_layers"])]
    for own, name in enumerate(theirs[: len(runs)]):
        # Layers that run several times are stored once: under the first.
        rules += _layer_rules(f"funnel.{name}.", f"tower.blocks.{sum(runs[:own])}.", own, c["n_head"])
    if task in ENCODER_HEADS:
        rules.append(Ignore("funnel.decoder.{rest}", "layers for heads that read every token"))
    return (*rules, *_head_rules(c, task))


def _layer_rules(theirs: str, ours: str, own: int, heads: int) -> Table:
    waves, types = (f"tower.positions.schemes.{scheme}." for scheme in (0, 1))
    attention = theirs + "attention."
    return (
        Name(attention + "q_head.weight", ours + "attn.q.weight"),
        *(Name(f"{attention}{x}_head.{{p}}", f"{ours}attn.{x}.{{p}}") for x in "kv"),
        Name(attention + "post_proj.{p}", ours + "attn.out.{p}"),
        Name(attention + "layer_norm.{p}", ours + "attn_norm.{p}"),
        Name(attention + "r_kernel", f"{waves}project.{own}.weight", transpose=True, heads=heads),
        Name(attention + "r_w_bias", f"{waves}u.{own}"),
        Name(attention + "r_r_bias", f"{waves}v.{own}"),
        Name(attention + "r_s_bias", f"{types}s.{own}"),
        Name(attention + "seg_embed", f"{types}e.{own}"),
        Name(theirs + "ffn.linear_1.{p}", ours + "ff.up.{p}"),
        Name(theirs + "ffn.linear_2.{p}", ours + "ff.down.{p}"),
        Name(theirs + "ffn.layer_norm.{p}", ours + "ff_norm.{p}"),
    )


def _head_rules(c: Config, task: HeadKind) -> Table:
    table, labels = (
        "tower.embed.table.weight",
        (
            Name("classifier.linear_hidden.{p}", "head.transform.dense.{p}"),
            Name("classifier.linear_out.{p}", "head.project.{p}"),
        ),
    )
    heads: dict[HeadKind, Table] = {
        "hidden": (),
        "encoder": (),
        "tokens": (
            Alias("lm_head.weight", table)
            if c["tie_word_embeddings"]
            else Name("lm_head.weight", "head.weight"),
            Name("lm_head.bias", "head.bias"),
        ),
        "labels": labels,
        "choice": labels,
        "tags": (Name("classifier.{p}", "head.project.{p}"),),
        "span": (Name("qa_outputs.{p}", "head.project.{p}"),),
        "replaced": (
            Name("discriminator_predictions.dense.{p}", "head.transform.dense.{p}"),
            Name("discriminator_predictions.dense_prediction.{p}", "head.project.{p}"),
        ),
    }
    others = ("lm_head", "classifier", "classifier.linear_hidden", "classifier.linear_out", "qa_outputs",
              "discriminator_predictions.dense", "discriminator_predictions.dense_prediction")  # fmt: skip
    return (*heads[task], *(Ignore(f"{name}.{{p}}", "a part of another head") for name in others))


_SMALL = {"block_sizes": [4, 4, 4], "d_model": 768, "n_head": 12, "d_inner": 3072}
_LARGE = {"d_model": 1024, "n_head": 16, "d_inner": 4096}

FAMILY = Family(
    name="funnel",
    title="Funnel Transformer",
    year=2020,
    paper="https://arxiv.org/abs/2006.03236",
    mode="bidirectional",
    uses="labels, tags, spans",
    spec=spec,
    weights=weights,
    prefix="funnel.",
    bare=frozenset({"hidden", "encoder"}),
    encoder_heads=ENCODER_HEADS,
    no_size_words=frozenset({"num_decoder_layers"}),
    parent="transfo-xl",
    architectures={
        "tokens": "FunnelForMaskedLM", "labels": "FunnelForSequenceClassification",
        "tags": "FunnelForTokenClassification", "span": "FunnelForQuestionAnswering",
        "choice": "FunnelForMultipleChoice", "replaced": "FunnelForPreTraining", "hidden": "FunnelModel",
        "encoder": "FunnelBaseModel",
    },
    defaults={
        "vocab_size": 30522, "block_sizes": [4, 4, 4], "block_repeats": None, "num_decoder_layers": 2,
        "d_model": 768, "n_head": 12, "d_head": 64, "d_inner": 3072, "hidden_act": "gelu_new",
        "hidden_dropout": 0.1, "attention_dropout": 0.1, "activation_dropout": 0.0,
        "initializer_range": 0.1, "initializer_std": None, "layer_norm_eps": 1e-9, "pooling_type": "mean",
        "attention_type": "relative_shift", "separate_cls": True, "truncate_seq": True, "pool_q_only": True,
        "pad_token_id": None, "tie_word_embeddings": True,
    },
    sizes={
        "funnel-small": _SMALL,
        "funnel-medium": {**_SMALL, "block_sizes": [6, 3, 3], "block_repeats": [1, 2, 2]},
        "funnel-intermediate": {**_SMALL, "block_sizes": [6, 6, 6]},
        "funnel-large": {**_LARGE, "block_sizes": [8, 8, 8]},
        "funnel-xlarge": {**_LARGE, "block_sizes": [10, 10, 10]},
    },
)  # fmt: skip
