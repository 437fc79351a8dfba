"""DeepSeek V2 and V3 (DeepSeek-AI 2024): latent attention, and many small experts beside shared ones."""

from dataclasses import replace
from typing import Any

from ...errors import SpecError
from ...nn import Attention, ExpertGroups, Experts, Gated, Latent, Rope, Router, SingleStack
from ...nn.norm import RMS
from ...weights import Ignore, Name, Table
from ..family import Config, HeadKind
from ..shared import activation, expert_rules, with_experts, yarn_amplitude
from . import llama


def v2_spec(c: Config, task: HeadKind) -> SingleStack:
    if c["topk_method"] not in ("greedy", "group_limited_greedy"):
        raise SpecError(f"topk_method is {c['topk_method']!r}, expected greedy or group_limited_greedy")
    limited = c["topk_method"] == "group_limited_greedy"
    router = Router(
        chosen=c["num_experts_per_tok"] or 6,  # no default of theirs: what all published models have
        normalised=False,
        scale=c["routed_scaling_factor"],
        groups=ExpertGroups(count=c["n_group"], chosen=c["topk_group"]) if limited else None,
    )
    return _spec(c, task, router).edit(Rope, pairing="neighbours")


def v3_spec(c: Config, task: HeadKind) -> SingleStack:
    router = Router(
        chosen=c["num_experts_per_tok"],
        scores="sigmoid",
        normalised=c["norm_topk_prob"],
        scale=c["routed_scaling_factor"],
        balanced=True,
        groups=ExpertGroups(count=c["n_group"], chosen=c["topk_group"], best=2),
    )
    return _spec(c, task, router).edit(Rope, pairing="neighbours" if c["rope_interleave"] else "halves")


def _spec(c: Config, task: HeadKind, router: Router) -> SingleStack:
    if c["num_key_value_heads"] not in (None, c["num_attention_heads"]):
        raise SpecError("num_key_value_heads must be num_attention_heads: latent attention has keys for each")
    if c.get("head_dim") not in (None, c["qk_rope_head_dim"]):
        raise SpecError(
            f"head_dim is {c['head_dim']}; only qk_rope_head_dim, {c['qk_rope_head_dim']}, is known"
        )
    head_dim, rope = c["qk_nope_head_dim"] + c["qk_rope_head_dim"], c["rope_parameters"]
    all_dim = rope.get("mscale_all_dim") if rope.get("rope_type", "default") != "default" else None
    stretched = yarn_amplitude(rope, all_dim) if all_dim else 1.0
    latent = Latent(
        rank=c["kv_lora_rank"],
        query_rank=c["q_lora_rank"],
        rotated=c["qk_rope_head_dim"],
        norm=RMS(),  # with its own eps, whatever rms_norm_eps is
        bias=c["attention_bias"],
    )
    act, hidden = activation(c["hidden_act"]), c["moe_intermediate_size"]
    experts = Experts(
        count=c["n_routed_experts"],
        expert=Gated(hidden=hidden, act=act),
        router=router,
        shared=Gated(hidden=hidden * c["n_shared_experts"], act=act, bias=c.get("mlp_bias", False)),
    )
    dense = llama.spec(Config({"mlp_bias": False, **c, "head_dim": None}), task).edit(
        Attention,
        kv_heads=None,
        head_dim=head_dim,
        value_dim=c["v_head_dim"],
        bias="o" if c["attention_bias"] else "",
        scale=head_dim**-0.5 * stretched**2,
        project=latent,
    )
    return with_experts(
        dense, experts, [i >= c["first_k_dense_replace"] for i in range(c["num_hidden_layers"])]
    )


def weights(c: Config, task: HeadKind) -> Table:
    names = {x: f"{x}_proj" for x in ("gate", "up", "down")}
    attn, mlp = "model.layers.{i}.self_attn.", "model.layers.{i}.mlp."
    ours = "tower.blocks.{i}."
    query = {"q_a_proj": "q_down", "q_a_layernorm": "q_down_norm", "q_b_proj": "q"}
    latent = {"kv_a_proj_with_mqa": "kv_down", "kv_a_layernorm": "kv_down_norm", "kv_b_proj": "kv_up"}
    plain = {"q_proj": "q"} if c["q_lora_rank"] is None else query
    return (
        # Published checkpoints of V3 end with a layer that predicts one more token.
        Ignore(f"model.layers.{c['num_hidden_layers']}.{{rest}}", "multi-token prediction"),
        *(rule for rule in llama.weights(c, task) if not _replaced(rule.theirs)),
        *(Name(f"{attn}{them}.{{p}}", f"{ours}attn.{us}.{{p}}") for them, us in (plain | latent).items()),
        *expert_rules(mlp, names, router="gate.{p}"),
        Name(mlp + "gate.e_score_correction_bias", ours + "ff.router.balance"),
        *(Name(f"{mlp}shared_experts.{names[x]}.{{p}}", f"{ours}ff.shared.{x}.{{p}}") for x in names),
    )


def _replaced(name: str) -> bool:
    return name.endswith(("q_proj.{p}", "k_proj.{p}", "v_proj.{p}"))


DEFAULTS: dict[str, Any] = {
    "vocab_size": 102400, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": None, "head_dim": None, "hidden_act": "silu",
    "max_position_embeddings": 2048, "initializer_range": 0.02, "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False, "attention_bias": False, "attention_dropout": 0.0, "mlp_bias": False,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}, "first_k_dense_replace": 0,
    "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "v_head_dim": 128, "n_routed_experts": 64, "n_shared_experts": 2, "num_experts_per_tok": None,
    "moe_intermediate_size": 1407, "routed_scaling_factor": 1.0, "n_group": None, "topk_group": None,
    "topk_method": "greedy", "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
YARN = {
    "rope_type": "yarn", "rope_theta": 10000.0, "factor": 40.0, "beta_fast": 32.0, "beta_slow": 1.0,
    "original_max_position_embeddings": 4096,
}  # fmt: skip
DEEPSEEK_V2 = replace(
    llama.FAMILY,
    name="deepseek_v2",
    title="DeepSeek V2",
    year=2024,
    paper="https://arxiv.org/abs/2405.04434",
    spec=v2_spec,
    weights=weights,
    names_of_experts=frozenset({"gate_proj", "up_proj", "down_proj"}),
    parent="llama",
    no_size_words=frozenset({"head_dim"}),  # theirs is the width of what is rotated
    architectures={
        "tokens": "DeepseekV2ForCausalLM", "labels": "DeepseekV2ForSequenceClassification",
        "hidden": "DeepseekV2Model",
    },
    defaults=DEFAULTS,
    only={"scoring_func": "softmax", "norm_topk_prob": False, "moe_layer_freq": 1},
    sizes={
        "deepseek-v2-lite": {
            "hidden_size": 2048, "intermediate_size": 10944, "num_hidden_layers": 27,
            "num_attention_heads": 16, "q_lora_rank": None, "moe_intermediate_size": 1408,
            "num_experts_per_tok": 6, "first_k_dense_replace": 1, "max_position_embeddings": 163840,
            "rope_parameters": {**YARN, "mscale": 0.707, "mscale_all_dim": 0.707},
        },
        "deepseek-v2": {
            "hidden_size": 5120, "intermediate_size": 12288, "num_hidden_layers": 60,
            "num_attention_heads": 128, "moe_intermediate_size": 1536, "n_routed_experts": 160,
            "num_experts_per_tok": 6, "first_k_dense_replace": 1, "max_position_embeddings": 163840,
            "routed_scaling_factor": 16.0, "topk_method": "group_limited_greedy", "n_group": 8,
            "topk_group": 3, "rope_parameters": {**YARN, "mscale": 0.707, "mscale_all_dim": 0.707},
        },
    },
)  # fmt: skip
DEEPSEEK_V3 = replace(
    DEEPSEEK_V2,
    name="deepseek_v3",
    title="DeepSeek V3",
    also=("DeepSeek R1",),
    paper="https://arxiv.org/abs/2412.19437",
    spec=v3_spec,
    parent="deepseek_v2",
    architectures={
        "tokens": "DeepseekV3ForCausalLM", "labels": "DeepseekV3ForSequenceClassification",
        "tags": "DeepseekV3ForTokenClassification", "hidden": "DeepseekV3Model",
    },
    defaults={key: value for key, value in DEFAULTS.items() if key not in ("mlp_bias", "topk_method")} | {
        "vocab_size": 129280, "hidden_size": 7168, "intermediate_size": 18432, "num_hidden_layers": 61,
        "num_attention_heads": 128, "num_key_value_heads": 128, "max_position_embeddings": 4096,
        "first_k_dense_replace": 3, "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8,
        "moe_intermediate_size": 2048, "routed_scaling_factor": 2.5, "n_group": 8, "topk_group": 4,
        "norm_topk_prob": True, "rope_interleave": True, "bos_token_id": 0, "eos_token_id": 1,
    },
    only={"scoring_func": "sigmoid", "topk_method": "noaux_tc", "moe_layer_freq": 1},
    sizes={
        "deepseek-v3": {
            "max_position_embeddings": 163840,
            "rope_parameters": {**YARN, "mscale": 1.0, "mscale_all_dim": 1.0},
        },
    },
)  # fmt: skip
