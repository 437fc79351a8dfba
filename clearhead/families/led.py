"""LED (Beltagy 2020): BART whose encoder reads long documents through Longformer's attention."""

from dataclasses import replace

from ..nn import EncoderDecoder, Learned, Tower
from ..weights import Name, Table, WeightRule
from . import bart
from .family import Config, Family, HeadKind
from .longformer import windowed


def spec(c: Config, task: HeadKind) -> EncoderDecoder:
    whole = bart.spec(Config({**c, **BART_ONLY}), task)
    encoder = whole.encoder
    blocks = windowed(encoder.pattern[0], c["attention_window"], c["encoder_layers"])
    return replace(
        whole,
        encoder=_placed(replace(encoder, block=blocks), c["max_encoder_position_embeddings"]),
        decoder=_placed(whole.decoder, c["max_decoder_position_embeddings"]),
    )


def _placed(tower: Tower, length: int) -> Tower:
    return replace(tower, positions=Learned(length=length))


def weights(c: Config, task: HeadKind) -> Table:
    theirs, ours = "led.encoder.layers.{i}.self_attn.", "encoder.blocks.{i}.attn."
    parts = {"query": "q", "key": "k", "value": "v"}
    inner = theirs + "longformer_self_attn."
    own: list[WeightRule] = [Name(theirs + "output.{p}", ours + "out.{p}")]
    for them, us in parts.items():
        own.append(Name(f"{inner}{them}.{{p}}", f"{ours}{us}.{{p}}"))
        own.append(Name(f"{inner}{them}_global.{{p}}", f"{ours}{us}_global.{{p}}"))
    rows = [_renamed(row) for row in bart.weights(Config({**c, **BART_ONLY}), task)]
    return (*(row for row in rows if not row.theirs.startswith(theirs)), *own)


def _renamed(row: WeightRule) -> WeightRule:
    """BART's rows: theirs begin with `model.`, these with `led.`."""
    tail = row.theirs.removeprefix("model.")
    return row if tail == row.theirs else replace(row, theirs="led." + tail)


BART_ONLY = {
    "scale_embedding": False,
    "max_position_embeddings": 1024,
}  # of BART; LED's config has no such keys
SAME = {
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
    architectures={"tokens": "LEDForConditionalGeneration", "hidden": "LEDModel"},
    defaults={
        **SAME, "max_encoder_position_embeddings": 16384, "max_decoder_position_embeddings": 1024,
        "attention_window": 512,
    },
    sizes={
        "led-base": {**bart.FAMILY.sizes["bart-base"], "attention_window": 1024},
        "led-large": {"attention_window": 1024},
    },
)  # fmt: skip
