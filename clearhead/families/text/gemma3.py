"""Gemma 3 (2025): Gemma 2 with norms on q and k instead of caps; theta depends on the kind of layer."""

from dataclasses import replace

from ...errors import SpecError
from ...nn import Attention, Block, SingleStack, Tower
from ...nn.norm import RMS
from ...weights import Name, Table
from ..family import Config, HeadKind
from ..shared import blocks_by_layer_type, every_nth_full, rope_of_layers
from . import gemma2


def spec(c: Config, task: HeadKind) -> SingleStack:
    if c["attn_logit_softcapping"] is not None:
        given = c["attn_logit_softcapping"]
        raise SpecError(f"attn_logit_softcapping is {given}; Gemma 3 is known here without it (null)")
    window, both_ways = c["sliding_window"], bool(c["use_bidirectional_attention"])
    # All layers alike at first: the base then has one block, without a window.
    alike = Config({**c, "sliding_window": None, "rope_parameters": {}})
    base = gemma2.spec(alike, task).edit(Attention, qk_norm=RMS(eps=c["rms_norm_eps"], centred=True))
    assert isinstance(base.tower.block, Block)
    full = rope_of_layers(c, "full_attention", flat=True, theta=1000000.0)
    near = rope_of_layers(
        c, "sliding_attention", flat=False, theta=float(c.get("rope_local_base_freq", 10000.0))
    )
    layers = Config({**c, "layer_types": every_nth_full(c, c.get("sliding_window_pattern", 6))})
    if both_ways and window:  # half of the window on either side (EmbeddingGemma)
        window = window // 2 + 1
    block = blocks_by_layer_type(base.tower.block, layers, window, positions=near)
    spec = base.edit(Tower, block=block, positions=full, causal=not both_ways)
    return _look_ahead(spec) if both_ways else spec


def _look_ahead(spec: SingleStack) -> SingleStack:
    """The same with windows that reach as far ahead as back."""
    wide = tuple(
        block.edit(Attention, window=(block.attention.window[0],) * 2)
        if isinstance(block.attention, Attention) and block.attention.window
        else block
        for block in spec.tower.pattern
    )
    return spec.edit(Tower, block=wide if len(wide) > 1 else wide[0])


def weights(c: Config, task: HeadKind) -> Table:
    theirs, ours = "model.layers.{i}.self_attn.", "tower.blocks.{i}.attn."
    norms = tuple(Name(f"{theirs}{x}_norm.weight", f"{ours}{x}_norm.weight") for x in "qk")
    return gemma2.weights(c, task) + norms


FAMILY = replace(
    gemma2.FAMILY,
    name="gemma3",
    model_type="gemma3_text",
    title="Gemma 3",
    also=("EmbeddingGemma",),
    year=2025,
    paper="https://arxiv.org/abs/2503.19786",
    spec=spec,
    weights=weights,
    parent="gemma2",
    architectures={
        "tokens": "Gemma3ForCausalLM", "labels": "Gemma3TextForSequenceClassification",
        "hidden": "Gemma3TextModel",
    },
    defaults={
        **gemma2.FAMILY.defaults, "vocab_size": 262208, "max_position_embeddings": 131072,
        "attn_logit_softcapping": None, "final_logit_softcapping": None,
        "use_bidirectional_attention": False,
        # Their bases are in `spec`: older files have a key beside these for one of them.
        "rope_parameters": {
            "full_attention": {"rope_type": "default"}, "sliding_attention": {"rope_type": "default"},
        },
    },
    sizes={
        "gemma3-270m": {
            "vocab_size": 262144, "hidden_size": 640, "intermediate_size": 2048, "num_hidden_layers": 18,
            "num_attention_heads": 4, "num_key_value_heads": 1, "max_position_embeddings": 32768,
            "sliding_window": 512,
        },
        "gemma3-1b": {
            "vocab_size": 262144, "hidden_size": 1152, "intermediate_size": 6912, "num_attention_heads": 4,
            "num_key_value_heads": 1, "max_position_embeddings": 32768, "sliding_window": 512,
        },
    },
)  # fmt: skip
