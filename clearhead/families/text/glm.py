"""GLM-4 (Zeng 2024): LLaMA with half of each head rotated, biases on q, k and v, gate and up fused."""

from dataclasses import replace

from ...nn import Attention, Rope, SingleStack, Tower
from ...weights import Fused, Table
from ..family import Config, HeadKind
from ..shared import decoder_classes, override, partial_rotary, rope
from . import llama


def spec(c: Config, task: HeadKind) -> SingleStack:
    return (
        llama.spec(c, task)
        .edit(Tower, positions=rope(c, fraction=partial_rotary(c, default=0.5)))
        .edit(Rope, pairing="neighbours")
        .edit(Attention, bias="qkv" if c["attention_bias"] else "")
    )


def weights(c: Config, task: HeadKind) -> Table:
    ours = "tower.blocks.{i}.ff."
    own = Fused("model.layers.{i}.mlp.gate_up_proj.{p}", (ours + "gate.{p}", ours + "up.{p}"))
    return override(llama.weights(c, task), (own,))


FAMILY = replace(
    llama.FAMILY,
    name="glm",
    title="GLM-4",
    year=2024,
    paper="https://arxiv.org/abs/2406.12793",
    spec=spec,
    weights=weights,
    parent="llama",
    head_prefix={},
    architectures=decoder_classes("Glm", "span"),
    defaults={
        **{key: value for key, value in llama.DEFAULTS.items() if key != "mlp_bias"}, "vocab_size": 151552,
        "intermediate_size": 13696, "num_hidden_layers": 40, "num_key_value_heads": 2, "head_dim": 128,
        "max_position_embeddings": 131072, "rms_norm_eps": 0.00000015625, "attention_bias": True,
        "bos_token_id": None, "eos_token_id": [151329, 151336, 151338], "pad_token_id": 151329,
    },
    sizes={"glm4-9b": {}},
)  # fmt: skip
