"""T5, v1.1 and mT5 (Raffel 2019, Xue 2020): distance buckets for positions, no biases, unscaled scores."""

from dataclasses import replace

from ...nn import (
    MLP,
    Attention,
    Block,
    EncoderDecoder,
    FanIn,
    FeedForward,
    Gated,
    Model,
    RelativeBuckets,
    Softmax,
    TokenHead,
    Tokens,
    Tower,
)
from ...nn.norm import RMS
from ...weights import Alias, Ignore, Name, Table
from ..family import ONE_TOWER, Config, Family, HeadKind
from ..shared import activation
from ..two_towers import model_with_head, start_token


def spec(c: Config, task: HeadKind) -> Model:
    return model_with_head(t5_towers(c), c, task, t5_word_head(c), start=start_token(c, task))


def t5_towers(c: Config) -> EncoderDecoder:
    norm, dropout = RMS(eps=c["layer_norm_epsilon"]), c["dropout_rate"]
    attention = Attention(
        heads=c["num_heads"], head_dim=c["d_kv"], scale=1.0, kernel=Softmax(dropout=dropout)
    )
    encoder = Tower(
        width=c["d_model"],
        depth=c["num_layers"],
        embed=Tokens(vocab=c["vocab_size"], dropout=dropout),
        positions=RelativeBuckets(
            buckets=c["relative_attention_num_buckets"], max_distance=c["relative_attention_max_distance"]
        ),
        block=Block(attention=attention, feedforward=_feedforward(c), norm=norm, dropout=dropout),
        last_norm=norm,
    )
    decoder = replace(
        encoder,
        depth=c["num_decoder_layers"] or c["num_layers"],
        causal=True,
        block=Block(
            attention=attention, cross=attention, feedforward=_feedforward(c), norm=norm, dropout=dropout
        ),
    )
    return EncoderDecoder(encoder=encoder, decoder=decoder, init=FanIn(factor=c["initializer_factor"]))


def t5_word_head(c: Config) -> TokenHead:
    scaled = c.get("scale_decoder_outputs", c["tie_word_embeddings"])
    scale = c["d_model"] ** -0.5 if scaled else 1.0
    return TokenHead(vocab=c["vocab_size"], tied=_tied(c), scale=scale)


def _feedforward(c: Config) -> FeedForward:
    kind = c["feed_forward_proj"]
    # Their gated "gelu" is the tanh form, as the first v1.1 checkpoints had it.
    named = "gelu_new" if kind == "gated-gelu" else kind.removeprefix("gated-")
    act = activation(c.get("dense_act_fn") or named)
    if _gated(c):
        return Gated(hidden=c["d_ff"], act=act, dropout=c["dropout_rate"])
    return MLP(hidden=c["d_ff"], act=act, bias=False, dropout=c["dropout_rate"])


def _gated(c: Config) -> bool:
    """Theirs writes what follows from `feed_forward_proj` into the file, too, and then reads that."""
    given = c.get("is_gated_act")
    return bool(c["feed_forward_proj"].startswith("gated-") if given is None else given)


def _tied(c: Config) -> bool:
    """Newer config files say "tied" even for v1.1, whose head is untied: the stored tensors decide."""
    return PREFIX + "lm_head.weight" not in c.stored if c.stored else bool(c["tie_word_embeddings"])


def weights(
    c: Config,
    task: HeadKind,
    encoder_attention: str = "SelfAttention",
    feedforward: str = "DenseReluDense",
) -> Table:
    """Their names for the self-attention of the encoder, and for the feed-forward layers."""
    attention = {"q": "q", "k": "k", "v": "v", "o": "out"}
    linears = {"wi_0": "gate", "wi_1": "up", "wo": "down"} if _gated(c) else {"wi": "up", "wo": "down"}
    own, ff = ("SelfAttention", "attn", attention), (feedforward, "ff", linears)
    alone = task in ONE_TOWER
    shared = "tower.embed.table.weight" if alone else "encoder.embed.table.weight"
    decoder = _side_rules("decoder", own, ("EncDecAttention", "cross", attention), ff)
    return (
        Name(PREFIX + "shared.weight", shared),
        Alias(PREFIX + "encoder.embed_tokens.weight", shared),
        Alias(PREFIX + "decoder.embed_tokens.weight", shared),
        *_side_rules(
            "encoder", (encoder_attention, "attn", attention), ff, ours="tower" if alone else "encoder"
        ),
        *(
            (Ignore(PREFIX + "decoder.{rest}", "the decoder, which this head does not use"),)
            if alone
            else decoder
        ),
        *_head_rules(c, task, shared),
    )


def _head_rules(c: Config, task: HeadKind, table: str) -> Table:
    """Their classifiers are around a base model, and so have names with its prefix beside their own."""
    rules: dict[HeadKind, Table] = {
        "labels": (
            Name("classification_head.dense.{p}", "head.transform.dense.{p}"),
            Name("classification_head.out_proj.{p}", "head.project.{p}"),
        ),
        "tags": (Name("classifier.{p}", "head.project.{p}"),),
        "span": (Name(PREFIX + "qa_outputs.{p}", "head.project.{p}"),),
    }
    theirs = PREFIX + "lm_head.weight"
    return rules.get(task) or (Alias(theirs, table) if _tied(c) else Name(theirs, "head.weight"),)


def _side_rules(side: str, *sublayers: tuple[str, str, dict[str, str]], ours: str | None = None) -> Table:
    """Their layers are numbered sub-layers: layer.0 is self-attention, the last one the feed-forward."""
    tower = ours or side
    bias = f"block.0.layer.0.{sublayers[0][0]}.relative_attention_bias.weight"
    rules = [
        Name(f"{PREFIX}{side}.{bias}", f"{tower}.positions.table.weight"),
        Name(f"{PREFIX}{side}.final_layer_norm.weight", f"{tower}.norm.weight"),
    ]
    for n, (them, us, inner) in enumerate(sublayers):
        layer, block = f"{PREFIX}{side}.block.{{i}}.layer.{n}.", f"{tower}.blocks.{{i}}."
        rules.append(Name(layer + "layer_norm.weight", f"{block}{us}_norm.weight"))
        rules += [Name(f"{layer}{them}.{a}.weight", f"{block}{us}.{b}.weight") for a, b in inner.items()]
    return tuple(rules)


def t5_classes(stem: str) -> dict[HeadKind, str]:
    return {
        "tokens": f"{stem}ForConditionalGeneration", "hidden": f"{stem}Model",
        "encoder": f"{stem}EncoderModel", "labels": f"{stem}ForSequenceClassification",
        "tags": f"{stem}ForTokenClassification", "span": f"{stem}ForQuestionAnswering",
    }  # fmt: skip


PREFIX = "transformer."  # only two of their classes store it: those that wrap a base model
V11 = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
FAMILY = Family(
    name="t5",
    title="T5",
    year=2019,
    paper="https://arxiv.org/abs/1910.10683",
    mode="encoder-decoder",
    uses="any text to any text",
    spec=spec,
    weights=weights,
    prefix=PREFIX,
    bare=frozenset({"tokens", "hidden", "encoder", "span"}),
    parent="transformer",
    architectures=t5_classes("T5"),
    defaults={
        "vocab_size": 32128, "d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6,
        "num_decoder_layers": None, "num_heads": 8, "relative_attention_num_buckets": 32,
        "relative_attention_max_distance": 128, "dropout_rate": 0.1, "layer_norm_epsilon": 1e-6,
        "initializer_factor": 1.0, "feed_forward_proj": "relu", "tie_word_embeddings": True,
        "pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0,
    },
    sizes={
        "t5-small": {},
        "t5-base": {"d_model": 768, "d_ff": 3072, "num_layers": 12, "num_heads": 12},
        "t5-large": {"d_model": 1024, "d_ff": 4096, "num_layers": 24, "num_heads": 16},
        "t5-3b": {"d_kv": 128, "d_model": 1024, "d_ff": 16384, "num_layers": 24, "num_heads": 32},
        "t5-11b": {"d_kv": 128, "d_model": 1024, "d_ff": 65536, "num_layers": 24, "num_heads": 128},
        "t5-v1.1-small": {**V11, "d_ff": 1024, "num_layers": 8, "num_heads": 6},
        "t5-v1.1-base": {**V11, "d_model": 768, "d_ff": 2048, "num_layers": 12, "num_heads": 12},
        "t5-v1.1-large": {**V11, "d_model": 1024, "d_ff": 2816, "num_layers": 24, "num_heads": 16},
        "t5-v1.1-xl": {**V11, "d_model": 2048, "d_ff": 5120, "num_layers": 24, "num_heads": 32},
        "t5-v1.1-xxl": {**V11, "d_model": 4096, "d_ff": 10240, "num_layers": 24, "num_heads": 64},
    },
)  # fmt: skip
MT5 = replace(
    FAMILY,
    name="mt5",
    title="mT5",
    year=2020,
    paper="https://arxiv.org/abs/2010.11934",
    uses="the same, in a hundred languages",
    parent="t5",
    architectures=t5_classes("MT5"),
    defaults={
        **FAMILY.defaults, **V11, "scale_decoder_outputs": False, "vocab_size": 250112, "d_ff": 1024,
        "num_layers": 8, "num_heads": 6,
    },
    sizes={
        "mt5-small": {},
        "mt5-base": {"d_model": 768, "d_ff": 2048, "num_layers": 12, "num_heads": 12},
    },
)  # fmt: skip
