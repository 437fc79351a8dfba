"""gpt-oss (OpenAI 2025): experts with clipped gates, attention sinks, a window in every other layer."""

from dataclasses import replace

from ...errors import SpecError
from ...nn import Experts, Gated, Router, SingleStack, Softmax, Tower
from ...weights import Name, Stacked, Table
from ..family import Config, HeadKind
from ..shared import blocks_by_layer_type, decoder_classes, with_experts
from . import llama


def spec(c: Config, task: HeadKind) -> SingleStack:
    if c["swiglu_alpha"] != 1.702:
        raise SpecError(f"swiglu_alpha is {c['swiglu_alpha']}; only 1.702 (quick_gelu) can be built here")
    experts = Experts(
        count=c["num_local_experts"],
        expert=Gated(hidden=c["intermediate_size"], act="quick_gelu", bias=True, limit=c["swiglu_limit"]),
        router=Router(chosen=c["num_experts_per_tok"], bias=True),
    )
    base = llama.spec(Config({"mlp_bias": False, **c}), task).edit(Softmax, sink=True)
    alternating = [("sliding_attention", "full_attention")[i % 2] for i in range(c["num_hidden_layers"])]
    config = Config({**c, "layer_types": c.get("layer_types") or alternating})
    blocks = blocks_by_layer_type(base.tower.pattern[0], config, c["sliding_window"])
    return with_experts(base.edit(Tower, block=blocks), experts, [True] * c["num_hidden_layers"])


def weights(c: Config, task: HeadKind) -> Table:
    theirs, ours = "model.layers.{i}.mlp.", "tower.blocks.{i}.ff."
    expert, experts = ours + "experts.{e}.", theirs + "experts."
    dense = tuple(rule for rule in llama.weights(c, task) if ".mlp." not in rule.theirs)
    gate_up = ("gate", "up")
    return (
        *dense,
        Name("model.layers.{i}.self_attn.sinks", "tower.blocks.{i}.attn.kernel.sink"),
        Name(theirs + "router.{p}", ours + "router.linear.{p}"),
        Stacked(experts + "gate_up_proj", tuple(f"{expert}{x}.weight" for x in gate_up), transpose=True),
        Stacked(experts + "gate_up_proj_bias", tuple(f"{expert}{x}.bias" for x in gate_up)),
        Stacked(experts + "down_proj", (expert + "down.weight",), transpose=True),
        Stacked(experts + "down_proj_bias", (expert + "down.bias",)),
    )


FAMILY = replace(
    llama.FAMILY,
    name="gpt_oss",
    title="gpt-oss",
    year=2025,
    paper="https://arxiv.org/abs/2508.10925",
    spec=spec,
    weights=weights,
    parent="llama",
    architectures=decoder_classes("GptOss", "span"),
    defaults={
        "vocab_size": 201088, "hidden_size": 2880, "intermediate_size": 2880, "num_hidden_layers": 36,
        "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64, "attention_bias": True,
        "hidden_act": "silu", "max_position_embeddings": 131072, "initializer_range": 0.02,
        "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "attention_dropout": 0.0, "layer_types": None,
        "sliding_window": 128,
        "num_local_experts": 128, "num_experts_per_tok": 4, "swiglu_alpha": 1.702, "swiglu_limit": 7.0,
        "rope_parameters": {
            "rope_type": "yarn", "rope_theta": 150000.0, "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
            "truncate": False, "original_max_position_embeddings": 4096,
        },
        "bos_token_id": None, "eos_token_id": None,
    },
    sizes={"gpt-oss-20b": {"num_hidden_layers": 24, "num_local_experts": 32}, "gpt-oss-120b": {}},
)  # fmt: skip
