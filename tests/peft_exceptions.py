"""Where PEFT itself fails or computes something else, and what has no format there, with the reason.

Each entry is asserted as it stands: one that is no longer needed fails its test.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Case = tuple[str, str]  # family and method


@dataclass(frozen=True)
class Known:
    """What is known of one case, in one direction; `text` is a pattern of the error, or of the reason.

    raises: PEFT raises. refused: we do, in one line. own: it is stored in our own format.
    differs: the outputs differ, because the reference leaves something out.
    """

    kind: Literal["raises", "refused", "own", "differs"]
    text: str = ""


def _each(families: str, methods: str, known: Known) -> Iterator[tuple[Case, Known]]:
    for family in families.split():
        for method in methods.split():
            yield (family, method), known


T5 = "t5 mt5 umt5 longt5 switch_transformers"
BART = "transformer bart mbart m2m_100 pegasus plbart blenderbot led"
DEEPSEEK = "deepseek_v2 deepseek_v3"
# Models whose forward takes no past keys and values.
NO_PAST = "albert mpnet esm nomic_bert modernbert eurobert deberta deberta-v2 longformer xlnet"
NARROW_TABLE = "albert electra rembert roformer"

OTHER_SIZES = Known("raises", "Sizes of tensors must match")
NO_KEYS = Known("raises", "Model does not support past key values")
NO_HEADS = Known("raises", "Please specify `num_attention_heads`")
NO_WIDTH = Known("raises", "Please specify `token_dim`")
# all-linear names the experts, which are parameters and no layers.
EXPERTS = Known("refused", "target_parameters is")
ADDED_LATER = Known("refused", "to which the model adds a bias later")
UNTIED = "shapes cannot be multiplied|object has no attribute 'modules_to_save'"  # which depends on a set
NOT_TIED = Known("own", "tied to a table that learns")

FROM_PEFT: dict[Case, Known] = dict([
    *_each(f"mixtral qwen3_moe {DEEPSEEK}", "lora", EXPERTS),
    # Its in_proj has no bias; those of q and v are added behind it.
    *_each("deberta", "ia3 ia3-inputs", ADDED_LATER),
    # The copy of the table is tied to the decoder and to the output, and is called as a product.
    *_each(f"{T5} {BART}", "saved", Known("raises", UNTIED)),
    # It gives the decoder the sizes of the encoder, and layer i the keys 4 i.
    *_each(T5, "prefix", Known("raises", "index out of range")),
    *_each(BART, "prefix", OTHER_SIZES),
    # Its keys have as many heads as the queries.
    *_each(f"gpt_bigcode falcon {DEEPSEEK}", "prefix", OTHER_SIZES),
    *_each(NO_PAST, "prefix", NO_KEYS),
    *_each("roformer", "prefix", Known("raises", "'DynamicCache' object is not subscriptable")),
    *_each("big_bird", "prefix", Known("raises", "does not broadcast")),
    # A prefix is given to the model as past keys and values, which it does not take, and passes over.
    *_each("openai-gpt", "prefix", Known("differs")),
    *_each("reformer", "prefix", Known("refused", "a reversible tower cannot train PrefixTokens")),
    *_each("distilbert", "prompt prefix", NO_WIDTH),
    *_each("fnet", "prompt prefix", NO_HEADS),
    # Vectors of the width of the layers, where the table is narrower.
    *_each(NARROW_TABLE, "prompt", OTHER_SIZES),
    # Of vectors that are given, the model leaves out the positions.
    *_each("esm", "prompt", Known("differs")),
    *_each("longformer", "prompt", Known("raises", "must be Tensor, not NoneType")),
    *_each("funnel", "prompt", Known("refused", "pools its tokens")),
    *_each("funnel", "prefix", NO_KEYS),
])  # fmt: skip

NO_PREFIX_FORMAT = Known("own", "no prefix for every attention")
TO_PEFT: dict[Case, Known] = dict([
    *_each(DEEPSEEK, "lora", Known("own", "for a layer of the experts")),
    # Its products of queries, keys and values are no linear layers.
    *_each("xlnet", "lora", Known("own", "is no layer of its own in transformers")),
    *_each("deberta", "ia3 ia3-inputs", Known("own", "without the bias of")),
    *_each(f"{T5} {BART}", "saved", NOT_TIED),
    *_each(f"t5 mt5 umt5 longt5 {BART}", "prefix", NO_PREFIX_FORMAT),
    *_each("switch_transformers", "prefix", Known("refused", "capacity count tokens")),
    *_each(DEEPSEEK, "prefix", Known("own", "a prefix of one size")),
    *_each("gpt_bigcode", "prefix", Known("raises", "size mismatch")),
    *_each(f"distilbert {NO_PAST}", "prefix", NO_KEYS),
    *_each("roformer", "prefix", Known("raises", "'DynamicCache' object is not subscriptable")),
    *_each("big_bird", "prefix", Known("refused", "cannot take fewer queries than keys")),
    *_each("openai-gpt", "prefix", Known("differs")),
    *_each("reformer", "prefix", Known("refused", "a reversible tower cannot train PrefixTokens")),
    *_each("fnet", "prefix", Known("refused", "further keys")),
    *_each("esm", "prompt", Known("differs")),
    *_each("longformer", "prompt", Known("raises", "must be Tensor, not NoneType")),
    *_each("funnel", "prompt prefix", Known("refused", "pools its tokens")),
])  # fmt: skip

# Parts of transformers' class with a bias, without an effect on its output: the model here lacks them.
UNUSED_PARTS = {
    "esm": "contact_head.", "fnet": "pooler.", "big_bird": "pooler.", "reformer": "lm_head.bias",
}  # fmt: skip
# Where not all layers have a place in PEFT: those that have, in names of theirs and of ours.
PARTS = {
    "deepseek_v2": (".self_attn.", "*.attn"), "deepseek_v3": (".self_attn.", "*.attn"),
    "xlnet": (".ff.", "*.ff"),
}  # fmt: skip
