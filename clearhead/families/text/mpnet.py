"""MPNet (Song 2020): BERT without segment types, with T5's distance buckets beside learned positions."""

from dataclasses import replace

from ...errors import SpecError
from ...nn import Combined, Learned, RelativeBuckets, SingleStack, Tokens, Tower
from ...weights import Name, Table
from ..family import Config, HeadKind
from . import bert, roberta

BUCKETS = 32  # theirs computes with 32, whatever the config says


def spec(c: Config, task: HeadKind) -> SingleStack:
    if c["relative_attention_num_buckets"] != BUCKETS:
        given = c["relative_attention_num_buckets"]
        raise SpecError(f"relative_attention_num_buckets is {given}; only {BUCKETS} can be built here")
    # The index of the first position is 2 in theirs, whatever pad_token_id is.
    learned = Learned(length=c["max_position_embeddings"] - 2, offset=2)
    buckets = RelativeBuckets(buckets=BUCKETS, max_distance=128)
    config = Config({**c, "head_act": "gelu", "type_vocab_size": 0, "is_decoder": False})
    return (
        bert.spec(config, task)
        .edit(Tokens, types=0)
        .edit(Tower, positions=Combined(schemes=(learned, buckets)))
    )


def weights(c: Config, task: HeadKind) -> Table:
    theirs, ours = "mpnet.encoder.layer.{i}.attention.", "tower.blocks.{i}."
    positions = "tower.positions.schemes"
    qkvo = {"q": "q", "k": "k", "v": "v", "o": "out"}
    others = (rule for rule in roberta.weights(c, task, prefix="mpnet.") if ".attention." not in rule.theirs)
    return (
        *(Name(f"{theirs}attn.{a}.{{p}}", f"{ours}attn.{b}.{{p}}") for a, b in qkvo.items()),
        Name(theirs + "LayerNorm.{p}", ours + "attn_norm.{p}"),
        Name("mpnet.embeddings.position_embeddings.weight", f"{positions}.0.table.weight"),
        Name("mpnet.encoder.relative_attention_bias.weight", f"{positions}.1.table.weight"),
        *others,
    )


_UNKNOWN = ("type_vocab_size", "is_decoder")  # keys of RoBERTa that it does not have
FAMILY = replace(
    roberta.FAMILY,
    name="mpnet",
    title="MPNet",
    year=2020,
    paper="https://arxiv.org/abs/2004.09297",
    uses="retrieval, classification, tagging, question answering",
    spec=spec,
    weights=weights,
    prefix="mpnet.",
    parent="bert",
    architectures=roberta.classes("MPNet"),
    defaults={
        **{key: value for key, value in roberta.DEFAULTS.items() if key not in _UNKNOWN},
        "vocab_size": 30527, "relative_attention_num_buckets": 32,
    },
    sizes={"mpnet-base": {"max_position_embeddings": 514, "layer_norm_eps": 1e-5}},
)  # fmt: skip
