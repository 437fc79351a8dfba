"""Encoder-decoder models: source and target ids in, logits of the target out; or one text in, labels out.

Shape suffixes: B batch, T tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from torch import Tensor

from ..errors import InputError, SpecError
from ..spec import Amount
from .cache import Cache
from .context import States
from .embed import Tokens
from .heads import Head
from .init import Init, Normal
from .masks import Documents, segment_positions
from .model import MaskLike, Model, TransformerModel, build_head, check_head
from .tap import OFF, Tap
from .tower import Tower


@dataclass(frozen=True, kw_only=True)
class TwoTowers(Model):
    """What encoder-decoder models share: the decoder attends to the output of the encoder."""

    encoder: Tower
    decoder: Tower
    head: Head | None = None
    shared: bool = True  # encoder and decoder use one embedding table
    init: Init = field(default_factory=Normal)

    def check(self) -> None:
        if self.head is not None:
            check_head(self.head, self.decoder)
        if not all(block.cross for block in self.decoder.pattern):
            raise SpecError(
                f"the decoder of {type(self).__name__} needs cross-attention: Block(cross=Attention(...))"
            )
        if self.encoder.shortens:
            raise SpecError("the decoder attends to every token of the source: set Pooling(restore=...)")
        embeds = self.encoder.embed, self.decoder.embed
        if self.shared and not all(isinstance(embed, Tokens) for embed in embeds):
            raise SpecError("only token tables can be shared between encoder and decoder")
        if self.shared and _table(self.encoder) != _table(self.decoder):
            raise SpecError(
                f"a shared table must fit both sides; encoder {_table(self.encoder)}, decoder "
                f"{_table(self.decoder)} (vocabulary, width)"
            )

    @property
    def towers(self) -> dict[str, Tower]:
        return {"encoder": self.encoder, "decoder": self.decoder}

    @property
    def source_tower(self) -> Tower:
        return self.encoder


@dataclass(frozen=True, kw_only=True)
class EncoderDecoder(TwoTowers):
    """Encoder and decoder: the original Transformer, T5, BART."""

    def assemble(self) -> EncoderDecoderModel:
        return EncoderDecoderModel(self)


@dataclass(frozen=True, kw_only=True)
class SameInput(TwoTowers):
    """Encoder and decoder read the same text, the decoder one token later: BART's and T5's classifiers.

    The decoder's input is the text after `start`, without the last token of the text.
    """

    start: Amount | None = None  # id of the first token; None: the last token of the text (mBART)
    end: Amount | None = None  # the decoder reads to the last token of this id; None: to the end of the text

    @property
    def inputs(self) -> int:
        return 1

    @property
    def decodes(self) -> bool:
        return False

    def assemble(self) -> SameInputModel:
        return SameInputModel(self)


class TwoStackModel(TransformerModel):
    """What the modules of encoder-decoder models share: the two towers and the head."""

    spec: TwoTowers

    def __init__(self, spec: TwoTowers) -> None:
        super().__init__()
        self.spec = spec
        self.encoder = spec.encoder.build()
        self.decoder = spec.decoder.build(encoder_width=spec.encoder.out_width)
        self.head = build_head(spec.head, spec.decoder)
        self.second = None
        if spec.shared:
            # One module in two places, not one tensor: sharing survives moving the model between devices.
            self.encoder.embed.table = self.decoder.embed.table

    def encode(self, source_BT: Tensor, mask: MaskLike = None, *, tap: Tap = OFF) -> States:
        states: States = self.encoder(source_BT, mask=mask, tap=tap.at("encoder"))
        return states.whole or states  # the decoder attends to virtual tokens, too

    def decode(
        self,
        ids_BT: Tensor,
        encoder_output: States | None = None,
        mask: MaskLike = None,
        *,
        cache: Cache | None = None,
        tap: Tap = OFF,
    ) -> States:
        states: States = self.decoder(
            ids_BT, mask=mask, encoder_output=encoder_output, cache=cache, tap=tap.at("decoder")
        )
        return states


class EncoderDecoderModel(TwoStackModel):
    spec: EncoderDecoder
    their_names: ClassVar = {
        "input_ids": "source_BT",
        "attention_mask": "src_mask",
        "decoder_input_ids": "target_BT",
        "decoder_attention_mask": "tgt_mask",
    }

    def states(
        self,
        source_BT: Tensor,
        target_BT: Tensor,
        src_mask: MaskLike = None,
        tgt_mask: MaskLike = None,
        *,
        cache: Cache | None = None,
        tap: Tap = OFF,
    ) -> States:
        encoder_output = self.encode(source_BT, src_mask, tap=tap)
        return self.decode(target_BT, encoder_output, tgt_mask, cache=cache, tap=tap)


class SameInputModel(TwoStackModel):
    spec: SameInput
    their_names: ClassVar = {"input_ids": "ids_BT", "attention_mask": "mask"}

    def states(
        self, ids_BT: Tensor, mask: MaskLike = None, *, types: Tensor | None = None, tap: Tap = OFF
    ) -> States:
        if types is not None:
            raise InputError("this model has no segment types; leave types (token_type_ids) out")
        encoded: States = self.encoder(ids_BT, mask=mask, tap=tap.at("encoder"))
        encoder_output, segment_BT = encoded.whole or encoded, encoded.segment_BT
        states = self.decode(
            self.shifted(ids_BT, segment_BT),
            encoder_output,
            None if segment_BT is None else Documents(segment_BT),
            tap=tap,
        )
        return states if self.spec.end is None else self._up_to_end(states, ids_BT)

    def shifted(self, ids_BT: Tensor, segment_BT: Tensor | None = None) -> Tensor:
        """The input of the decoder: every text one token later, after the start token."""
        if segment_BT is None:
            segment_BT = torch.zeros_like(ids_BT)
        real_BT = segment_BT >= 0
        slot_T = torch.arange(ids_BT.shape[1], device=ids_BT.device)
        # The real token before each one: padding may also stand inside a text.
        last_BT = torch.where(real_BT, slot_T, 0).cummax(1).values
        before_BT = ids_BT.gather(1, last_BT.roll(1, dims=1))
        first_BT = real_BT & (segment_positions(segment_BT) == 0)
        if self.spec.start is not None:
            return before_BT.masked_fill(first_BT, self.spec.start)
        same_BTT = segment_BT[:, :, None] == segment_BT[:, None, :]
        final_BT = torch.where(same_BTT, slot_T, 0).max(2).values
        return torch.where(first_BT, ids_BT.gather(1, final_BT), before_BT)

    def _up_to_end(self, states: States, ids_BT: Tensor) -> States:
        """The same states, in which whatever follows the last end token of a row counts as padding."""
        segment_BT = states.segment_BT
        if segment_BT is None:
            segment_BT = torch.zeros_like(ids_BT)
        slot_T = torch.arange(ids_BT.shape[1], device=ids_BT.device)
        ends_BT = (ids_BT == self.spec.end) & (segment_BT >= 0)
        last_B = torch.where(ends_BT, slot_T, -1).max(1).values
        after_BT = (slot_T > last_B[:, None]) & (last_B >= 0)[:, None]  # without an end: to the last token
        return replace(states, segment_BT=segment_BT.masked_fill(after_BT, -1))


def _table(tower: Tower) -> tuple[int, int]:
    assert isinstance(tower.embed, Tokens)
    return tower.embed.vocab, tower.embed.table_widths(tower.width)[0]
