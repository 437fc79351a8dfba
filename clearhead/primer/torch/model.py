"""The whole model under the names of the textbooks: source and target ids in, logits out.

Shape suffixes: B sentences, S source tokens, T target tokens, H heads, D width, V words of the target.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from torch import Tensor, nn

from ...nn import (
    OFF,
    Activation,
    EncoderDecoder,
    Sinusoidal,
    States,
    Tap,
    TokenHead,
    Tokens,
    Tower,
    Xavier,
    norm,
)
from . import masks
from .calls import Patterns
from .layers import block_spec
from .masks import MaskLike
from .names import one_of, seed_or_draw, share

# Vaswani et al. 2017, table 3, "base", with the warm-up and the label smoothing it was trained with:
# `Transformer(V, V, **BASE)`, `get_lr_scheduler(optimizer, BASE["d_model"], BASE["warmup_steps"])`.
BASE: Mapping[str, Any] = MappingProxyType({
    "d_model": 512, "n_heads": 8, "d_ff": 2048, "num_layers": 6, "dropout": 0.1,
    "warmup_steps": 4000, "label_smoothing": 0.1,
})  # fmt: skip


class Attentions(tuple[Tensor, ...]):
    """The weights of a call: `weights[layer][0, head]` is one head of the attention to the source.

    `encoder`, `decoder` and `cross` hold all of them, one (B, H, queries, keys) for each layer. The sequence
    itself is `cross`: the one that relates words of both languages.
    """

    encoder: tuple[Tensor, ...]
    decoder: tuple[Tensor, ...]
    cross: tuple[Tensor, ...]

    def __new__(
        cls, encoder: tuple[Tensor, ...], decoder: tuple[Tensor, ...], cross: tuple[Tensor, ...]
    ) -> Attentions:
        self = super().__new__(cls, cross)
        self.encoder, self.decoder, self.cross = encoder, decoder, cross
        return self

    def __getnewargs__(self) -> tuple[tuple[Tensor, ...], ...]:
        return self.encoder, self.decoder, self.cross  # so that copy and pickle can recreate it


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
) -> EncoderDecoder:
    """The model as a spec of the core: two tables, no norm at the end unless the norms come first."""
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

    return EncoderDecoder(
        encoder=tower(src_vocab_size, encoder_layers, cross=False),
        decoder=tower(tgt_vocab_size, decoder_layers, cross=True),
        head=TokenHead(vocab=tgt_vocab_size, tied=tie_output, bias=True),
        shared=share_embeddings,
        init=Xavier(),
    )


class Transformer(nn.Module):
    """`model(src, tgt, src_mask, tgt_mask)` -> logits (B, T, V). 10,000 words a side: 59,508,496 parameters.

    The decoder is always causal, with or without `tgt_mask`. (A 0 / -inf mask in code that blocks zeros lets
    each word see only the future, and since the shapes are right, nothing reveals the bug.) Embeddings start
    so that, times sqrt(d_model), they have variance one; with Xavier initialisation the positions are more
    than twice as large as the words. The paper's 65 million parameters are for one shared vocabulary of
    37,000.

    `Transformer(V, V, **BASE)` is the paper's base model. `warmup_steps` and `label_smoothing`, which such
    configs hold beside the sizes, have no effect here and are kept as attributes for training code.
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
        warmup_steps: int = BASE["warmup_steps"],
        label_smoothing: float = BASE["label_smoothing"],
        seed: int | None = None,
    ) -> None:
        super().__init__()
        # Training settings: not part of the model, but configs contain them and training code reads them.
        self.warmup_steps, self.label_smoothing = warmup_steps, share(label_smoothing, "label_smoothing")
        # Sinusoids work for any length: this one is informative, not a limit.
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
        self.inner = self.spec.build(seed=seed_or_draw(seed)).train()

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: MaskLike = None,
        tgt_mask: MaskLike = None,
        return_attention: bool = False,  # noqa: FBT001, FBT002 (fifth in textbooks, too)
    ) -> Tensor | tuple[Tensor, Attentions]:
        seen = Patterns()
        tap = seen.tap() if return_attention else OFF
        encoder_output = self._encode(src, src_mask, tap)
        logits = self.inner.read(self._decode(tgt, encoder_output, tgt_mask, tap))
        return (logits, self._attentions(seen)) if return_attention else logits

    def encode(self, src: Tensor, src_mask: MaskLike = None) -> Tensor:
        """Source ids -> states (B, S, D)."""
        return self._encode(src, src_mask, OFF).x_BTD

    def decode(
        self, tgt: Tensor, enc_output: Tensor, src_mask: MaskLike = None, tgt_mask: MaskLike = None
    ) -> Tensor:
        """Target ids and the encoder's states -> states (B, T, D)."""
        source = States(enc_output, masks.at_source(src_mask, *enc_output.shape[:2]).segments())
        return self._decode(tgt, source, tgt_mask, OFF).x_BTD

    @property
    def output_linear(self) -> nn.Linear:
        """The last layer, states -> logits: `model(src, tgt) == model.output_linear(model.decode(tgt, ...))`.

        An `nn.Linear` over this model's own parameters; with `tie_output` its weight is the embedding's.
        """
        own = dict(self.inner.named_parameters())
        table = "encoder.embed.table.weight" if self.spec.shared else "decoder.embed.table.weight"
        weight = own.get("head.weight", own.get(table))
        assert weight is not None
        linear = nn.Linear(weight.shape[1], weight.shape[0], device="meta")
        linear.weight, linear.bias = weight, own["head.bias"]
        return linear.train(self.training)

    def encoder(self, src: Tensor, src_mask: MaskLike = None) -> Tensor:
        """As `encode`, under its other name."""
        return self.encode(src, src_mask)

    def decoder(
        self, tgt: Tensor, enc_output: Tensor, src_mask: MaskLike = None, tgt_mask: MaskLike = None
    ) -> Tensor:
        """Logits (B, T, V), as decoding loops expect that call `model.decoder`; `decode` returns states."""
        return self.inner.read(States(self.decode(tgt, enc_output, src_mask, tgt_mask)))

    @staticmethod
    def generate_square_subsequent_mask(size: int) -> Tensor:
        return masks.generate_square_subsequent_mask(size)

    def describe(self) -> str:
        """The structure as text, with the number of parameters."""
        counts = [(p.numel(), p.requires_grad) for p in self.parameters()]
        total, trainable = sum(n for n, _ in counts), sum(n for n, trained in counts if trained)
        head = self.spec.head
        assert isinstance(head, TokenHead)
        tied = " (the target embedding's weights)" if head.tied else ""
        same = " (the source's table)" if self.spec.shared else ""
        lines = [
            f"source ids -> {_embedding(self.spec.encoder)}",
            f"  encoder x {self.spec.encoder.depth}: {_parts(self.spec.encoder, 'self-attention')}",
            f"target ids (shifted right) -> {_embedding(self.spec.decoder)}{same}",
            f"  decoder x {self.spec.decoder.depth}: "
            + _parts(self.spec.decoder, "masked self-attention", "attention to the encoder's last output"),
            f"  linear{tied} -> {head.vocab:,} logits",
            f"{total:,} parameters, {trainable:,} trainable",
        ]
        return "\n".join(lines)

    def _encode(self, src: Tensor, src_mask: MaskLike, tap: Tap) -> States:
        return self.inner.encode(src, masks.at_source(src_mask, *src.shape), tap=tap)

    def _decode(self, tgt: Tensor, encoder_output: States, tgt_mask: MaskLike, tap: Tap) -> States:
        return self.inner.decode(tgt, encoder_output, masks.at_target(tgt_mask, *tgt.shape), tap=tap)

    def _attentions(self, seen: Patterns) -> Attentions:
        def layers(side: str, part: str, depth: int) -> tuple[Tensor, ...]:
            return tuple(seen[f"{side}.blocks.{i}.{part}.pattern"] for i in range(depth))

        encoder, decoder = self.spec.encoder.depth, self.spec.decoder.depth
        return Attentions(
            layers("encoder", "attn", encoder),
            layers("decoder", "attn", decoder),
            layers("decoder", "cross", decoder),
        )


def _embedding(tower: Tower) -> str:
    assert isinstance(tower.embed, Tokens)
    return "embedding + positions" if tower.embed.scale == 1.0 else "embedding * sqrt(d_model) + positions"


def _parts(tower: Tower, *attention: str) -> str:
    parts = (*attention, "feed-forward")
    if tower.pattern[0].order == "pre":
        return ", ".join(f"norm, {part}, add" for part in parts) + "; a last norm"
    return ", ".join(f"{part}, add & norm" for part in parts)
