"""T5, v1.1 and mT5 (Raffel 2019, Xue 2020): distance buckets for positions, no biases, unscaled scores."""

from dataclasses import replace

from ..nn import (
    MLP,
    Attention,
    Block,
    EncoderDecoder,
    FanIn,
    FeedForward,
    Gated,
    RelativeBuckets,
    Softmax,
    TokenHead,
    Tokens,
    Tower,
)
from ..nn.norm import RMS
from ..weights import Alias, Name, Table
from .family import Config, Family, HeadKind
from .shared import activation


def spec(c: Config, task: HeadKind) -> EncoderDecoder:
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
    scaled = c.get("scale_decoder_outputs", c["tie_word_embeddings"])
    scale = c["d_model"] ** -0.5 if scaled else 1.0
    head = TokenHead(vocab=c["vocab_size"], tied=_tied(c), scale=scale) if task == "tokens" else None
    return EncoderDecoder(
        encoder=encoder, decoder=decoder, head=head, init=FanIn(factor=c["initializer_factor"])
    )


def _feedforward(c: Config) -> FeedForward:
    kind = c["feed_forward_proj"]
    if not kind.startswith("gated-"):
        return MLP(hidden=c["d_ff"], act=activation(kind), bias=False, dropout=c["dropout_rate"])
    # Their gated "gelu" is the tanh form, as the first v1.1 checkpoints had it.
    act = "gelu_tanh" if kind == "gated-gelu" else activation(kind.removeprefix("gated-"))
    return Gated(hidden=c["d_ff"], act=act, dropout=c["dropout_rate"])


def _tied(c: Config) -> bool:
    """Newer config files say "tied" even for v1.1, whose head is untied: the stored tensors decide."""
    return "lm_head.weight" not in c.stored if c.stored else bool(c["tie_word_embeddings"])


def weights(c: Config, task: HeadKind) -> Table:
    attention = {"q": "q", "k": "k", "v": "v", "o": "out"}
    gated = c["feed_forward_proj"].startswith("gated-")
    feedforward = {"wi_0": "gate", "wi_1": "up", "wo": "down"} if gated else {"wi": "up", "wo": "down"}
    own, ff = ("SelfAttention", "attn", attention), ("DenseReluDense", "ff", feedforward)
    shared = "encoder.embed.table.weight"
    return (
        Name("shared.weight", shared),
        Alias("encoder.embed_tokens.weight", shared),
        Alias("decoder.embed_tokens.weight", shared),
        *_side("encoder", own, ff),
        *_side("decoder", own, ("EncDecAttention", "cross", attention), ff),
        Alias("lm_head.weight", shared) if _tied(c) else Name("lm_head.weight", "head.weight"),
    )


def _side(side: str, *sublayers: tuple[str, str, dict[str, str]]) -> Table:
    """Their layers are numbered sub-layers: layer.0 is self-attention, the last one the feed-forward."""
    bias = "block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    rules = [
        Name(f"{side}.{bias}", f"{side}.positions.table.weight"),
        Name(f"{side}.final_layer_norm.weight", f"{side}.norm.weight"),
    ]
    for n, (them, us, inner) in enumerate(sublayers):
        layer, block = f"{side}.block.{{i}}.layer.{n}.", f"{side}.blocks.{{i}}."
        rules.append(Name(layer + "layer_norm.weight", f"{block}{us}_norm.weight"))
        rules += [Name(f"{layer}{them}.{a}.weight", f"{block}{us}.{b}.weight") for a, b in inner.items()]
    return tuple(rules)


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
    parent="transformer",
    architectures={"tokens": "T5ForConditionalGeneration", "hidden": "T5Model"},
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
        "t5-v1.1-base": {**V11, "d_model": 768, "d_ff": 2048, "num_layers": 12, "num_heads": 12},
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
    architectures={"tokens": "MT5ForConditionalGeneration", "hidden": "MT5Model"},
    defaults={
        **FAMILY.defaults, **V11, "scale_decoder_outputs": False, "vocab_size": 250112, "d_ff": 1024,
        "num_layers": 8, "num_heads": 6,
    },
    sizes={
        "mt5-small": {},
        "mt5-base": {"d_model": 768, "d_ff": 2048, "num_layers": 12, "num_heads": 12},
    },
)  # fmt: skip
