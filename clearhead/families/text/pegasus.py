"""PEGASUS (Zhang 2019): BART with norms before its layers and sinusoidal positions."""

from dataclasses import replace

from ...nn import Model
from ...weights import Table
from ..family import Config, HeadKind
from ..two_towers import model_with_head
from . import bart
from .transformer import WAVE_RULES, with_waves


def spec(c: Config, task: HeadKind) -> Model:
    both = bart.with_norms_first(with_waves(bart.bart_towers(c)))
    return model_with_head(both, c, task, bart.bart_word_head(c))


def weights(c: Config, task: HeadKind) -> Table:
    return (*WAVE_RULES, *bart.weights(c, task))


_PUBLISHED = {
    "vocab_size": 96103, "encoder_layers": 16, "decoder_layers": 16, "activation_function": "relu",
    "attention_dropout": 0.1, "activation_dropout": 0.1, "scale_embedding": True,
}  # fmt: skip
FAMILY = replace(
    bart.FAMILY,
    name="pegasus",
    title="PEGASUS",
    paper="https://arxiv.org/abs/1912.08777",
    uses="summaries",
    spec=spec,
    weights=weights,
    parent="bart",
    architectures={
        "tokens": "PegasusForConditionalGeneration", "hidden": "PegasusModel",
        "decoder": "PegasusForCausalLM",
    },
    defaults={
        **bart.DEFAULTS, "pad_token_id": 0, "bos_token_id": None, "eos_token_id": 1,
        "forced_eos_token_id": 1, "decoder_start_token_id": 0,
    },
    sizes={
        "pegasus-large": _PUBLISHED,
        "pegasus-xsum": {**_PUBLISHED, "max_position_embeddings": 512},
    },
)  # fmt: skip
