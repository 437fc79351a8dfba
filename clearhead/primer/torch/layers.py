"""The parts of a Transformer under the names of the textbooks, each a thin wrapper over a block of the core.

Shape suffixes: B sentences, T tokens, K source tokens, H heads, D width.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from ...nn import (
    MLP,
    OFF,
    Activation,
    Attention,
    Block,
    Causal,
    Mask,
    Sinusoidal,
    Softmax,
    Xavier,
    initialise,
    waves,
)
from .calls import Patterns, context
from .masks import MaskLike, at_attention
from .names import one_of, seed_or_draw, share


class PositionwiseFeedForward(nn.Module):
    """linear2(dropout(act(linear1(x)))), each token by itself; `d_ff` defaults to four times the width."""

    def __init__(
        self,
        d_model: int,
        d_ff: int | None = None,
        dropout: float = 0.1,
        *,
        activation: Activation = "relu",
        seed: int | None = None,
    ) -> None:
        super().__init__()
        spec = MLP(hidden=d_ff or 4 * d_model, act=activation, dropout=share(dropout))
        self.inner = spec.build(d_model)
        initialise(self.inner, Xavier(), seed_or_draw(seed))

    @property
    def linear1(self) -> nn.Module:
        return self.inner.get_submodule("up")

    @property
    def linear2(self) -> nn.Module:
        return self.inner.get_submodule("down")

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.inner(x, context(x))
        return out


FeedForward = PositionwiseFeedForward


class LayerNorm(nn.LayerNorm):
    """(x - mean) / sqrt(variance + eps) * gamma + beta, torch's own.

    A common listing divides by std + eps, with a std that divides by N - 1: for width 4 the result is off by
    0.2, for inputs of size 1e-4 by a factor of nine, and for width 1 it is NaN.
    """

    def __init__(self, d_model: int, eps: float = 1e-6) -> None:
        super().__init__(d_model, eps=eps)

    @property
    def gamma(self) -> nn.Parameter:
        return self.weight

    @property
    def beta(self) -> nn.Parameter:
        return self.bias


def positional_encoding(seq_len: int, d_model: int) -> Tensor:
    """(T, D) of sines and cosines, float32; an odd width has one more sine."""
    return waves(torch.arange(seq_len), d_model, Sinusoidal()).float()


def get_positional_encoding(max_seq_len: int, d_model: int) -> Tensor:
    """The same. (Doubling an index that already counts 0, 2, 4 leaves only columns 0 and 1 right.)"""
    return positional_encoding(max_seq_len, d_model)


class PositionalEncoding(nn.Module):
    """x + sinusoids, then dropout. They are computed for any length; `max_seq_len` is only that of `pe`.

    Texts longer than in training work, but the model may do badly on them.

    Listings that keep a table do so in a buffer, and so should your own:

    >>> class Table(nn.Module):
    ...     def __init__(self, persistent):
    ...         super().__init__()
    ...         self.register_buffer("pe", positional_encoding(50, 8), persistent=persistent)

    A buffer is a constant that belongs to the module. It moves with it, as a plain attribute would not:

    >>> Table(persistent=True).to(torch.float64).pe.dtype
    torch.float64

    It is no parameter, so that no optimizer changes it; and whether checkpoints contain it is your choice. A
    table that can be computed again need not be in them, and then its length is free to change:

    >>> [list(Table(persistent=saved).state_dict()) for saved in (True, False)]
    [['pe'], []]
    >>> list(Table(persistent=True).parameters())
    []
    """

    def __init__(
        self,
        d_model: int,
        max_seq_len: int | None = None,
        dropout: float = 0.1,
        *,
        max_len: int | None = None,
    ) -> None:
        super().__init__()
        self.d_model, self.max_seq_len = d_model, one_of(5000, max_seq_len=max_seq_len, max_len=max_len)
        self.dropout = nn.Dropout(share(dropout))

    @property
    def pe(self) -> Tensor:
        """The table (1, max_seq_len, D), computed on access: it is in no checkpoint."""
        return positional_encoding(self.max_seq_len, self.d_model)[None]

    PE = pe

    def forward(self, x_BTD: Tensor) -> Tensor:
        places = torch.arange(x_BTD.shape[1], device=x_BTD.device)
        added: Tensor = self.dropout(x_BTD + waves(places, self.d_model, Sinusoidal()).type_as(x_BTD))
        return added


def block_spec(
    heads: int,
    d_ff: int,
    dropout: float,
    *,
    activation: Activation = "relu",
    norm_first: bool = False,
    cross: bool = False,
) -> Block:
    """One layer: biases everywhere, dropout on weights, hidden layer and what each part adds."""
    attn = Attention(heads=heads, bias="qkvo", kernel=Softmax(dropout=share(dropout)))
    return Block(
        attention=attn,
        feedforward=MLP(hidden=d_ff, act=activation, dropout=dropout),
        order="pre" if norm_first else "post",
        cross=attn if cross else None,
        dropout=dropout,
    )


class _Layer(nn.Module):
    cross = False
    act: Activation = "relu"

    def __init__(
        self,
        d_model: int,
        num_heads: int | None = None,
        d_ff: int | None = None,
        dropout: float = 0.1,
        *,
        n_heads: int | None = None,
        nhead: int | None = None,
        activation: Activation | None = None,
        norm_first: bool = False,
        is_causal: bool = False,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        heads = one_of(num_heads=num_heads, n_heads=n_heads, nhead=nhead)
        act = activation or self.act
        spec = block_spec(
            heads, d_ff or 4 * d_model, dropout, activation=act, norm_first=norm_first, cross=self.cross
        )
        self.inner, self.is_causal = spec.build(d_model, d_model), is_causal
        initialise(self.inner, Xavier(), seed_or_draw(seed))

    def _ruled(self, rule: Mask) -> Mask:
        return Causal() & rule if self.is_causal else rule


class EncoderLayer(_Layer):
    """Self-attention and feed-forward, each with residual and norm: `layer(x, mask)`.

    `norm_first` puts the norms before the parts. `return_attention=True` adds the weights (B, H, T, T).
    """

    def forward(
        self, x: Tensor, mask: MaskLike = None, *, return_attention: bool = False
    ) -> Tensor | tuple[Tensor, Tensor]:
        batch, length = x.shape[:2]
        rule = at_attention(mask, batch=batch, queries=length, keys=length)
        seen = Patterns()
        tap = seen.tap() if return_attention else OFF
        out: Tensor = self.inner(x, context(x, self._ruled(rule), tap=tap))
        return (out, seen["attn.pattern"]) if return_attention else out


TransformerEncoderLayer = EncoderLayer


class TransformerBlock(EncoderLayer):
    """The generic block, GELU and norms after, of a BERT; with `is_causal=True` that of a GPT."""

    act: Activation = "gelu"


class DecoderOutput(NamedTuple):
    """What a `TransformerDecoderLayer` returns: `x, weights = layer(x, encoder_output)`."""

    x: Tensor  # (B, T, D)
    attention_weights: Tensor  # (B, H, T, K), of the attention to the source


class _DecoderLayer(_Layer):
    cross = True

    def _decode(
        self,
        x: Tensor | DecoderOutput,
        encoder_output: Tensor,
        src_mask: MaskLike,
        tgt_mask: MaskLike,
        *,
        return_attention: bool,
    ) -> Tensor | DecoderOutput:
        x_BTD = x.x if isinstance(x, DecoderOutput) else x
        batch, length = x_BTD.shape[:2]
        rule = at_attention(tgt_mask, batch=batch, queries=length, keys=length)
        keys = encoder_output.shape[1]
        source = at_attention(src_mask, batch=batch, queries=length, keys=keys, of_source=True)
        seen = Patterns()
        tap = seen.tap() if return_attention else OFF
        ctx = context(
            x_BTD, self._ruled(rule), encoder_output_BKD=encoder_output, source_rule=source, tap=tap
        )
        out: Tensor = self.inner(x_BTD, ctx)
        return DecoderOutput(out, seen["cross.pattern"]) if return_attention else out


class DecoderLayer(_DecoderLayer):
    """Masked self-attention, attention to the source, feed-forward.

    `layer(x, enc_output, src_mask, tgt_mask)` returns the states (B, T, D) alone, as torch's own layer does.
    `return_attention=True` adds the weights (B, H, T, K) of the attention to the source;
    `TransformerDecoderLayer` always does.
    """

    def forward(
        self,
        x: Tensor,
        enc_output: Tensor | None = None,
        src_mask: MaskLike = None,
        tgt_mask: MaskLike = None,
        *,
        encoder_output: Tensor | None = None,
        return_attention: bool = False,
    ) -> Tensor | DecoderOutput:
        encoder_output = one_of(encoder_output=encoder_output, enc_output=enc_output)
        return self._decode(x, encoder_output, src_mask, tgt_mask, return_attention=return_attention)


class TransformerDecoderLayer(_DecoderLayer):
    """The same layer, returning a pair: `x, weights = layer(x, encoder_output, src_mask, tgt_mask)`.

    A tensor in its place would unpack just as well: two sentences would become `x` and `weights` without an
    error. A stack written as `x = layer(x, encoder_output)` runs, too: a layer takes the pair of the one
    before it and reads its states. `return_attention=False` returns the states alone.
    """

    def forward(
        self,
        x: Tensor | DecoderOutput,
        encoder_output: Tensor | None = None,
        src_mask: MaskLike = None,
        tgt_mask: MaskLike = None,
        *,
        enc_output: Tensor | None = None,
        return_attention: bool = True,
    ) -> DecoderOutput | Tensor:
        encoder_output = one_of(encoder_output=encoder_output, enc_output=enc_output)
        return self._decode(x, encoder_output, src_mask, tgt_mask, return_attention=return_attention)
