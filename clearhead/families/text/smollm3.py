"""SmolLM 3 (Bakouch 2025): LLaMA without rotation in every fourth layer."""

from dataclasses import replace

from ...errors import SpecError
from ...nn import Attention, Block, NoPositions, SingleStack, Tower
from ..family import Config, HeadKind
from ..shared import decoder_classes, one_or_all, rope
from . import llama


def spec(c: Config, task: HeadKind) -> SingleStack:
    base = llama.spec(c, task)
    assert isinstance(base.tower.block, Block)
    rotated, types = _layers(c)
    window = c["sliding_window"]
    blocks = []
    for turns, kind in zip(rotated, types, strict=True):
        block = base.tower.block if turns else replace(base.tower.block, positions=NoPositions())
        sliding = kind == "sliding_attention" and window
        # Theirs counts the token itself, ours only the tokens before it.
        blocks.append(block.edit(Attention, window=(window - 1, 0)) if sliding else block)
    return base.edit(Tower, block=one_or_all(blocks), positions=rope(c, theta=2000000.0))


def _layers(c: Config) -> tuple[list[int], list[str]]:
    """Whether each layer rotates, and its type; layers that do may have a window only if they say so."""
    depth, every = c["num_hidden_layers"], c["no_rope_layer_interval"]
    if every < 1:
        raise SpecError(f"no_rope_layer_interval is {every}, expected 1 or more")
    rotated = c["no_rope_layers"] or [int((i + 1) % every != 0) for i in range(depth)]
    window = c["use_sliding_window"] and c["sliding_window"]
    types = c.get("layer_types") or [
        "sliding_attention" if window and not turns else "full_attention" for turns in rotated
    ]
    for key, values in (("no_rope_layers", rotated), ("layer_types", types)):
        if len(values) != depth:
            raise SpecError(f"{key} has {len(values)} entries for {depth} layers; give one for each")
    return rotated, types


FAMILY = replace(
    llama.FAMILY,
    name="smollm3",
    title="SmolLM 3",
    year=2025,
    paper="https://huggingface.co/blog/smollm3",
    spec=spec,
    parent="llama",
    architectures=decoder_classes("SmolLM3"),
    defaults={
        **llama.DEFAULTS, "vocab_size": 128256, "hidden_size": 2048, "num_hidden_layers": 36,
        "num_attention_heads": 16, "num_key_value_heads": 4, "max_position_embeddings": 32768,
        "use_sliding_window": False, "layer_types": None,
        "sliding_window": None, "no_rope_layers": None,
        "no_rope_layer_interval": 4, "tie_word_embeddings": True, "bos_token_id": 128000,
        "eos_token_id": 128001, "pad_token_id": 128004,
        "rope_parameters": {"rope_type": "default", "rope_theta": 2000000.0},
    },
    sizes={
        "smollm3-3b": {
            "max_position_embeddings": 65536,
            "rope_parameters": {"rope_type": "default", "rope_theta": 5000000.0},
        },
    },
)  # fmt: skip
