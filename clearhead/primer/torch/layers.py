"""The parts of a Transformer under the notes' names, each a door to a block of the core.

Shape suffixes: B sentences, T tokens, K source tokens, H heads, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ...nn import MLP, Attention, Block, Sinusoidal, Softmax, Xavier
from ...nn.feedforward import Activation
from ...nn.init import initialise
from ...nn.masks import Causal, Mask
from ...nn.positions import waves
from ...nn.tap import OFF
from .calls import Patterns, context
from .masks import MaskLike, at_attention
from .names import one_of, seed_or_draw, share


class PositionwiseFeedForward(nn.Module):
    """linear2(dropout(act(linear1(x)))), each token alone; `d_ff` is four times the width unless given."""

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

    The notes divide by std + eps, with a std that divides by N - 1: of width 4 the result is off by 0.2, of
    inputs of size 1e-4 by a factor of nine, of width 1 it is NaN.
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
    """The same. The notes doubled an index that already counts 0, 2, 4: only columns 0 and 1 were right."""
    return positional_encoding(max_seq_len, d_model)


class PositionalEncoding(nn.Module):
    """x + waves, then dropout. The notes' table ended at `max_seq_len`; waves are computed for any length.

    Longer than in training works, but how well a model does there is another question.
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
        """The table (1, max_seq_len, D), made when it is asked for: no checkpoint carries it."""
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
    """One layer of the notes: biases everywhere, dropout on weights, hidden layer and what each part adds."""
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


class DecoderLayer(_Layer):
    """Masked self-attention, a look at the source, feed-forward: `layer(x, enc_output, src_mask, tgt_mask)`.

    One note returned a pair here and a tensor from its encoder layer, so that a stack of these broke. Here a
    layer returns its stream; `return_attention=True` adds the cross-attention's weights (B, H, T, K).
    """

    cross = True

    def forward(
        self,
        x: Tensor,
        enc_output: Tensor,
        src_mask: MaskLike = None,
        tgt_mask: MaskLike = None,
        *,
        return_attention: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        batch, length = x.shape[:2]
        rule = at_attention(tgt_mask, batch=batch, queries=length, keys=length)
        source = at_attention(src_mask, batch=batch, queries=length, keys=enc_output.shape[1])
        seen = Patterns()
        tap = seen.tap() if return_attention else OFF
        ctx = context(x, self._ruled(rule), memory_BKD=enc_output, memory_rule=source, tap=tap)
        out: Tensor = self.inner(x, ctx)
        return (out, seen["cross.pattern"]) if return_attention else out


TransformerDecoderLayer = DecoderLayer
