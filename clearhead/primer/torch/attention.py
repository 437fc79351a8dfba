"""Attention under the notes' names: tensors in, their mixture and the weights out. The core computes.

The weights that come back are those before dropout, rows that sum to one. The notes gave the ones after it:
in training mode their rows sum to anything, and a picture of them is not one of a distribution.
Shape suffixes: B sentences, H heads, T tokens, Q queries, K keys, D width, E head width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import InputError, SpecError
from ...nn import Attention, Softmax, Xavier
from ...nn.init import initialise
from ...nn.layers import Linear
from ...nn.masks import Causal
from ...spec import Spec
from .calls import Patterns, context, view
from .masks import MaskLike, at_attention
from .names import one_of, seed_or_draw, share


def scaled_dot_product_attention(
    Q: Any, K: Any, V: Any, mask: MaskLike = None, dropout: float | nn.Dropout | None = None
) -> tuple[Tensor, Tensor]:
    """softmax(Q Kᵀ / sqrt(d_k)) V and the weights, for (T, E), (B, T, E) or (B, H, T, E).

    Any of the notes' masks will do. A blocked key has weight exactly 0, and a query that may see nothing gets
    zeros. The notes' -1e9 is no number of half precision, and made blocked rows uniform.
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
    mixed = kernel(q, k, v, view=here, bias=None, scale=q.shape[-1] ** -0.5, tap=seen.tap())
    weights = seen["pattern"]
    return mixed.reshape(*lead, *mixed.shape[2:]), weights.reshape(*lead, *weights.shape[2:])


def attention(
    query: Any, key: Any, value: Any, dropout: float | nn.Dropout | None = None, mask: MaskLike = None
) -> tuple[Tensor, Tensor]:
    """The same, in one note's order of arguments."""
    return scaled_dot_product_attention(query, key, value, mask, dropout)


def basic_attention(Q: Any, K: Any, V: Any) -> tuple[Tensor, Tensor]:
    """Without a mask. The notes' softmax overflows for scores above 709; this one does not."""
    return scaled_dot_product_attention(Q, K, V)


def self_attention(X: Any, W_Q: Any, W_K: Any, W_V: Any, mask: MaskLike = None) -> Tensor:
    """Queries, keys and values of one sequence; the output alone. The notes' softmax is never defined."""
    x, q, k, v = (torch.as_tensor(each) for each in (X, W_Q, W_K, W_V))
    return scaled_dot_product_attention(x @ q, x @ k, x @ v, mask)[0]


@dataclass(frozen=True, kw_only=True)
class ModelArgs(Spec):
    """The settings one note uses and never defines; checked, and JSON by `to_dict` / `Spec.from_dict`.

    `n_embd` is the width that comes in, `dim` the one that goes out. They are the same wherever a residual is
    added: x + f(x) needs one width.
    """

    dim: int = 512
    n_heads: int = 8
    n_embd: int | None = None  # None: as dim
    n_layers: int = 6
    dropout: float = 0.1
    max_seq_len: int = 5000
    vocab_size: int = 10000

    def check(self) -> None:
        if self.dim % self.n_heads:
            raise SpecError(f"dim {self.dim} is not divisible by n_heads {self.n_heads}")
        share(self.dropout)


class MultiHeadAttention(nn.Module):
    """All four of the notes' classes of this name, told apart by how they are made and called.

        MultiHeadAttention(512, num_heads=8)(Q, K, V, mask)          output and weights
        MultiHeadAttention(512, n_heads=8, d_k=48, d_v=80)(Q, K, V)  heads of any width
        MultiHeadAttention(ModelArgs(dim=512), is_causal=True)(q, k, v)  output, and no biases
        MultiHeadAttention(512, 8)(x, mask=m)                        self-attention, output

    `bias` names the projections that have one: "qkvo", "o" (one note), "" (another). `need_weights` overrules
    what comes back. Two notes reshape keys with the length of the queries, so a longer source is an error;
    another's -1 for the length turns two sentences into one. Here each tensor has its own length, and batches
    that differ are refused.
    """

    def __init__(
        self,
        d_model: int | ModelArgs,
        num_heads: int | None = None,
        dropout: float = 0.1,
        *,
        n_heads: int | None = None,
        nhead: int | None = None,
        d_k: int | None = None,
        d_v: int | None = None,
        bias: str | None = None,
        is_causal: bool = False,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        self.from_args = isinstance(d_model, ModelArgs)
        if isinstance(d_model, ModelArgs):
            args, is_causal = d_model, is_causal or num_heads is True
            heads, dropout, width, out = args.n_heads, args.dropout, args.n_embd or args.dim, args.dim
            d_k, bias = out // heads, bias or ""
        else:
            heads, width, out = one_of(num_heads=num_heads, n_heads=n_heads, nhead=nhead), d_model, d_model
        kernel = Softmax(dropout=share(dropout))
        biases = "qkvo" if bias is None else bias
        spec = Attention(heads=heads, head_dim=d_k, value_dim=d_v, bias=biases, kernel=kernel)
        self.inner = spec.build_cross(width, width)
        if out != width:  # one note lets the width change here; no residual can be added then
            self.inner.out = Linear(heads * self.inner.value_dim, out, bias="o" in biases)
        self.num_heads, self.d_model, self.d_k = heads, out, self.inner.head_dim
        self.resid_dropout = nn.Dropout(dropout if self.from_args else 0.0)
        self.is_causal = is_causal
        initialise(self.inner, Xavier(), seed_or_draw(seed))

    def __getattr__(self, name: str) -> Any:
        """W_Q, w_q, wq: the projections under every one of the notes' spellings."""
        part = {"wq": "q", "wk": "k", "wv": "v", "wo": "out"}.get(name.lower().replace("_", ""))
        return super().__getattr__(name) if part is None else getattr(self.inner, part)

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        mask: MaskLike = None,
        need_weights: bool | None = None,  # noqa: FBT001 (as torch's own module has it)
    ) -> Tensor | tuple[Tensor, Tensor]:
        if key is not None and value is None:  # (x, mask): one note's order
            key, mask = None, key
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
        seen, kv = Patterns(), (self.inner.keys(k), self.inner.values(v))
        ctx = context(query, tap=seen.tap()) if need_weights else context(query)
        looks = view(rule, len(query), query.shape[1], k.shape[1], query.device)
        out: Tensor = self.resid_dropout(self.inner.mix(self.inner.queries(query), kv, looks, None, ctx))
        return (out, seen["pattern"]) if need_weights else out

    def split_heads(self, x_BTD: Tensor, batch_size: int | None = None) -> Tensor:
        """(B, T, H * E) -> (B, H, T, E). With a wrong batch the notes' view(batch, -1) glues."""
        if batch_size not in (None, len(x_BTD)):
            raise InputError(f"batch_size is {batch_size}, the tensor has {len(x_BTD)} sentences")
        return x_BTD.reshape(*x_BTD.shape[:2], self.num_heads, -1).transpose(1, 2)

    def combine_heads(self, x_BHTE: Tensor) -> Tensor:
        """(B, H, T, E) -> (B, T, H * E)."""
        return x_BHTE.transpose(1, 2).flatten(2)

    def scaled_dot_product_attention(
        self, Q: Tensor, K: Tensor, V: Tensor, mask: MaskLike = None
    ) -> tuple[Tensor, Tensor]:
        return scaled_dot_product_attention(Q, K, V, mask)
