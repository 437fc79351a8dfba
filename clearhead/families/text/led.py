"""LED (Beltagy 2020): BART whose encoder reads long documents through Longformer's attention."""

from dataclasses import replace

from ...nn import Learned, Model, Tower
from ...weights import Name, Table, WeightRule
from ..family import Config, Family, HeadKind
from ..two_towers import model_with_head, start_token
from . import bart
from .longformer import longformer_blocks


def spec(c: Config, task: HeadKind) -> Model:
    base = bart.bart_towers(_with_bart_keys(c))
    encoder = base.encoder
    blocks = longformer_blocks(encoder.pattern[0], c["attention_window"], c["encoder_layers"])
    both = replace(
        base,
        encoder=_with_positions(replace(encoder, block=blocks), c["max_encoder_position_embeddings"]),
        decoder=_with_positions(base.decoder, c["max_decoder_position_embeddings"]),
    )
    return model_with_head(both, c, task, bart.bart_word_head(c), start=start_token(c, task))


def _with_bart_keys(c: Config) -> Config:
    return Config({**c, **BART_ONLY})


def _with_positions(tower: Tower, length: int) -> Tower:
    return replace(tower, positions=Learned(length=length))


def weights(c: Config, task: HeadKind) -> Table:
    theirs, ours = "led.encoder.layers.{i}.self_attn.", "encoder.blocks.{i}.attn."
    parts = {"query": "q", "key": "k", "value": "v"}
    inner = theirs + "longformer_self_attn."
    own: list[WeightRule] = [Name(theirs + "output.{p}", ours + "out.{p}")]
    for them, us in parts.items():
        own.append(Name(f"{inner}{them}.{{p}}", f"{ours}{us}.{{p}}"))
        own.append(Name(f"{inner}{them}_global.{{p}}", f"{ours}{us}_global.{{p}}"))
    rules = [_with_led_prefix(rule) for rule in bart.weights(_with_bart_keys(c), task)]
    return (*(rule for rule in rules if not rule.theirs.startswith(theirs)), *own)


def _with_led_prefix(rule: WeightRule) -> WeightRule:
    """A rule of BART, whose names begin with `model.`, for LED, where they begin with `led.`."""
    tail = rule.theirs.removeprefix("model.")
    return rule if tail == rule.theirs else replace(rule, theirs="led." + tail)


BART_ONLY = {
    "scale_embedding": False,
    "max_position_embeddings": 1024,
}  # of BART; LED's config has no such keys
SHARED_DEFAULTS = {
    key: value for key, value in bart.DEFAULTS.items()
    if key not in (*BART_ONLY, "forced_eos_token_id")
}  # fmt: skip
FAMILY = Family(
    name="led",
    title="LED",
    year=2020,
    paper="https://arxiv.org/abs/2004.05150",
    mode="encoder-decoder",
    uses="summaries of long documents",
    spec=spec,
    weights=weights,
    prefix="led.",
    parent="bart",
    architectures={
        "tokens": "LEDForConditionalGeneration", "hidden": "LEDModel", "span": "LEDForQuestionAnswering",
    },
    defaults={
        **SHARED_DEFAULTS, "max_encoder_position_embeddings": 16384, "max_decoder_position_embeddings": 1024,
        "attention_window": 512,
    },
    sizes={
        "led-base": {**bart.FAMILY.sizes["bart-base"], "attention_window": 1024},
        "led-large": {"attention_window": 1024},
    },
)  # fmt: skip
