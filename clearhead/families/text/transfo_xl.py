"""Transformer-XL (Dai 2019): relative positions and a segment memory (`model.segment_memory`)."""

from itertools import pairwise

from ...errors import SpecError
from ...nn import (
    MLP,
    Adaptive,
    AdaptiveHead,
    Attention,
    Block,
    Normal,
    RelativeWaves,
    SingleStack,
    Softmax,
    Tower,
)
from ...nn.norm import Layer
from ...weights import Alias, Fused, Ignore, Name, Table, WeightRule
from ..family import Config, Family, HeadKind


def spec(c: Config, task: HeadKind) -> SingleStack:
    if c["attn_type"] or not c["proj_share_all_but_first"] or not c["tie_word_embeddings"]:
        raise SpecError("Transformer-XL is known here with attn_type 0 and tables shared with the head")
    projected = c["div_val"] > 1 or c["d_embed"] != c["d_model"]
    return SingleStack(
        tower=Tower(
            width=c["d_model"],
            depth=c["n_layer"],
            causal=True,
            embed=Adaptive(
                vocab=c["vocab_size"],
                cutoffs=tuple(c["cutoffs"]),
                inner_width=c["d_embed"],
                shrink=c["div_val"],
                scale=c["d_model"] ** 0.5,
                dropout=c["dropout"],
            ),
            positions=RelativeWaves(
                farthest=c["clamp_len"] if c["clamp_len"] > 0 else None,
                shared=not c["untie_r"],
                dropout=c["dropout"],
            ),
            block=Block(
                attention=Attention(
                    heads=c["n_head"],
                    head_dim=c["d_head"],
                    # Every token attends to equally many, itself included.
                    window=(c["mem_len"] - 1, 0) if c["same_length"] and c["mem_len"] else None,
                    kernel=Softmax(dropout=c["dropatt"]),
                ),
                feedforward=MLP(hidden=c["d_inner"], act="relu", dropout=c["dropout"]),
                norm=Layer(eps=c["layer_norm_epsilon"]),
                order="pre" if c["pre_lnorm"] else "post",
                dropout=c["dropout"],
            ),
        ),
        head=AdaptiveHead(
            vocab=c["vocab_size"],
            cutoffs=tuple(c["cutoffs"]),
            inner_width=c["d_embed"] if projected else None,
        )
        if task == "tokens"
        else None,
        init=Normal(std=c["init_std"]),
    )


def weights(c: Config, task: HeadKind) -> Table:
    theirs, ours = "transformer.layers.{i}.", "tower.blocks.{i}."
    biases = {"r_w_bias": "u", "r_r_bias": "v"}
    rules: list[WeightRule] = [
        Name("transformer.word_emb.emb_layers.{i}.weight", "tower.embed.tables.{i}.weight"),
        Name("transformer.word_emb.emb_projs.{i}", "tower.embed.projects.{i}.weight"),
        Fused(theirs + "dec_attn.qkv_net.weight", tuple(f"{ours}attn.{x}.weight" for x in "qkv")),
        Name(theirs + "dec_attn.o_net.weight", ours + "attn.out.weight"),
        Name(theirs + "dec_attn.layer_norm.{p}", ours + "attn_norm.{p}"),
        Name(theirs + "dec_attn.r_net.weight", "tower.positions.project.{i}.weight"),
        Name(theirs + "pos_ff.CoreNet.0.{p}", ours + "ff.up.{p}"),
        Name(theirs + "pos_ff.CoreNet.3.{p}", ours + "ff.down.{p}"),
        Name(theirs + "pos_ff.layer_norm.{p}", ours + "ff_norm.{p}"),
        Ignore("transformer.pos_emb.inv_freq", "the frequencies of the sinusoids"),
    ]
    for them, us in biases.items():
        if c["untie_r"]:
            rules.append(Name(f"{theirs}dec_attn.{them}", f"tower.positions.{us}.{{i}}"))
        else:
            rules.append(Name(f"transformer.{them}", f"tower.positions.{us}.0"))
            rules.append(Alias(f"{theirs}dec_attn.{them}", f"tower.positions.{us}.0"))
    return (*rules, *(_head(c) if task == "tokens" else (Ignore("crit.cluster_{p}", "a part of the head"),)))


def _head(c: Config) -> Table:
    """The tables are the embedding's; so are the projections, but for the first."""
    last = 0 if c["div_val"] == 1 else len(c["cutoffs"])
    shared = [
        Alias(f"crit.out_projs.{i}", f"tower.embed.projects.{min(i, last)}.weight")
        for i in range(1, len(c["cutoffs"]) + 1)
    ]
    boundaries = (0, *c["cutoffs"], c["vocab_size"])
    sizes = tuple(b - a for a, b in pairwise(boundaries))
    all_bands = Fused(  # with one table, their head has one bias
        "crit.out_layers.0.bias", tuple(f"head.biases.{i}" for i in range(len(sizes))), sizes=sizes
    )
    return (
        Name("crit.out_projs.0", "head.first.weight", transpose=True),
        *shared,
        Alias("crit.out_layers.{i}.weight", "tower.embed.tables.{i}.weight"),
        all_bands if c["div_val"] == 1 else Name("crit.out_layers.{i}.bias", "head.biases.{i}"),
        Name("crit.cluster_weight", "head.further.weight"),
        Name("crit.cluster_bias", "head.further.bias"),
    )


FAMILY = Family(
    name="transfo-xl",
    title="Transformer-XL",
    year=2019,
    paper="https://arxiv.org/abs/1901.02860",
    mode="causal",
    uses="text much longer than one call",
    spec=spec,
    weights=weights,
    prefix="transformer.",
    parent="transformer",
    architectures={"tokens": "TransfoXLLMHeadModel", "hidden": "TransfoXLModel"},
    defaults={
        "vocab_size": 267735, "cutoffs": [20000, 40000, 200000], "d_model": 1024, "d_embed": 1024,
        "n_head": 16, "d_head": 64, "d_inner": 4096, "div_val": 4, "pre_lnorm": False, "n_layer": 18,
        "mem_len": 1600, "clamp_len": 1000, "same_length": True, "proj_share_all_but_first": True,
        "attn_type": 0, "dropout": 0.1, "dropatt": 0.0, "untie_r": True, "init_std": 0.02,
        "layer_norm_epsilon": 1e-5, "eos_token_id": 0, "tie_word_embeddings": True,
    },
    sizes={"transfo-xl-wt103": {}},
)  # fmt: skip
