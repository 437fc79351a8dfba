"""M2M-100 and NLLB (Fan 2020, Costa-jussà 2022): mBART with sines for positions, after the padding id."""

from dataclasses import replace

from ...nn import Model, Sinusoidal, Tokens, Tower
from ...weights import Ignore, Table
from ..family import Config, HeadKind
from ..two_towers import model_with_head
from . import bart


def spec(c: Config, task: HeadKind) -> Model:
    waves = Sinusoidal(layout="halves", offset=c["pad_token_id"] + 1, endpoint=True)
    both = bart.with_norms_first(bart.bart_towers(c)).edit(Tower, positions=waves).edit(Tokens, norm=None)
    return model_with_head(both, c, task, replace(bart.bart_word_head(c), bias=False))


def weights(c: Config, task: HeadKind) -> Table:
    return (*_WAVES, *bart.weights(c, task))


_WAVES: Table = tuple(
    Ignore(f"model.{side}.embed_positions.weights", "sines and cosines") for side in ("encoder", "decoder")
)
_DEEP = {
    "encoder_layers": 24, "encoder_ffn_dim": 8192, "decoder_layers": 24, "decoder_ffn_dim": 8192,
}  # fmt: skip
FAMILY = replace(
    bart.FAMILY,
    name="m2m_100",
    title="M2M-100",
    also=("NLLB",),
    year=2020,
    paper="https://arxiv.org/abs/2010.11125",
    uses="translation between a hundred or two hundred languages",
    spec=spec,
    weights=weights,
    parent="mbart",
    architectures={"tokens": "M2M100ForConditionalGeneration", "hidden": "M2M100Model"},
    defaults={
        **{key: value for key, value in bart.DEFAULTS.items() if key != "forced_eos_token_id"},
        "vocab_size": 128112, "activation_function": "relu", "attention_dropout": 0.1,
        "scale_embedding": True,
    },
    sizes={
        "m2m100-418m": {},
        "m2m100-1.2b": _DEEP,
        "nllb-200-600m": {"vocab_size": 256206},
        "nllb-200-1.3b": {**_DEEP, "vocab_size": 256206},
    },
)  # fmt: skip
