"""Longformer (Beltagy 2020): RoBERTa with a window around each token and a few global tokens.

Which tokens are global comes with the call (`mask_adapters.from_global_attention_mask`); the first token of a
classifier always is.
"""

from dataclasses import replace

from ...errors import SpecError
from ...nn import Attention, Block, Longformer, SingleStack, Tower
from ...weights import Name, Table
from ..family import Config, HeadKind
from . import bert, roberta


def spec(c: Config, task: HeadKind) -> SingleStack:
    base = roberta.spec(c, task)
    block = base.tower.pattern[0]
    always = (0,) if task == "labels" else ()
    blocks = longformer_blocks(block, c["attention_window"], c["num_hidden_layers"], always)
    return base.edit(Tower, block=blocks)


def longformer_blocks(
    block: Block, window: int | list[int], depth: int, always: tuple[int, ...] = ()
) -> Block | tuple[Block, ...]:
    """A block for every layer; theirs counts both sides of a window, ours one."""
    windows = [window] * depth if isinstance(window, int) else list(window)
    if len(windows) != depth or any(w < 2 or w % 2 for w in windows):
        raise SpecError(
            f"attention_window is {window}, expected an even number, or one for each of {depth} layers"
        )
    assert isinstance(block.attention, Attention)
    dropout = getattr(block.attention.kernel, "dropout", 0.0)
    blocks = tuple(
        block.edit(
            Attention,
            kernel=Longformer(window=w // 2, always=always, dropout=dropout),
            project="twice",
        )
        for w in windows
    )
    return blocks[0] if len(set(blocks)) == 1 else blocks


def weights(c: Config, task: HeadKind) -> Table:
    theirs, ours = "longformer.encoder.layer.{i}.attention.self.", "tower.blocks.{i}.attn."
    own = {"query": "q", "key": "k", "value": "v"}
    return (
        *roberta.weights(c, task, "longformer."),
        *(Name(f"{theirs}{a}_global.{{p}}", f"{ours}{b}_global.{{p}}") for a, b in own.items()),
    )


LONGFORMER_BASE = {
    "vocab_size": 50265, "max_position_embeddings": 4098, "type_vocab_size": 1, "layer_norm_eps": 1e-5,
}  # fmt: skip
FAMILY = replace(
    roberta.FAMILY,
    name="longformer",
    title="Longformer",
    year=2020,
    paper="https://arxiv.org/abs/2004.05150",
    uses="labels, tags and answers in long documents",
    spec=spec,
    weights=weights,
    prefix="longformer.",
    parent="roberta",
    architectures={
        "tokens": "LongformerForMaskedLM", "labels": "LongformerForSequenceClassification",
        "tags": "LongformerForTokenClassification", "span": "LongformerForQuestionAnswering",
        "choice": "LongformerForMultipleChoice", "hidden": "LongformerModel",
    },
    defaults={**roberta.DEFAULTS, "vocab_size": 30522, "sep_token_id": 2, "attention_window": 512},
    only={"is_decoder": False},
    sizes={"longformer-base": LONGFORMER_BASE, "longformer-large": {**LONGFORMER_BASE, **bert.LARGE}},
)  # fmt: skip
