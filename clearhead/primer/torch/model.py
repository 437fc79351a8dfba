"""The whole model under the notes' names: source and target ids in, logits out.

Shape suffixes: B sentences, S source tokens, T target tokens, H heads, D width, V words of the target.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from torch import Tensor, nn

from ...nn import Pair, PairModel, Sinusoidal, TokenHead, Tokens, Tower, Xavier, norm
from ...nn.context import States
from ...nn.feedforward import Activation
from ...nn.tap import OFF, Tap
from . import masks
from .calls import Patterns
from .layers import block_spec
from .masks import MaskLike
from .names import one_of, seed_or_draw


class Attentions(NamedTuple):
    """The weights of a call, a tuple with one (B, H, queries, keys) for each layer."""

    encoder: tuple[Tensor, ...]
    decoder: tuple[Tensor, ...]
    cross: tuple[Tensor, ...]


def transformer_spec(
    src_vocab_size: int,
    tgt_vocab_size: int,
    *,
    d_model: int = 512,
    num_heads: int = 8,
    encoder_layers: int = 6,
    decoder_layers: int = 6,
    d_ff: int = 2048,
    dropout: float = 0.1,
    activation: Activation = "relu",
    norm_first: bool = False,
    share_embeddings: bool = False,
    tie_output: bool = False,
    scale_embeddings: bool = True,
) -> Pair:
    """The notes' model as a spec of the core: two tables, no norm at the end unless the norms come first."""
    scale = math.sqrt(d_model) if scale_embeddings else 1.0

    def tower(vocab: int, depth: int, *, cross: bool) -> Tower:
        return Tower(
            width=d_model,
            depth=depth,
            causal=cross,
            embed=Tokens(vocab=vocab, scale=scale, dropout=dropout),
            positions=Sinusoidal(),
            block=block_spec(
                num_heads, d_ff, dropout, activation=activation, norm_first=norm_first, cross=cross
            ),
            last_norm=norm.Layer() if norm_first else None,
        )

    return Pair(
        encoder=tower(src_vocab_size, encoder_layers, cross=False),
        decoder=tower(tgt_vocab_size, decoder_layers, cross=True),
        head=TokenHead(vocab=tgt_vocab_size, tied=tie_output, bias=True),
        shared=share_embeddings,
        init=Xavier(),
    )


class Transformer(nn.Module):
    """`model(src, tgt, src_mask, tgt_mask)` -> logits (B, T, V). 10,000 words a side: 59,508,496 weights.

    The decoder never looks ahead, with or without `tgt_mask`. The notes' demo hands a 0 / -inf mask to code
    that blocks zeros: each word sees only the future, and since the shapes are right nothing shows it. Their
    "65M" is the paper's figure for another vocabulary. Tables start so that, times sqrt(d_model), they have
    the size of one; Xavier's start leaves the positions more than twice as loud as the words.
    """

    def __init__(
        self,
        src_vocab_size: int,
        tgt_vocab_size: int,
        d_model: int = 512,
        num_heads: int | None = None,
        num_encoder_layers: int | None = None,
        num_decoder_layers: int | None = None,
        d_ff: int = 2048,
        max_seq_len: int | None = None,
        dropout: float = 0.1,
        *,
        n_heads: int | None = None,
        nhead: int | None = None,
        num_layers: int | None = None,
        max_len: int | None = None,
        activation: Activation = "relu",
        norm_first: bool = False,
        share_embeddings: bool = False,
        tie_output: bool = False,
        scale_embeddings: bool = True,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        # Sines and cosines go on for ever: the length is a note for the reader, not a limit.
        self.max_seq_len = one_of(5000, max_seq_len=max_seq_len, max_len=max_len)
        self.spec = transformer_spec(
            src_vocab_size,
            tgt_vocab_size,
            d_model=d_model,
            num_heads=one_of(8, num_heads=num_heads, n_heads=n_heads, nhead=nhead),
            encoder_layers=one_of(6, num_encoder_layers=num_encoder_layers, num_layers=num_layers),
            decoder_layers=one_of(6, num_decoder_layers=num_decoder_layers, num_layers=num_layers),
            d_ff=d_ff,
            dropout=dropout,
            activation=activation,
            norm_first=norm_first,
            share_embeddings=share_embeddings,
            tie_output=tie_output,
            scale_embeddings=scale_embeddings,
        )
        model = self.spec.build(seed=seed_or_draw(seed))
        assert isinstance(model, PairModel)
        self.inner = model.train()

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: MaskLike = None,
        tgt_mask: MaskLike = None,
        return_attention: bool = False,  # noqa: FBT001, FBT002 (the notes' argument)
    ) -> Tensor | tuple[Tensor, Attentions]:
        seen = Patterns()
        tap = seen.tap() if return_attention else OFF
        memory = self._encode(src, src_mask, tap)
        logits = self.inner.read(self._decode(tgt, memory, tgt_mask, tap))
        return (logits, self._attentions(seen)) if return_attention else logits

    def encode(self, src: Tensor, src_mask: MaskLike = None) -> Tensor:
        """Source ids -> states (B, S, D)."""
        return self._encode(src, src_mask, OFF).x_BTD

    def decode(
        self, tgt: Tensor, enc_output: Tensor, src_mask: MaskLike = None, tgt_mask: MaskLike = None
    ) -> Tensor:
        """Target ids and the encoder's states -> states (B, T, D)."""
        return self._decode(tgt, self._memory(enc_output, src_mask), tgt_mask, OFF).x_BTD

    def encoder(self, src: Tensor, src_mask: MaskLike = None) -> Tensor:
        """As `encode`: one note's spelling."""
        return self.encode(src, src_mask)

    def decoder(
        self, tgt: Tensor, enc_output: Tensor, src_mask: MaskLike = None, tgt_mask: MaskLike = None
    ) -> Tensor:
        """Logits (B, T, V), as one note's `greedy_decode` expects; another's `decode` gave it states."""
        return self.inner.read(States(self.decode(tgt, enc_output, src_mask, tgt_mask)))

    @staticmethod
    def generate_square_subsequent_mask(size: int) -> Tensor:
        return masks.generate_square_subsequent_mask(size)

    def describe(self) -> str:
        """The structure, as one draws it by hand."""
        encoder, decoder = self.spec.encoder, self.spec.decoder
        lines = [
            "source ids -> embedding * sqrt(d_model) + positions",
            f"  encoder x {encoder.depth}: self-attention, add & norm, feed-forward, add & norm",
            "target ids (shifted right) -> embedding * sqrt(d_model) + positions",
            f"  decoder x {decoder.depth}: masked self-attention, add & norm, "
            "attention to the encoder's last output, add & norm, feed-forward, add & norm",
            f"  linear -> {self.spec.count():,} parameters in all",
        ]
        return "\n".join(lines)

    def _encode(self, src: Tensor, src_mask: MaskLike, tap: Tap) -> States:
        return self.inner.encode(src, masks.at_source(src_mask, *src.shape), tap=tap)

    def _decode(self, tgt: Tensor, memory: States, tgt_mask: MaskLike, tap: Tap) -> States:
        return self.inner.decode(tgt, memory, masks.at_target(tgt_mask, *tgt.shape), tap=tap)

    def _memory(self, enc_output: Tensor, src_mask: MaskLike) -> States:
        return States(enc_output, masks.at_source(src_mask, *enc_output.shape[:2]).segments())

    def _attentions(self, seen: Patterns) -> Attentions:
        def layers(side: str, part: str, depth: int) -> tuple[Tensor, ...]:
            return tuple(seen[f"{side}.blocks.{i}.{part}.pattern"] for i in range(depth))

        encoder, decoder = self.spec.encoder.depth, self.spec.decoder.depth
        return Attentions(
            layers("encoder", "attn", encoder),
            layers("decoder", "attn", decoder),
            layers("decoder", "cross", decoder),
        )
