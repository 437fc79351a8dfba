"""Switch Transformers (Fedus 2021): T5 with experts in every n-th layer; each token passes through one.

An expert takes at most `expert_capacity` tokens of a text: see `Router.capacity`.
"""

from collections.abc import Mapping
from dataclasses import replace

from ...errors import SpecError
from ...nn import MLP, Experts, Model, Router, Tower
from ...weights import Ignore, Name, Table
from ..family import ONE_TOWER, Config, HeadKind
from ..shared import activation, blocks_with_experts, override
from ..two_towers import model_with_head
from . import t5


def spec(c: Config, task: HeadKind) -> Model:
    if c["router_dtype"] != "float32":
        raise SpecError(f"router_dtype is {c['router_dtype']!r}; only 'float32' can be built here")
    if task not in ONE_TOWER and c.get("is_encoder_decoder") is False:  # as theirs writes for encoders alone
        raise SpecError("is_encoder_decoder is false; a model with both towers needs true")
    act, dropout = activation(c["dense_act_fn"]), c["dropout_rate"]
    experts = Experts(
        count=c["num_experts"],
        expert=MLP(hidden=c["d_ff"], act=act, bias=False, dropout=dropout),
        router=Router(
            chosen=1,
            normalised=False,
            bias=c["router_bias"],
            capacity=c["expert_capacity"],
            jitter=c["router_jitter_noise"],
            wide=True,
        ),
    )
    both = t5.t5_towers(_t5_config(c))
    both = replace(
        both,
        shared=c["tie_word_embeddings"],
        encoder=_sparse(both.encoder, experts, c, "encoder"),
        decoder=_sparse(both.decoder, experts, c, "decoder"),
    )
    return model_with_head(both, c, task, t5.t5_word_head(c))


def _sparse(tower: Tower, experts: Experts, c: Config, side: str) -> Tower:
    """The tower with experts in its second layer and every n-th one after it."""
    count = c[f"num_sparse_{side}_layers"]
    # A stored step wins over the one that follows from the number of layers, as in theirs.
    step = c.get(f"{side}_sparse_step", tower.depth // count if count else tower.depth)
    sparse = [step == 1 or (step > 1 and i % step == 1) for i in range(tower.depth)]
    return replace(tower, block=blocks_with_experts(tower, experts, sparse))


def _t5_config(c: Config) -> Config:
    """With the key of T5 that is named differently here."""
    config = Config({**c, "feed_forward_proj": c["dense_act_fn"]})
    config.stored = c.stored
    return config


def weights(c: Config, task: HeadKind) -> Table:
    sides = {"encoder": "tower"} if task in ONE_TOWER else {"encoder": "encoder", "decoder": "decoder"}
    experts = tuple(rule for side, ours in sides.items() for rule in _expert_rules(side, ours))
    table = t5.weights(_t5_config(c), task, feedforward="mlp")
    if c["tie_word_embeddings"]:
        return table + experts
    return override(table, _separate_table_rules(sides)) + experts


def _separate_table_rules(sides: Mapping[str, str]) -> Table:
    """Untied models have a table for each tower; theirs then has another one, which nothing reads."""
    tables = {side: f"{ours}.embed.table.weight" for side, ours in sides.items()}
    return (
        *(Name(f"{t5.PREFIX}{side}.embed_tokens.weight", table) for side, table in tables.items()),
        Ignore(
            t5.PREFIX + "shared.weight", "a table of untied models that nothing reads", like=tables["encoder"]
        ),
    )


def _expert_rules(side: str, tower: str) -> Table:
    """Their feed-forward layer is the last sub-layer: number 1 of the encoder, 2 of the decoder."""
    number = 1 if side == "encoder" else 2
    theirs = f"{t5.PREFIX}{side}.block.{{i}}.layer.{number}.mlp."
    ours = f"{tower}.blocks.{{i}}.ff."
    expert, own = theirs + "experts.expert_{e}.", ours + "experts.{e}."
    return (
        Name(theirs + "router.classifier.{p}", ours + "router.linear.{p}"),
        Name(expert + "wi.weight", own + "up.weight"),
        Name(expert + "wo.weight", own + "down.weight"),
    )


_BASE = {"d_ff": 3072, "num_sparse_encoder_layers": 6, "num_sparse_decoder_layers": 6}
_LARGE = {
    "d_model": 1024, "d_ff": 4096, "num_layers": 24, "num_decoder_layers": 24, "num_heads": 16,
    "num_sparse_encoder_layers": 12, "num_sparse_decoder_layers": 12,
}  # fmt: skip
FAMILY = replace(
    t5.FAMILY,
    name="switch_transformers",
    title="Switch Transformers",
    year=2021,
    paper="https://arxiv.org/abs/2101.03961",
    spec=spec,
    weights=weights,
    linear_experts=True,
    parent="t5",
    architectures={
        "tokens": "SwitchTransformersForConditionalGeneration", "hidden": "SwitchTransformersModel",
        "encoder": "SwitchTransformersEncoderModel",
    },
    defaults={
        **{key: value for key, value in t5.FAMILY.defaults.items() if key != "feed_forward_proj"},
        "d_model": 768, "num_layers": 12, "num_decoder_layers": 12, "num_heads": 12, "dense_act_fn": "relu",
        "num_experts": 8, "expert_capacity": 64, "num_sparse_encoder_layers": 3,
        "num_sparse_decoder_layers": 3, "router_bias": False, "router_jitter_noise": 0.01,
        "router_dtype": "float32", "router_ignore_padding_tokens": False,
    },
    sizes={
        **{f"switch-base-{n}": {**_BASE, "num_experts": n} for n in (8, 16, 32, 64, 128, 256)},
        "switch-large-128": {**_LARGE, "num_experts": 128},
    },
)  # fmt: skip
