"""Falcon (Almazrouei 2023): attention and feed-forward side by side, keys that several heads share.

7B has one key and one norm, 40B a key for each group of heads and two norms; the RW models are as BLOOM.
"""

from ...errors import SpecError
from ...nn import (
    MLP,
    Alibi,
    Attention,
    Block,
    BlockOrder,
    Normal,
    SingleStack,
    Softmax,
    TokenHead,
    Tokens,
    Tower,
)
from ...nn.norm import Layer
from ...weights import Fused, Ignore, Name, Table
from ..family import Config, Family, HeadKind
from ..shared import activation, decoder_head, decoder_head_rules, rope


def spec(c: Config, task: HeadKind) -> SingleStack:
    norm = Layer(eps=c["layer_norm_epsilon"])
    width, heads = c["hidden_size"], c["num_attention_heads"]
    # Theirs rounds the penalties to bfloat16, and divides them like the scores.
    alibi = Alibi(scale=max(width // heads, 1) ** -0.5, number="bfloat16")
    return SingleStack(
        tower=Tower(
            width=width,
            depth=c["num_hidden_layers"],
            causal=True,
            embed=Tokens(vocab=c["vocab_size"]),
            positions=alibi if c["alibi"] else rope(c),
            block=Block(
                attention=Attention(
                    heads=heads,
                    kv_heads=_keys(c),
                    bias="qkvo" if c["bias"] else "",
                    # Theirs drops no weights where queries are rotated.
                    kernel=Softmax(dropout=(c["attention_dropout"] or 0.0) if c["alibi"] else 0.0),
                ),
                norm=norm,
                order=_order(c),
                feedforward=MLP(
                    hidden=c["ffn_hidden_size"] or 4 * width, act=activation(c["activation"]), bias=c["bias"]
                ),
                dropout=c["hidden_dropout"] or 0.0,
            ),
            last_norm=norm,
        ),
        head=decoder_head(c, task, TokenHead(vocab=c["vocab_size"], tied=c["tie_word_embeddings"])),
        init=Normal(std=c["initializer_range"]),
    )


def _keys(c: Config) -> int:
    """How many keys there are; each is shared by as many heads."""
    heads: int = c["num_attention_heads"]
    if c["new_decoder_architecture"]:
        keys = int(c["num_kv_heads"] or heads)
        if keys < 1 or heads % keys:
            raise SpecError(f"num_kv_heads is {keys}; expected a divisor of num_attention_heads, {heads}")
        return keys
    if not c["multi_query"] and c["num_kv_heads"] not in (None, heads):
        raise SpecError(f"num_kv_heads is {c['num_kv_heads']}; without multi_query expected {heads}, or null")
    return 1 if c["multi_query"] else heads


def _order(c: Config) -> BlockOrder:
    new, norms = c["new_decoder_architecture"], c["num_ln_in_parallel_attn"]
    if not c["parallel_attn"]:
        if new:
            raise SpecError("parallel_attn is false; only true can be built with new_decoder_architecture")
        return "pre"
    norms = norms or (2 if new else 1)
    if norms not in (1, 2) or (norms == 2 and not new):
        raise SpecError(f"num_ln_in_parallel_attn is {norms}; expected 1, or 2 with new_decoder_architecture")
    return "parallel" if norms == 2 else "parallel-shared"


def weights(c: Config, task: HeadKind) -> Table:
    theirs, ours = "transformer.h.{i}.", "tower.blocks.{i}."
    qkv = tuple(f"{ours}attn.{x}.{{p}}" for x in "qkv")
    keys = _keys(c)
    first = "ln_attn" if _order(c) == "parallel" else "input_layernorm"
    second = "ln_mlp" if _order(c) == "parallel" else "post_attention_layernorm"
    sizes = (c["num_attention_heads"] // keys, 1, 1)
    return (
        Name("transformer.word_embeddings.weight", "tower.embed.table.weight"),
        Name(f"{theirs}{first}.{{p}}", ours + "attn_norm.{p}"),
        Name(f"{theirs}{second}.{{p}}", ours + "ff_norm.{p}"),
        Fused(theirs + "self_attention.query_key_value.{p}", qkv, per_head=keys, sizes=sizes),
        Name(theirs + "self_attention.dense.{p}", ours + "attn.out.{p}"),
        Name(theirs + "mlp.dense_h_to_4h.{p}", ours + "ff.up.{p}"),
        Name(theirs + "mlp.dense_4h_to_h.{p}", ours + "ff.down.{p}"),
        Name("transformer.ln_f.{p}", "tower.norm.{p}"),
        *decoder_head_rules(c, task, "lm_head.weight", tags="classifier"),
        Ignore(theirs + "self_attention.rotary_emb.inv_freq", "rotary frequencies"),
    )


FAMILY = Family(
    name="falcon",
    title="Falcon",
    year=2023,
    paper="https://arxiv.org/abs/2311.16867",
    mode="causal",
    uses="continuation, dialogue",
    spec=spec,
    weights=weights,
    prefix="transformer.",
    parent="gptj",
    architectures={
        "tokens": "FalconForCausalLM", "labels": "FalconForSequenceClassification",
        "tags": "FalconForTokenClassification", "span": "FalconForQuestionAnswering", "hidden": "FalconModel",
    },
    defaults={
        "vocab_size": 65024, "hidden_size": 4544, "num_hidden_layers": 32, "num_attention_heads": 71,
        "num_ln_in_parallel_attn": None, "layer_norm_epsilon": 1e-5, "initializer_range": 0.02,
        "hidden_dropout": 0.0, "attention_dropout": 0.0, "num_kv_heads": None, "alibi": False,
        "new_decoder_architecture": False, "multi_query": True, "parallel_attn": True, "bias": False,
        "max_position_embeddings": 2048, "ffn_hidden_size": None, "activation": "gelu",
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}, "tie_word_embeddings": True,
        "bos_token_id": 11, "eos_token_id": 11,
    },
    sizes={
        "falcon-rw-1b": {
            "vocab_size": 50304, "hidden_size": 2048, "num_hidden_layers": 24, "num_attention_heads": 32,
            "alibi": True, "multi_query": False, "parallel_attn": False, "bias": True, "bos_token_id": 1,
            "eos_token_id": 2,
        },
        "falcon-7b": {},
        "falcon-40b": {
            "hidden_size": 8192, "num_hidden_layers": 60, "num_attention_heads": 128, "num_kv_heads": 8,
            "new_decoder_architecture": True, "tie_word_embeddings": False,
        },
    },
)  # fmt: skip
