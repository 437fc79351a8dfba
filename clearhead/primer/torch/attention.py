"""Attention under the names of the textbooks: tensors in, the weighted values and the weights out.

The weights that are returned are those before dropout: rows that sum to one. Many listings return those
after it, which in training mode do not sum to one. Masks are read as described in `masks.py`.
Shape suffixes: B sentences, H heads, T tokens, Q queries, K keys, D width, E head width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import InputError, SpecError
from ...nn import Attention, AttentionCall, Causal, LinearLayer, Softmax, Xavier, initialise
from ...spec import Spec
from .calls import Patterns, context, view
from .masks import MaskLike, at_attention
from .names import no_more, one_of, seed_or_draw, share, spelled


def scaled_dot_product_attention(
    Q: Any, K: Any, V: Any, mask: MaskLike = None, dropout: float | nn.Dropout | None = None
) -> tuple[Tensor, Tensor]:
    """softmax(Q Kᵀ / sqrt(d_k)) V and the weights, for (T, E), (B, T, E) or (B, H, T, E).

    The mask: booleans and numbers 0 / 1 mean True = 1 = may attend, 0 / -inf is added to the scores, and
    masks of `clearhead.primer.numpy` (1 = blocked) are recognised by their class; `masks.py` has the whole
    rule. A blocked key has weight exactly 0, and a query that may see nothing gets zeros. (The usual -1e9 is
    no number of half precision, and makes blocked rows uniform.)
    """
    q, k, v = (torch.as_tensor(x) for x in (Q, K, V))
    lead, axes = q.shape[:-2], q.ndim
    shapes = f"given Q {tuple(q.shape)}, K {tuple(k.shape)}, V {tuple(v.shape)}"
    if not 2 <= axes <= 4 or not lead == k.shape[:-2] == v.shape[:-2]:
        raise InputError(f"Q, K and V need the same batch and heads, (..., tokens, width); {shapes}")
    if q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
        raise InputError(f"Q and K need one width, K and V as many tokens; {shapes}")
    # (T, E) -> (1, 1, T, E), (B, T, E) -> (B, 1, T, E)
    q, k, v = (x[None, None] if axes == 2 else x[:, None] if axes == 3 else x for x in (q, k, v))
    batch, heads, queries = q.shape[:3]
    rule = at_attention(mask, batch=batch, queries=queries, keys=k.shape[2])
    seen, rate = Patterns(), dropout.p if isinstance(dropout, nn.Dropout) else dropout or 0.0
    kernel = Softmax(dropout=share(rate)).build(heads, q.shape[-1])
    kernel.train(dropout.training if isinstance(dropout, nn.Dropout) else True)
    here = view(rule, batch, queries, k.shape[2], q.device)
    mixed = kernel(AttentionCall(q, k, v, here, scale=q.shape[-1] ** -0.5), seen.tap())
    weights = seen["pattern"]
    return mixed.reshape(*lead, *mixed.shape[2:]), weights.reshape(*lead, *weights.shape[2:])


def attention(
    query: Any, key: Any, value: Any, dropout: float | nn.Dropout | None = None, mask: MaskLike = None
) -> tuple[Tensor, Tensor]:
    """The same with dropout before the mask, another common argument order."""
    return scaled_dot_product_attention(query, key, value, mask, dropout)


def basic_attention(Q: Any, K: Any, V: Any) -> tuple[Tensor, Tensor]:
    """Without a mask. A softmax that does not subtract the maximum overflows above 709; this one does not."""
    return scaled_dot_product_attention(Q, K, V)


def self_attention(X: Any, W_Q: Any, W_K: Any, W_V: Any, mask: MaskLike = None) -> Tensor:
    """Queries, keys and values of one sequence; returns the output alone."""
    x, q, k, v = (torch.as_tensor(each) for each in (X, W_Q, W_K, W_V))
    return scaled_dot_product_attention(x @ q, x @ k, x @ v, mask)[0]


@dataclass(frozen=True, kw_only=True)
class ModelArgs(Spec):
    """Settings of a model, checked; JSON by `to_dict` / `Spec.from_dict`.

    `n_embd` is the width that comes in, `dim` the one that goes out. They are the same wherever a residual is
    added, because x + f(x) needs one width; so `n_embd` is `dim` unless it is given.
    """

    dim: int = 512
    n_heads: int = 8
    n_embd: int | None = None  # None becomes dim, so that code which reads it finds a number
    n_layers: int = 6
    dropout: float = 0.1
    max_seq_len: int = 5000
    vocab_size: int = 10000

    def __post_init__(self) -> None:
        if self.n_embd is None:
            object.__setattr__(self, "n_embd", self.dim)
        super().__post_init__()

    def check(self) -> None:
        if self.dim % self.n_heads:
            raise SpecError(f"dim {self.dim} is not divisible by n_heads {self.n_heads}")
        share(self.dropout)


class MultiHeadAttention(nn.Module):
    """The four common classes of this name, distinguished by how they are created and called.

        MultiHeadAttention(512, 8, 0.1)(Q, K, V, mask)         output and weights; biases everywhere
        MultiHeadAttention(512, 8, 48, 80, 0.1)(Q, K, V)       d_k, d_v; output and weights; bias in W_O
        MultiHeadAttention(ModelArgs(dim=512), True)(q, k, v)  causal; output alone; no biases
        MultiHeadAttention(512, 8)(x, mask=m)                  self-attention; output alone; biases everywhere

    The third argument is d_k if it is 1 or more, and the dropout rate below 1. `bias` overrides which
    projections have one: "qkvo", "o", "". `need_weights` overrides what is returned. Each tensor has its own
    length, so that keys may be longer than queries; batches that differ are an error.
    """

    def __init__(
        self,
        d_model: int | ModelArgs,
        num_heads: int | None = None,
        d_k: float | None = None,
        d_v: int | None = None,
        dropout: float | None = None,
        *,
        n_heads: int | None = None,
        nhead: int | None = None,
        bias: str | None = None,
        is_causal: bool = False,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        if d_k is not None and d_k < 1:  # (512, 8, 0.1): no head is that narrow
            d_k, dropout = None, one_of(dropout=dropout, third_argument=d_k)
        if d_k is not None and d_k != int(d_k):
            raise SpecError(f"d_k is {d_k}; expected a whole number, or a dropout rate below 1")
        dropout = 0.1 if dropout is None else dropout
        key_width = None if d_k is None else int(d_k)
        if bias is None:
            bias = "" if isinstance(d_model, ModelArgs) else "qkvo" if key_width is d_v is None else "o"
        self.from_args = isinstance(d_model, ModelArgs)
        if isinstance(d_model, ModelArgs):
            args, is_causal = d_model, is_causal or num_heads is True
            heads, dropout, width, out = args.n_heads, args.dropout, args.n_embd or args.dim, args.dim
            key_width = out // heads
        else:
            heads, width, out = one_of(num_heads=num_heads, n_heads=n_heads, nhead=nhead), d_model, d_model
        kernel = Softmax(dropout=share(dropout))
        spec = Attention(heads=heads, head_dim=key_width, value_dim=d_v, bias=bias, kernel=kernel)
        self.inner = spec.build_cross(width, width)
        if out != width:  # n_embd other than dim: no residual can be added then
            self.inner.out = LinearLayer(heads * self.inner.value_dim, out, bias="o" in bias)
        self.num_heads, self.d_model = heads, out
        self.d_k, self.d_v = self.inner.head_dim, self.inner.value_dim
        self.attn_dropout = nn.Dropout(dropout)
        self.resid_dropout = nn.Dropout(dropout if self.from_args else 0.0)
        self.is_causal = is_causal
        initialise(self.inner, Xavier(), seed_or_draw(seed))

    def __getattr__(self, name: str) -> Any:
        """W_Q, w_q, wq: the projections under all their usual spellings."""
        part = {"wq": "q", "wk": "k", "wv": "v", "wo": "out"}.get(name.lower().replace("_", ""))
        return super().__getattr__(name) if part is None else getattr(self.inner, part)

    def forward(
        self,
        query: Tensor | None = None,
        key: Tensor | None = None,
        value: Tensor | None = None,
        mask: MaskLike = None,
        need_weights: bool | None = None,  # noqa: FBT001 (as torch's own module has it)
        **names: Tensor,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Also by name: query, key, value, or Q, K, V, or q, k, v; x for self-attention."""
        query = spelled("query", query, names, "Q", "q", "x")
        key, value = spelled("key", key, names, "K", "k"), spelled("value", value, names, "V", "v")
        no_more(names, "MultiHeadAttention.forward()")
        if query is None:
            raise InputError("query is missing (also spelt Q, q, x)")
        if key is not None and value is None:
            if mask is not None:
                raise InputError("value is missing: give query, key and value, or x and a mask")
            key, mask = None, key  # (x, mask)
        if need_weights is None:
            need_weights = key is not None and not self.from_args
        k, v = (query if x is None else x for x in (key, value))
        if not len(query) == len(k) == len(v) or k.shape[1] != v.shape[1]:
            raise InputError(
                f"query, key and value must have one batch, key and value one length; given "
                f"{tuple(query.shape)}, {tuple(k.shape)}, {tuple(v.shape)}"
            )
        rule = at_attention(mask, batch=len(query), queries=query.shape[1], keys=k.shape[1])
        rule = Causal() & rule if self.is_causal else rule
        seen, (k, v) = Patterns(), (self.inner.keys(k), self.inner.values(v))
        ctx = context(query, tap=seen.tap()) if need_weights else context(query)
        looks = view(rule, len(query), query.shape[1], k.shape[2], query.device)
        call = AttentionCall(self.inner.queries(query), k, v, looks, scale=self.inner.scale)
        out: Tensor = self.resid_dropout(self.inner.attend(call, ctx))
        return (out, seen["pattern"]) if need_weights else out

    def split_heads(self, x_BTD: Tensor, batch_size: int | None = None) -> Tensor:
        """(B, T, H * E) -> (B, H, T, E): `view`, then `transpose`, never `view` alone.

        A view only renames the axes of numbers that stay where they are. In memory the H * E numbers of a
        token lie together, so view(B, T, H, E) cuts each token into its heads, and transpose(1, 2) brings
        the heads forward for one product per head. view(B, H, T, E) has the same shape and is wrong: its
        first "head" is the first tokens, whole. After the transpose the numbers are no longer in order, so
        the inverse needs `contiguous()` before `view`, or `reshape` / `flatten`, which copy where they must.

        >>> tokens = torch.tensor([[[1, 2, 3, 4], [5, 6, 7, 8]]])  # 2 tokens, 2 heads of width 2
        >>> tokens.view(1, 2, 2, 2).transpose(1, 2)[0, 0].tolist()  # head 0: the first half of both tokens
        [[1, 2], [5, 6]]
        >>> tokens.view(1, 2, 2, 2)[0, 0].tolist()  # without transpose: both halves of the first token
        [[1, 2], [3, 4]]
        """
        if batch_size not in (None, len(x_BTD)):
            raise InputError(f"batch_size is {batch_size}, the tensor has {len(x_BTD)} sentences")
        return x_BTD.reshape(*x_BTD.shape[:2], self.num_heads, -1).transpose(1, 2)

    def combine_heads(self, x_BHTE: Tensor) -> Tensor:
        """(B, H, T, E) -> (B, T, H * E): the inverse; `flatten` copies, as `contiguous().view` would."""
        return x_BHTE.transpose(1, 2).flatten(2)

    def scaled_dot_product_attention(
        self, Q: Tensor, K: Tensor, V: Tensor, mask: MaskLike = None
    ) -> tuple[Tensor, Tensor]:
        """The same with this module's dropout on the weights while training; they are returned without it."""
        return scaled_dot_product_attention(Q, K, V, mask, self.attn_dropout)
