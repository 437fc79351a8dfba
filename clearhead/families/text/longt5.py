"""LongT5 (Guo 2021): T5 v1.1 for long texts, whose encoder attends to near tokens only."""

from dataclasses import replace

from ...errors import SpecError
from ...nn import Attention, Model
from ...weights import Table
from ..family import Config, HeadKind
from ..two_towers import model_with_head
from . import t5


def spec(c: Config, task: HeadKind) -> Model:
    kind, radius = c["encoder_attention_type"], c["local_radius"]
    if kind != "local":
        raise SpecError(f"encoder_attention_type is {kind!r}; only 'local' can be built here")
    both = t5.t5_towers(c)
    both = replace(both, encoder=both.encoder.edit(Attention, window=(radius, radius)))
    return model_with_head(both, c, task, t5.t5_word_head(c))


def weights(c: Config, task: HeadKind) -> Table:
    return t5.weights(c, task, encoder_attention="LocalSelfAttention")


FAMILY = replace(
    t5.FAMILY,
    name="longt5",
    title="LongT5",
    year=2021,
    paper="https://arxiv.org/abs/2112.07916",
    uses="summaries of long documents",
    spec=spec,
    weights=weights,
    parent="t5",
    architectures={
        "tokens": "LongT5ForConditionalGeneration", "hidden": "LongT5Model", "encoder": "LongT5EncoderModel",
    },
    defaults={**t5.FAMILY.defaults, "local_radius": 127, "encoder_attention_type": "local"},
    sizes={
        "long-t5-local-base": t5.FAMILY.sizes["t5-v1.1-base"],
        "long-t5-local-large": {
            **t5.V11, "d_model": 1024, "d_ff": 2816, "num_layers": 24, "num_heads": 16,
        },
    },
)  # fmt: skip
