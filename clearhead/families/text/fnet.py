"""FNet (Lee-Thorp 2021): BERT with a Fourier transform in the place of attention; only the rest is learned.

The reference transforms padding along with the text and so gives a text other states in a longer batch. Here
every text is transformed without what the mask marks as padding.
"""

from dataclasses import replace

from ...errors import SpecError
from ...nn import Block, Fourier, SingleStack, Tokens
from ...weights import Name, Table
from ..family import Config, HeadKind
from ..shared import encoder_head_rules
from . import bert

NO_ATTENTION = {"num_attention_heads": 1, "attention_probs_dropout_prob": 0.0, "is_decoder": False}


def spec(c: Config, task: HeadKind) -> SingleStack:
    if c["use_tpu_fourier_optimizations"]:
        raise SpecError("use_tpu_fourier_optimizations is true; only false can be built here")
    return (
        bert.spec(Config({**c, **NO_ATTENTION}), task)
        .edit(Block, attention=Fourier())
        .edit(Tokens, factor=c["hidden_size"], order="norm-project-dropout")
    )


def weights(c: Config, task: HeadKind) -> Table:
    theirs = "fnet.encoder.layer.{i}."
    rules = tuple(rule for rule in bert.tower_rules("fnet.") if f"{theirs}attention." not in rule.theirs)
    names = {name: theirs.replace("bert.pooler", "fnet.pooler") for name, theirs in bert.HEAD.items()}
    return (
        *rules,
        Name(theirs + "fourier.output.LayerNorm.{p}", "tower.blocks.{i}.attn_norm.{p}"),
        Name("fnet.embeddings.projection.{p}", "tower.embed.project.{p}"),
        *encoder_head_rules(c, task, names),
    )


FAMILY = replace(
    bert.FAMILY,
    name="fnet",
    title="FNet",
    year=2021,
    paper="https://arxiv.org/abs/2105.03824",
    uses="classification, tagging, question answering, at a fraction of the time",
    spec=spec,
    weights=weights,
    prefix="fnet.",
    parent="bert",
    architectures={task: name.replace("Bert", "FNet") for task, name in bert.FAMILY.architectures.items()},
    defaults={
        "vocab_size": 32000, "hidden_size": 768, "num_hidden_layers": 12, "intermediate_size": 3072,
        "hidden_act": "gelu_new", "hidden_dropout_prob": 0.1, "max_position_embeddings": 512,
        "type_vocab_size": 4, "initializer_range": 0.02, "layer_norm_eps": 1e-12,
        "use_tpu_fourier_optimizations": False, "pad_token_id": 3, "bos_token_id": 1, "eos_token_id": 2,
        "tie_word_embeddings": True,
    },
    sizes={
        "fnet-base": {},
        "fnet-large": {"hidden_size": 1024, "num_hidden_layers": 24, "intermediate_size": 4096},
    },
)  # fmt: skip
