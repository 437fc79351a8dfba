"""The original Transformer (Vaswani 2017): post-norm encoder-decoder with sinusoidal positions.

Its folders are Marian's, which is this model: sines in the first half of the channels, cosines in the second.
"""

from dataclasses import replace

from ...nn import EncoderDecoder, Model, Sinusoidal, Tokens, Tower, Xavier
from ...weights import Ignore, Table
from ..family import Config, HeadKind
from ..shared import sinusoid_table
from ..two_towers import model_with_head
from . import bart


def spec(c: Config, task: HeadKind) -> Model:
    both = with_waves(bart.bart_towers(c))
    vocab = c["decoder_vocab_size"] or c["vocab_size"]
    both = replace(
        both,
        decoder=both.decoder.edit(Tokens, vocab=vocab),
        shared=c["share_encoder_decoder_embeddings"] and both.shared,
        init=Xavier(),
    )
    return model_with_head(both, c, task, replace(bart.bart_word_head(c), vocab=vocab))


def with_waves(both: EncoderDecoder) -> EncoderDecoder:
    return both.edit(Tower, positions=Sinusoidal(layout="halves")).edit(Tokens, norm=None)


def weights(c: Config, task: HeadKind) -> Table:
    if task == "decoder":
        return (*WAVE_RULES, *bart.decoder_rules(c))
    shares = c["share_encoder_decoder_embeddings"]  # otherwise theirs has no third table
    shared = shares and bart.shares_table(c)
    ours = "encoder.embed.table.weight" if shared else "decoder.embed.table.weight"
    tables = bart.shared_table_rules() if shared else bart.separate_table_rules()
    tables = tables if shares else tuple(rule for rule in tables if not isinstance(rule, Ignore))
    return (
        *tables,
        *WAVE_RULES,
        *bart.side_rules("encoder", {"self_attn": "attn"}),
        *bart.side_rules("decoder", {"self_attn": "attn", "encoder_attn": "cross"}),
        *bart.head_rules(c, task, ours),
    )


WAVE_RULES: Table = tuple(
    Ignore(f"model.{side}.embed_positions.weight", "sines and cosines", value=sinusoid_table)
    for side in ("encoder", "decoder")
)
BASE = {
    "d_model": 512, "encoder_layers": 6, "encoder_ffn_dim": 2048, "encoder_attention_heads": 8,
    "decoder_layers": 6, "decoder_ffn_dim": 2048, "decoder_attention_heads": 8,
    "activation_function": "relu", "scale_embedding": True, "vocab_size": 37000,
    "pad_token_id": 36999, "decoder_start_token_id": 36999,
}  # fmt: skip

FAMILY = replace(
    bart.FAMILY,
    name="transformer",
    model_type="marian",
    title="Transformer",
    year=2017,
    paper="https://arxiv.org/abs/1706.03762",
    uses="translation",
    spec=spec,
    weights=weights,
    parent=None,
    architectures={"tokens": "MarianMTModel", "hidden": "MarianModel", "decoder": "MarianForCausalLM"},
    defaults={
        **bart.DEFAULTS, "vocab_size": 58101, "decoder_vocab_size": None,
        "share_encoder_decoder_embeddings": True, "pad_token_id": 58100, "decoder_start_token_id": 58100,
        "bos_token_id": None, "eos_token_id": 0, "forced_eos_token_id": 0,
    },
    sizes={
        "transformer-base": BASE,
        "transformer-big": {
            **BASE, "d_model": 1024, "encoder_ffn_dim": 4096, "encoder_attention_heads": 16,
            "decoder_ffn_dim": 4096, "decoder_attention_heads": 16,
        },
        "transformer-10k": {
            **BASE, "vocab_size": 10000, "decoder_vocab_size": 10000,
            "pad_token_id": 9999, "decoder_start_token_id": 9999,
            "share_encoder_decoder_embeddings": False, "tie_word_embeddings": False,
        },
    },
)  # fmt: skip
