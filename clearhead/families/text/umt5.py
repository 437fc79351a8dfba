"""UMT5 (Chung 2023): mT5 with distance buckets of its own in every layer."""

from dataclasses import replace

from ...errors import SpecError
from ...nn import Block, Model, NoPositions, Tower
from ...weights import Name, Table, WeightRule
from ..family import Config, HeadKind
from ..two_towers import model_with_head, start_token
from . import t5


def spec(c: Config, task: HeadKind) -> Model:
    if task == "tokens" and c.stored and t5.t5_word_head(c).tied and not c["tie_word_embeddings"]:
        # An untied head does not scale its input. transformers 5 does, and reads this key of no file.
        raise SpecError("tie_word_embeddings is false, but the file has no lm_head.weight; expected true")
    base = t5.t5_towers(c)
    both = base.edit(Block, positions=base.encoder.positions).edit(Tower, positions=NoPositions())
    return model_with_head(both, c, task, t5.t5_word_head(c), start=start_token(c, task))


def weights(c: Config, task: HeadKind) -> Table:
    return tuple(_of_every_layer(rule) for rule in t5.weights(c, task))


def _of_every_layer(rule: WeightRule) -> WeightRule:
    """The rule of T5's one table of buckets, for the table of each layer; other rules as they are."""
    if not isinstance(rule, Name) or not rule.ours.endswith(".positions.table.weight"):
        return rule
    return replace(
        rule,
        theirs=rule.theirs.replace(".block.0.", ".block.{i}."),
        ours=rule.ours.replace(".positions.", ".blocks.{i}.positions."),
    )


# Their head is untied, and so its input is not scaled; transformers 5 reads such a config as a tied one.
_PUBLISHED = {"vocab_size": 256384, "tie_word_embeddings": False}
FAMILY = replace(
    t5.MT5,
    name="umt5",
    title="UMT5",
    year=2023,
    paper="https://arxiv.org/abs/2304.09151",
    spec=spec,
    weights=weights,
    parent="mt5",
    architectures=t5.t5_classes("UMT5"),
    defaults={
        **{key: value for key, value in t5.MT5.defaults.items() if key != "scale_decoder_outputs"},
        "tie_word_embeddings": True,
    },
    sizes={
        "umt5-small": _PUBLISHED,
        "umt5-base": {**_PUBLISHED, "d_model": 768, "d_ff": 2048, "num_layers": 12, "num_heads": 12},
    },
)  # fmt: skip
