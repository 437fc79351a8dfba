"""GPT-J and CodeGen (Wang 2021, Nijkamp 2022): one norm for attention and feed-forward side by side, part of
each head rotated in neighbouring channels, and a head with a bias."""

from dataclasses import replace

from ...errors import SpecError
from ...nn import MLP, Attention, Block, Normal, Rope, SingleStack, Softmax, TokenHead, Tokens, Tower
from ...nn.norm import Layer
from ...weights import Fused, Ignore, Name, Table
from ..family import Config, Family, HeadKind
from ..shared import activation, decoder_head, decoder_head_rules, rotary_fraction

CORES = 4  # CodeGen was trained on this many: queries, values and keys alternate in as many groups of heads


def spec(c: Config, task: HeadKind) -> SingleStack:
    norm = Layer(eps=c["layer_norm_epsilon"])
    head_dim = max(c["n_embd"] // c["n_head"], 1)
    if not 0 < c["rotary_dim"] <= head_dim:
        raise SpecError(f"rotary_dim is {c['rotary_dim']}; expected at most a head, {head_dim} channels")
    head = TokenHead(vocab=c["vocab_size"], tied=c["tie_word_embeddings"], bias=True)
    return SingleStack(
        tower=Tower(
            width=c["n_embd"],
            depth=c["n_layer"],
            causal=True,
            embed=Tokens(vocab=c["vocab_size"], dropout=c["embd_pdrop"]),
            positions=Rope(fraction=rotary_fraction(c["rotary_dim"], head_dim), pairing="neighbours"),
            block=Block(
                attention=Attention(heads=c["n_head"], kernel=Softmax(dropout=c["attn_pdrop"])),
                norm=norm,
                order="parallel-shared",
                feedforward=MLP(
                    hidden=c["n_inner"] or 4 * c["n_embd"], act=activation(c["activation_function"])
                ),
                dropout=c["resid_pdrop"],
            ),
            last_norm=norm,
        ),
        head=decoder_head(c, task, head),
        init=Normal(std=c["initializer_range"]),
    )


def codegen_spec(c: Config, task: HeadKind) -> SingleStack:
    if c["n_head"] % CORES:
        raise SpecError(f"n_head is {c['n_head']}; CodeGen needs a multiple of {CORES}")
    return spec(c, task)


def weights(c: Config, task: HeadKind) -> Table:
    theirs, ours = "transformer.h.{i}.attn.", "tower.blocks.{i}.attn."
    return (
        *(Name(f"{theirs}{x}_proj.weight", f"{ours}{x}.weight") for x in "qkv"),
        *_rules(c, task),
    )


def codegen_weights(c: Config, task: HeadKind) -> Table:
    qvk = tuple(f"tower.blocks.{{i}}.attn.{x}.weight" for x in "qvk")
    return (
        Fused("transformer.h.{i}.attn.qkv_proj.weight", qvk, per_head=CORES),
        Ignore("transformer.h.{i}.attn.causal_mask", "a causal mask"),
        *_rules(c, task),
    )


def _rules(c: Config, task: HeadKind) -> Table:
    theirs, ours = "transformer.h.{i}.", "tower.blocks.{i}."
    return (
        Name("transformer.wte.weight", "tower.embed.table.weight"),
        Name(theirs + "ln_1.{p}", ours + "attn_norm.{p}"),
        Name(theirs + "attn.out_proj.weight", ours + "attn.out.weight"),
        Name(theirs + "mlp.fc_in.{p}", ours + "ff.up.{p}"),
        Name(theirs + "mlp.fc_out.{p}", ours + "ff.down.{p}"),
        Name("transformer.ln_f.{p}", "tower.norm.{p}"),
        *decoder_head_rules(c, task, "lm_head.weight"),
        Ignore(theirs + "attn.bias", "a causal mask"),
        Ignore(theirs + "attn.masked_bias", "a constant"),
    )


FAMILY = Family(
    name="gptj",
    title="GPT-J",
    year=2021,
    paper="https://github.com/kingoflolz/mesh-transformer-jax",
    mode="causal",
    uses="continuation",
    spec=spec,
    weights=weights,
    prefix="transformer.",
    parent="gpt2",
    architectures={
        "tokens": "GPTJForCausalLM", "labels": "GPTJForSequenceClassification",
        "span": "GPTJForQuestionAnswering", "hidden": "GPTJModel",
    },
    defaults={
        "vocab_size": 50400, "n_positions": 2048, "n_embd": 4096, "n_layer": 28, "n_head": 16,
        "rotary_dim": 64, "n_inner": None, "activation_function": "gelu_new", "resid_pdrop": 0.0,
        "embd_pdrop": 0.0, "attn_pdrop": 0.0, "layer_norm_epsilon": 1e-5, "initializer_range": 0.02,
        "tie_word_embeddings": False, "bos_token_id": 50256, "eos_token_id": 50256,
    },
    sizes={"gpt-j-6b": {}},
)  # fmt: skip
CODEGEN = replace(
    FAMILY,
    name="codegen",
    title="CodeGen",
    year=2022,
    paper="https://arxiv.org/abs/2203.13474",
    uses="programs from comments, continuation",
    spec=codegen_spec,
    weights=codegen_weights,
    parent="gptj",
    architectures={"tokens": "CodeGenForCausalLM", "hidden": "CodeGenModel"},
    sizes={
        "codegen-350m": {
            "vocab_size": 51200, "n_embd": 1024, "n_layer": 20, "n_head": 16, "rotary_dim": 32,
        },
        "codegen-2b": {"vocab_size": 51200, "n_embd": 2560, "n_layer": 32, "n_head": 32},
        "codegen-16b": {"vocab_size": 51200, "n_embd": 6144, "n_layer": 34, "n_head": 24},
    },
)  # fmt: skip
