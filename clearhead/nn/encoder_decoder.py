"""Encoder-decoder models: source and target ids in, logits of the target out.

Shape suffixes: B batch, T tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor

from ..errors import SpecError
from .cache import Cache
from .context import States
from .embed import Tokens
from .heads import Head
from .init import Init, Normal
from .model import MaskLike, Model, TransformerModel, build_head, check_head
from .tap import OFF, Tap
from .tower import Tower


@dataclass(frozen=True, kw_only=True)
class EncoderDecoder(Model):
    """Encoder and decoder: the original Transformer, T5, BART."""

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
                "the decoder of an EncoderDecoder needs cross-attention: Block(cross=Attention(...))"
            )
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

    def assemble(self) -> EncoderDecoderModel:
        return EncoderDecoderModel(self)


class EncoderDecoderModel(TransformerModel):
    spec: EncoderDecoder
    their_names: ClassVar = {
        "input_ids": "source_BT",
        "attention_mask": "src_mask",
        "decoder_input_ids": "target_BT",
        "decoder_attention_mask": "tgt_mask",
    }

    def __init__(self, spec: EncoderDecoder) -> None:
        super().__init__()
        self.spec = spec
        self.encoder = spec.encoder.build()
        self.decoder = spec.decoder.build(encoder_width=spec.encoder.out_width)
        self.head = build_head(spec.head, spec.decoder)
        self.second = None
        if spec.shared:
            # One module in two places, not one tensor: sharing survives moving the model between devices.
            self.encoder.embed.table = self.decoder.embed.table

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

    def encode(self, source_BT: Tensor, mask: MaskLike = None, *, tap: Tap = OFF) -> States:
        states: States = self.encoder(source_BT, mask=mask, tap=tap.at("encoder"))
        return states

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


def _table(tower: Tower) -> tuple[int, int]:
    assert isinstance(tower.embed, Tokens)
    return tower.embed.vocab, tower.embed.table_width(tower.width)
