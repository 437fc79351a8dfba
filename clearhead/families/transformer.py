"""The original Transformer (Vaswani 2017): post-norm encoder-decoder with sinusoidal positions.

Its folders are Marian's, which is this model: sines in the first half of the channels, cosines in the second.
"""

from dataclasses import replace

from ..nn import EncoderDecoder, Sinusoidal, TokenHead, Tokens, Tower, Xavier
from ..weights import Alias, Ignore, Name, Table
from . import bart
from .family import Config, HeadKind


def spec(c: Config, task: HeadKind) -> EncoderDecoder:
    base = bart.spec(c, task).edit(Tower, positions=Sinusoidal(layout="halves")).edit(Tokens, norm=None)
    vocab = c["decoder_vocab_size"] or c["vocab_size"]
    decoder = base.decoder.edit(Tokens, vocab=vocab)
    head = TokenHead(vocab=vocab, tied=c["tie_word_embeddings"], bias=True) if task == "tokens" else None
    shared = c["share_encoder_decoder_embeddings"] and base.shared
    return replace(base, decoder=decoder, head=head, shared=shared, init=Xavier())


def weights(c: Config, task: HeadKind) -> Table:
    shares = c["share_encoder_decoder_embeddings"]  # otherwise theirs has no third table
    shared = shares and bart.shares_table(c)
    ours = "encoder.embed.table.weight" if shared else "decoder.embed.table.weight"
    tables = bart.shared_table_rules() if shared else bart.separate_table_rules()
    tables = tables if shares else tuple(rule for rule in tables if not isinstance(rule, Ignore))
    tied = c["tie_word_embeddings"]
    return (
        *tables,
        Ignore("model.encoder.embed_positions.weight", "sines and cosines"),
        Ignore("model.decoder.embed_positions.weight", "sines and cosines"),
        *bart.side_rules("encoder", {"self_attn": "attn"}),
        *bart.side_rules("decoder", {"self_attn": "attn", "encoder_attn": "cross"}),
        Alias("lm_head.weight", ours) if tied else Name("lm_head.weight", "head.weight"),
        Name("final_logits_bias", "head.bias", leading=1),
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
    architectures={"tokens": "MarianMTModel", "hidden": "MarianModel"},
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
