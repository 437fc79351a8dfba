"""Families with an encoder and a decoder: both towers in; the model of each of their classes out.

Most classes use both towers; some keep one of them. Classifiers feed one text to both.
"""

from __future__ import annotations

from dataclasses import replace

from ..errors import SpecError
from ..nn import (
    Block,
    EncoderDecoder,
    Head,
    Labels,
    Model,
    SameInput,
    SingleStack,
    Span,
    Tags,
    TokenHead,
    Tower,
    Transform,
)
from .family import ONE_TOWER, Config, HeadKind


def model_with_head(
    both: EncoderDecoder, c: Config, task: HeadKind, words: TokenHead, *, start: int | None = None
) -> Model:
    """`both` without a head; `start` is the token that a classifier's decoder reads first."""
    dropout = float(c.get("classifier_dropout") or 0.0)
    heads: dict[HeadKind, Head | None] = {
        "hidden": None,
        "encoder": None,
        "tokens": words,
        "decoder": replace(words, bias=False, scale=1.0),
        "labels": Labels(
            count=c.labels, pool="last", transform=Transform(act="tanh"), dropout=dropout
        ),  # of the last end token
        "span": Span(),
        "tags": Tags(count=c.labels, dropout=dropout),
    }
    head = heads[task]
    if task in ONE_TOWER:
        return SingleStack(tower=_alone(both.tower_fields[ONE_TOWER[task]]), head=head, init=both.init)
    if task in ("labels", "span"):
        end = _token_id(c, "eos_token_id") if task == "labels" else None
        if start is None and end is not None and end == c["pad_token_id"]:
            # Theirs looks for the last token that is not padding, to put it in front of the text.
            raise SpecError(f"eos_token_id and pad_token_id are both {end}; a classifier needs two tokens")
        return SameInput(
            encoder=both.encoder,
            decoder=both.decoder,
            head=head,
            shared=both.shared,
            init=both.init,
            start=start,
            end=end,
        )
    return replace(both, head=head)


def start_token(c: Config, task: HeadKind) -> int | None:
    """The token before the text, for classes whose decoder reads the text that the encoder reads."""
    return _token_id(c, "decoder_start_token_id") if task in ("labels", "span") else None


def _alone(tower: Tower) -> Tower:
    return tower.edit(Block, cross=None) if tower.causal else tower


def _token_id(c: Config, key: str) -> int:
    value = c[key]
    number = value[0] if isinstance(value, list | tuple) and value else value
    if not isinstance(number, int) or number < 0:
        raise SpecError(f"{key} is {value}; a classifier of this family needs the id of a token")
    return number
