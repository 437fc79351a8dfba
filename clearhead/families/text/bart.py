"""BART, mBART and PLBART (Lewis 2019, Liu 2020, Ahmad 2021): learned positions that start at 2.

mBART has norms before its layers; PLBART is BART, trained on programs.
"""

from dataclasses import replace

from ...nn import (
    MLP,
    Attention,
    Block,
    EncoderDecoder,
    Learned,
    Model,
    Normal,
    Softmax,
    TokenHead,
    Tokens,
    Tower,
)
from ...nn.norm import Layer
from ...weights import Alias, Ignore, Name, Table, WeightRule
from ..family import Config, Family, HeadKind
from ..shared import activation
from ..two_towers import model_with_head, start_token


def bart_tower(c: Config, name: str) -> Tower:
    """Encoder or decoder: the two differ in sizes, the causal mask and cross-attention."""
    attention = Attention(
        heads=c[f"{name}_attention_heads"], bias="qkvo", kernel=Softmax(dropout=c["attention_dropout"])
    )
    scale = c["d_model"] ** 0.5 if c["scale_embedding"] else 1.0
    return Tower(
        width=c["d_model"],
        depth=c[f"{name}_layers"],
        causal=name == "decoder",
        embed=Tokens(vocab=c["vocab_size"], norm=Layer(), scale=scale, dropout=c["dropout"]),
        positions=Learned(length=c["max_position_embeddings"], offset=2),
        block=Block(
            attention=attention,
            cross=attention if name == "decoder" else None,
            order="post",
            feedforward=MLP(
                hidden=c[f"{name}_ffn_dim"],
                act=activation(c["activation_function"]),
                dropout=c["activation_dropout"],
            ),
            dropout=c["dropout"],
        ),
    )


def spec(c: Config, task: HeadKind) -> Model:
    return model_with_head(bart_towers(c), c, task, bart_word_head(c), start=start_token(c, task))


def bart_towers(c: Config) -> EncoderDecoder:
    return EncoderDecoder(
        encoder=bart_tower(c, "encoder"),
        decoder=bart_tower(c, "decoder"),
        shared=shares_table(c),
        init=Normal(std=c["init_std"]),
    )


def bart_word_head(c: Config) -> TokenHead:
    return TokenHead(vocab=c["vocab_size"], tied=c["tie_word_embeddings"], bias=True)


def shares_table(c: Config) -> bool:
    """Whether encoder and decoder share one embedding table: if the head is tied to it as well, or in older
    files, which store one table although their head is untied."""
    older = bool(c.stored) and "model.encoder.embed_tokens.weight" not in c.stored
    return bool(c["tie_word_embeddings"]) or older


def with_norms_first(both: EncoderDecoder) -> EncoderDecoder:
    return both.edit(Block, order="pre").edit(Tower, last_norm=Layer())


def mbart_spec(c: Config, task: HeadKind) -> Model:
    """A classifier's decoder starts with the last token of the text, which names its language."""
    return model_with_head(with_norms_first(bart_towers(c)), c, task, bart_word_head(c))


def plbart_spec(c: Config, task: HeadKind) -> Model:
    return model_with_head(bart_towers(c), c, task, bart_word_head(c))


def weights(c: Config, task: HeadKind) -> Table:
    if task == "decoder":
        return decoder_rules(c)
    return (
        *(shared_table_rules() if shares_table(c) else separate_table_rules()),
        *side_rules("encoder", {"self_attn": "attn"}),
        *side_rules("decoder", {"self_attn": "attn", "encoder_attn": "cross"}),
        *head_rules(c, task, "encoder.embed.table.weight"),
    )


def head_rules(c: Config, task: HeadKind, table: str) -> Table:
    if task == "labels":
        return (
            Name("classification_head.dense.{p}", "head.transform.dense.{p}"),
            Name("classification_head.out_proj.{p}", "head.project.{p}"),
        )
    if task == "span":
        return (Name("qa_outputs.{p}", "head.project.{p}"),)
    return (
        Alias("lm_head.weight", table) if c["tie_word_embeddings"] else Name("lm_head.weight", "head.weight"),
        Name("final_logits_bias", "head.bias", leading=1),
    )


def decoder_rules(c: Config) -> Table:
    """The decoder alone. Theirs has cross-attention nevertheless, which it does not use."""
    table = "tower.embed.table.weight"
    why = "cross-attention, which a decoder alone does not use"
    cross = ("_layer_norm", ".q_proj", ".k_proj", ".v_proj", ".out_proj")
    return (
        Name("model.decoder.embed_tokens.weight", table),
        Alias("model.shared.weight", table),
        *(Ignore(f"model.decoder.layers.{{i}}.encoder_attn{part}.{{p}}", why) for part in cross),
        *side_rules("decoder", {"self_attn": "attn"}, ours="tower"),
        Alias("lm_head.weight", table) if c["tie_word_embeddings"] else Name("lm_head.weight", "head.weight"),
    )


def shared_table_rules() -> Table:
    table = "encoder.embed.table.weight"
    return (
        Name("model.shared.weight", table),
        Alias("model.encoder.embed_tokens.weight", table),
        Alias("model.decoder.embed_tokens.weight", table),
    )


def separate_table_rules() -> Table:
    """Two separate tables. Theirs then has a third one, which is never used."""
    table = "encoder.embed.table.weight"
    return (
        *(
            Name(f"model.{side}.embed_tokens.weight", f"{side}.embed.table.weight")
            for side in ("encoder", "decoder")
        ),
        Ignore("model.shared.weight", "a table of untied models that nothing reads", like=table),
    )


def side_rules(side: str, attentions: dict[str, str], ours: str | None = None) -> Table:
    """One of their towers; `ours` is the name of our tower, where that is another."""
    tower = ours or side
    theirs, ours = f"model.{side}.layers.{{i}}.", f"{tower}.blocks.{{i}}."
    rules: list[WeightRule] = [
        Name(f"model.{side}.embed_positions.weight", f"{tower}.positions.table.weight"),
        Name(f"model.{side}.layernorm_embedding.{{p}}", f"{tower}.embed.norm.{{p}}"),
        Name(f"model.{side}.layer_norm.{{p}}", f"{tower}.norm.{{p}}"),
        Name(theirs + "fc1.{p}", ours + "ff.up.{p}"),
        Name(theirs + "fc2.{p}", ours + "ff.down.{p}"),
        Name(theirs + "final_layer_norm.{p}", ours + "ff_norm.{p}"),
        Ignore(f"model.{side}.version", "the version of an older library"),
    ]
    for them, us in attentions.items():
        rules.append(Name(f"{theirs}{them}_layer_norm.{{p}}", f"{ours}{us}_norm.{{p}}"))
        parts = ("q", "k", "v", "out")
        rules += [Name(f"{theirs}{them}.{x}_proj.{{p}}", f"{ours}{us}.{x}.{{p}}") for x in parts]
    return tuple(rules)


DEFAULTS = {
    "vocab_size": 50265, "max_position_embeddings": 1024, "d_model": 1024, "encoder_layers": 12,
    "encoder_ffn_dim": 4096, "encoder_attention_heads": 16, "decoder_layers": 12, "decoder_ffn_dim": 4096,
    "decoder_attention_heads": 16, "activation_function": "gelu", "dropout": 0.1, "attention_dropout": 0.0,
    "activation_dropout": 0.0, "init_std": 0.02, "scale_embedding": False, "tie_word_embeddings": True,
    "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2,
    "forced_eos_token_id": 2,
}  # fmt: skip


def bart_classes(stem: str) -> dict[HeadKind, str]:
    return {
        "tokens": f"{stem}ForConditionalGeneration", "hidden": f"{stem}Model",
        "labels": f"{stem}ForSequenceClassification", "span": f"{stem}ForQuestionAnswering",
        "decoder": f"{stem}ForCausalLM",
    }  # fmt: skip


FAMILY = Family(
    name="bart",
    title="BART",
    year=2019,
    paper="https://arxiv.org/abs/1910.13461",
    mode="encoder-decoder",
    uses="summaries, translation, repair of text",
    spec=spec,
    weights=weights,
    prefix="model.",
    parent="transformer",
    architectures=bart_classes("Bart"),
    defaults={**DEFAULTS, "num_labels": 3},
    sizes={
        "bart-base": {
            "d_model": 768, "encoder_layers": 6, "encoder_ffn_dim": 3072, "encoder_attention_heads": 12,
            "decoder_layers": 6, "decoder_ffn_dim": 3072, "decoder_attention_heads": 12,
        },
        "bart-large": {},
    },
)  # fmt: skip
MBART = replace(
    FAMILY,
    name="mbart",
    title="mBART",
    year=2020,
    paper="https://arxiv.org/abs/2001.08210",
    spec=mbart_spec,
    uses="translation between many languages",
    parent="bart",
    architectures=bart_classes("MBart"),
    defaults={**DEFAULTS, "decoder_start_token_id": None},
    sizes={
        "mbart-large": {"vocab_size": 250027, "scale_embedding": True},
        "mbart-large-50": {"vocab_size": 250054, "scale_embedding": True, "activation_function": "relu"},
    },
)
PLBART = replace(
    FAMILY,
    name="plbart",
    title="PLBART",
    year=2021,
    paper="https://arxiv.org/abs/2103.06333",
    spec=plbart_spec,
    uses="programs: summaries, translation, repair",
    parent="bart",
    architectures={kind: name for kind, name in bart_classes("PLBart").items() if kind != "span"},
    defaults={
        **DEFAULTS, **FAMILY.sizes["bart-base"], "vocab_size": 50005, "attention_dropout": 0.1,
        "scale_embedding": True, "decoder_start_token_id": None,
    },
    sizes={
        "plbart-base": {},
        "plbart-large": {
            "d_model": 1024, "encoder_layers": 12, "encoder_ffn_dim": 4096, "encoder_attention_heads": 16,
            "decoder_layers": 12, "decoder_ffn_dim": 4096, "decoder_attention_heads": 16,
        },
    },
)  # fmt: skip
