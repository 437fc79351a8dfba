"""LongT5 (Guo 2021): T5 v1.1 for long texts, whose encoder attends to near tokens only ("local"), or to these
and to summaries of blocks of tokens ("transient-global")."""

from dataclasses import replace

from ...errors import SpecError
from ...nn import Attention, BlockSummaries, Model
from ...nn.norm import RMS
from ...weights import Name, Table
from ..family import ONE_TOWER, Config, HeadKind
from ..two_towers import model_with_head
from . import t5

_ENCODER_ATTENTION = {"local": "LocalSelfAttention", "transient-global": "TransientGlobalSelfAttention"}


def spec(c: Config, task: HeadKind) -> Model:
    both, radius = t5.t5_towers(c), c["local_radius"]
    encoder = both.encoder.edit(Attention, window=(radius, radius))
    if _encoder_attention(c) == "transient-global":
        summaries = BlockSummaries(block=c["global_block_size"], norm=RMS(eps=c["layer_norm_epsilon"]))
        encoder = encoder.edit(Attention, project=summaries)
    both = replace(both, encoder=encoder)
    return model_with_head(both, c, task, t5.t5_word_head(c))


def weights(c: Config, task: HeadKind) -> Table:
    kind = _encoder_attention(c)
    theirs, ours = _ENCODER_ATTENTION[kind], "tower" if task in ONE_TOWER else "encoder"
    table = t5.weights(c, task, encoder_attention=theirs)
    if kind == "local":
        return table
    layer = f"{t5.FAMILY.prefix}encoder.block.{{i}}.layer.0.{theirs}."
    first = layer.format(i=0)  # it has the table of all layers
    return (
        *table,
        Name(layer + "global_input_layer_norm.weight", f"{ours}.blocks.{{i}}.attn.summary_norm.weight"),
        Name(first + "global_relative_attention_bias.weight", f"{ours}.positions.block_table.weight"),
    )


def _encoder_attention(c: Config) -> str:
    kind: str = c["encoder_attention_type"]
    if kind not in _ENCODER_ATTENTION:
        known = " and ".join(map(repr, _ENCODER_ATTENTION))
        raise SpecError(f"encoder_attention_type is {kind!r}; only {known} can be built here")
    return kind


_GLOBAL = {"encoder_attention_type": "transient-global"}
_BASE = t5.FAMILY.sizes["t5-v1.1-base"]
_LARGE = {**t5.V11, "d_model": 1024, "d_ff": 2816, "num_layers": 24, "num_heads": 16}
_XL = {**t5.V11, "d_model": 2048, "d_ff": 5120, "num_layers": 24, "num_heads": 32}
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
    defaults={
        **t5.FAMILY.defaults, "local_radius": 127, "global_block_size": 16, "encoder_attention_type": "local",
    },
    sizes={
        "long-t5-local-base": _BASE, "long-t5-local-large": _LARGE,
        "long-t5-tglobal-base": {**_BASE, **_GLOBAL}, "long-t5-tglobal-large": {**_LARGE, **_GLOBAL},
        "long-t5-tglobal-xl": {**_XL, **_GLOBAL},
    },
)  # fmt: skip
