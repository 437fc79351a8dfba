"""BlenderBot (Roller 2020): BART with norms before its layers, few encoder layers and many decoder layers."""

from dataclasses import replace

from ...nn import Learned, Model, Tokens
from ..family import Config, HeadKind
from ..two_towers import model_with_head
from . import bart


def spec(c: Config, task: HeadKind) -> Model:
    both = bart.with_norms_first(bart.bart_towers(c)).edit(Learned, offset=0).edit(Tokens, norm=None)
    return model_with_head(both, c, task, bart.bart_word_head(c))


FAMILY = replace(
    bart.FAMILY,
    name="blenderbot",
    title="BlenderBot",
    year=2020,
    paper="https://arxiv.org/abs/2004.13637",
    uses="conversation",
    spec=spec,
    parent="bart",
    architectures={
        "tokens": "BlenderbotForConditionalGeneration", "hidden": "BlenderbotModel",
        "decoder": "BlenderbotForCausalLM",
    },
    defaults={
        **bart.DEFAULTS, "vocab_size": 8008, "max_position_embeddings": 128, "d_model": 2560,
        "encoder_layers": 2, "encoder_ffn_dim": 10240, "encoder_attention_heads": 32, "decoder_layers": 24,
        "decoder_ffn_dim": 10240, "decoder_attention_heads": 32, "pad_token_id": 0, "bos_token_id": 1,
        "decoder_start_token_id": 1,
    },
    sizes={
        "blenderbot-400m": {
            "d_model": 1280, "encoder_ffn_dim": 5120, "decoder_layers": 12, "decoder_ffn_dim": 5120,
            "scale_embedding": True,
        },
        "blenderbot-3b": {"scale_embedding": True},
    },
)  # fmt: skip
