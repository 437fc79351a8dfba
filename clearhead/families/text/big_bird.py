"""BigBird (Zaheer 2020): BERT over blocks: the neighbours, both ends of the text, and a few random ones.

The reference switches to full attention at the first short text and stays there; here the length of each
text decides.
"""

from dataclasses import replace

from ...errors import SpecError, nearest
from ...nn import Attention, BigBird, SingleStack, Tokens, Tower, Transform
from ...weights import Table
from ..family import Config, HeadKind
from ..shared import activation, encoder_head, encoder_head_rules
from . import bert

ATTENTION_TYPES = ("block_sparse", "original_full")


def spec(c: Config, task: HeadKind) -> SingleStack:
    base = bert.spec(c, task).edit(Attention, bias="qkvo" if c["use_bias"] else "o")
    if c["rescale_embeddings"]:
        base = base.edit(Tokens, scale=c["hidden_size"] ** 0.5)
    if task == "labels":  # their classifier uses the activation of the rest of the model
        pooler = Transform(act=activation(c["hidden_act"]))
        base = replace(base, head=encoder_head(c, task, base.tower.pattern[0].norm, pooler))
    if c["attention_type"] not in ATTENTION_TYPES:
        raise SpecError(
            f"attention_type is {c['attention_type']!r}; {nearest(c['attention_type'], ATTENTION_TYPES)}"
        )
    if c["attention_type"] == "original_full":
        return base
    blocks = tuple(
        base.tower.pattern[0].edit(Attention, kernel=_kernel(c, layer))
        for layer in range(c["num_hidden_layers"])
    )
    return base.edit(Tower, block=blocks)


def _kernel(c: Config, layer: int) -> BigBird:
    """The number of a layer is its seed."""
    return BigBird(
        block=c["block_size"],
        random=c["num_random_blocks"],
        seed=layer,
        longest=c["max_position_embeddings"],
        full_until=(5 + 2 * c["num_random_blocks"]) * c["block_size"],
        resting="first",
    )


def weights(c: Config, task: HeadKind) -> Table:
    names = {**bert.HEAD, "pooler": "bert.pooler.{p}"}
    if task == "labels":
        names |= {"pooler": "classifier.dense.{p}", "classifier": "classifier.out_proj.{p}"}
        names |= {"unused": "bert.pooler.{p}"}
    return bert.tower_rules("bert.") + encoder_head_rules(c, task, names)


FAMILY = replace(
    bert.FAMILY,
    name="big_bird",
    title="BigBird",
    year=2020,
    paper="https://arxiv.org/abs/2007.14062",
    uses="labels and tags in long documents",
    spec=spec,
    weights=weights,
    parent="bert",
    architectures={
        "tokens": "BigBirdForMaskedLM", "labels": "BigBirdForSequenceClassification",
        "tags": "BigBirdForTokenClassification", "choice": "BigBirdForMultipleChoice",
        "hidden": "BigBirdModel",
    },
    defaults={
        **bert.DEFAULTS, "vocab_size": 50358, "hidden_act": "gelu_new", "max_position_embeddings": 4096,
        "bos_token_id": 1, "eos_token_id": 2, "sep_token_id": 66, "attention_type": "block_sparse",
        "use_bias": True, "rescale_embeddings": False, "block_size": 64, "num_random_blocks": 3,
    },
    sizes={"bigbird-base": {}, "bigbird-large": bert.LARGE},
)  # fmt: skip
