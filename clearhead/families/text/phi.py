"""Phi-1, 1.5 and 2 (Gunasekar 2023): one norm for attention and feed-forward side by side, half of each head
rotated, biases everywhere."""

from ...nn import MLP, Attention, Block, Normal, SingleStack, Softmax, TokenHead, Tokens, Tower
from ...nn.norm import Layer
from ...weights import Ignore, Name, Table
from ..family import Config, Family, HeadKind
from ..shared import activation, decoder_head, decoder_head_rules, rope


def spec(c: Config, task: HeadKind) -> SingleStack:
    norm = Layer(eps=c["layer_norm_eps"])
    factor = c["rope_parameters"].get("partial_rotary_factor")
    fraction = c.get("partial_rotary_factor", 0.5) if factor is None else factor
    head = TokenHead(vocab=c["vocab_size"], tied=c["tie_word_embeddings"], bias=True)
    return SingleStack(
        tower=Tower(
            width=c["hidden_size"],
            depth=c["num_hidden_layers"],
            causal=True,
            embed=Tokens(vocab=c["vocab_size"], dropout=c["embd_pdrop"]),
            positions=rope(c, fraction=fraction),
            block=Block(
                attention=Attention(
                    heads=c["num_attention_heads"],
                    kv_heads=c["num_key_value_heads"],
                    bias="qkvo",
                    qk_norm=norm if c["qk_layernorm"] else None,
                    kernel=Softmax(dropout=c["attention_dropout"] or 0.0),
                ),
                norm=norm,
                order="parallel-shared",
                feedforward=MLP(hidden=c["intermediate_size"], act=activation(c["hidden_act"])),
                dropout=c["resid_pdrop"],
            ),
            last_norm=norm,
        ),
        head=decoder_head(c, task, head),
        init=Normal(std=c["initializer_range"]),
    )


def weights(c: Config, task: HeadKind) -> Table:
    theirs, ours = "model.layers.{i}.", "tower.blocks.{i}."
    return (
        Name("model.embed_tokens.weight", "tower.embed.table.weight"),
        Name(theirs + "input_layernorm.{p}", ours + "attn_norm.{p}"),
        *(Name(f"{theirs}self_attn.{x}_proj.{{p}}", f"{ours}attn.{x}.{{p}}") for x in "qkv"),
        *(Name(f"{theirs}self_attn.{x}_layernorm.{{p}}", f"{ours}attn.{x}_norm.{{p}}") for x in "qk"),
        Name(theirs + "self_attn.dense.{p}", ours + "attn.out.{p}"),
        Name(theirs + "mlp.fc1.{p}", ours + "ff.up.{p}"),
        Name(theirs + "mlp.fc2.{p}", ours + "ff.down.{p}"),
        Name("model.final_layernorm.{p}", "tower.norm.{p}"),
        *decoder_head_rules(c, task, "lm_head.weight"),
        Ignore(theirs + "self_attn.rotary_emb.inv_freq", "rotary frequencies"),
    )


PHI1 = {"partial_rotary_factor": 0.5, "rope_theta": 10000.0, "rope_type": "default"}

FAMILY = Family(
    name="phi",
    title="Phi",
    year=2023,
    paper="https://arxiv.org/abs/2306.11644",
    mode="causal",
    uses="continuation, programs",
    spec=spec,
    weights=weights,
    prefix="model.",
    parent="gptj",
    architectures={
        "tokens": "PhiForCausalLM", "labels": "PhiForSequenceClassification",
        "tags": "PhiForTokenClassification", "hidden": "PhiModel",
    },
    defaults={
        "vocab_size": 51200, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 24,
        "num_attention_heads": 32, "num_key_value_heads": None, "resid_pdrop": 0.0, "embd_pdrop": 0.0,
        "attention_dropout": 0.0, "hidden_act": "gelu_new", "max_position_embeddings": 2048,
        "initializer_range": 0.02, "layer_norm_eps": 1e-5, "tie_word_embeddings": False,
        "rope_parameters": PHI1, "qk_layernorm": False, "bos_token_id": 1, "eos_token_id": 2,
    },
    sizes={
        "phi-1": {},
        "phi-2": {
            "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 32,
            "rope_parameters": {**PHI1, "partial_rotary_factor": 0.4}, "bos_token_id": 50256,
            "eos_token_id": 50256,
        },
    },
)  # fmt: skip
