"""OPT (Zhang 2022): GPT-3 rebuilt in the open, with ReLU and BART's positions, which start at 2."""

from ...nn import (
    MLP,
    Attention,
    Block,
    Learned,
    Normal,
    SingleStack,
    Softmax,
    TokenHead,
    Tokens,
    Tower,
)
from ...nn.norm import Layer, NonParametric
from ...weights import Name, Table
from ..family import Config, Family, HeadKind
from ..shared import activation, decoder_head, decoder_head_rules


def spec(c: Config, task: HeadKind) -> SingleStack:
    norm = Layer() if c["layer_norm_elementwise_affine"] else NonParametric()
    width, pre = c["hidden_size"], c["do_layer_norm_before"]
    narrow = c["word_embed_proj_dim"] if c["word_embed_proj_dim"] not in (None, width) else None
    vocab = c["vocab_size"]
    return SingleStack(
        tower=Tower(
            width=width,
            depth=c["num_hidden_layers"],
            causal=True,
            embed=Tokens(vocab=vocab, factor=narrow, order="project-positions-norm-dropout"),
            positions=Learned(length=c["max_position_embeddings"], offset=2),
            block=Block(
                attention=Attention(
                    heads=c["num_attention_heads"],
                    bias="qkvo" if c["enable_bias"] else "",
                    kernel=Softmax(dropout=c["attention_dropout"]),
                ),
                norm=norm,
                order="pre" if pre else "post",
                feedforward=MLP(
                    hidden=c["ffn_dim"], act=activation(c["activation_function"]), bias=c["enable_bias"]
                ),
                dropout=c["dropout"],
            ),
            last_norm=norm if pre and not c["_remove_final_layer_norm"] else None,
            last_width=narrow,
        ),
        head=decoder_head(c, task, TokenHead(vocab=vocab, tied=c["tie_word_embeddings"])),
        init=Normal(std=c["init_std"]),
    )


def weights(c: Config, task: HeadKind) -> Table:
    theirs, ours = "model.decoder.layers.{i}.", "tower.blocks.{i}."
    return (
        Name("model.decoder.embed_tokens.weight", "tower.embed.table.weight"),
        Name("model.decoder.project_in.weight", "tower.embed.project.weight"),
        Name("model.decoder.project_out.weight", "tower.project.weight"),
        Name("model.decoder.embed_positions.weight", "tower.positions.table.weight"),
        Name(theirs + "self_attn_layer_norm.{p}", ours + "attn_norm.{p}"),
        *(Name(f"{theirs}self_attn.{x}_proj.{{p}}", f"{ours}attn.{x}.{{p}}") for x in ("q", "k", "v", "out")),
        Name(theirs + "final_layer_norm.{p}", ours + "ff_norm.{p}"),
        Name(theirs + "fc1.{p}", ours + "ff.up.{p}"),
        Name(theirs + "fc2.{p}", ours + "ff.down.{p}"),
        Name("model.decoder.final_layer_norm.{p}", "tower.norm.{p}"),
        *decoder_head_rules(c, task, "lm_head.weight"),
    )


FAMILY = Family(
    name="opt",
    title="OPT",
    year=2022,
    paper="https://arxiv.org/abs/2205.01068",
    mode="causal",
    uses="continuation",
    spec=spec,
    weights=weights,
    prefix="model.",
    parent="gpt2",
    architectures={
        "tokens": "OPTForCausalLM", "labels": "OPTForSequenceClassification",
        "span": "OPTForQuestionAnswering", "hidden": "OPTModel",
    },
    defaults={
        "vocab_size": 50272, "hidden_size": 768, "num_hidden_layers": 12, "ffn_dim": 3072,
        "max_position_embeddings": 2048, "do_layer_norm_before": True, "_remove_final_layer_norm": False,
        "word_embed_proj_dim": None, "dropout": 0.1, "attention_dropout": 0.0, "num_attention_heads": 12,
        "activation_function": "relu", "init_std": 0.02, "enable_bias": True,
        "layer_norm_elementwise_affine": True, "tie_word_embeddings": True, "pad_token_id": 1,
        "bos_token_id": 2, "eos_token_id": 2,
    },
    sizes={
        "opt-125m": {},
        "opt-350m": {
            "hidden_size": 1024, "num_hidden_layers": 24, "ffn_dim": 4096, "num_attention_heads": 16,
            "word_embed_proj_dim": 512, "do_layer_norm_before": False,
        },
        "opt-1.3b": {
            "hidden_size": 2048, "num_hidden_layers": 24, "ffn_dim": 8192, "num_attention_heads": 32,
        },
        "opt-2.7b": {
            "hidden_size": 2560, "num_hidden_layers": 32, "num_attention_heads": 32, "ffn_dim": 10240,
        },
        "opt-6.7b": {
            "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "ffn_dim": 16384,
        },
        "opt-13b": {
            "hidden_size": 5120, "num_hidden_layers": 40, "num_attention_heads": 40, "ffn_dim": 20480,
        },
        "opt-30b": {
            "hidden_size": 7168, "num_hidden_layers": 48, "num_attention_heads": 56, "ffn_dim": 28672,
        },
        "opt-66b": {
            "hidden_size": 9216, "num_hidden_layers": 64, "ffn_dim": 36864, "num_attention_heads": 72,
        },
    },
)  # fmt: skip
