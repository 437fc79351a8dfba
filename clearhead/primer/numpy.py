"""Arrays in, arrays out: attention and a whole small Transformer as plain NumPy formulas.

Read from top to bottom: softmax, attention, masks, weights, heads, positions, layers, the model,
and last the way back through attention. A suffix spells a shape, one letter per axis:

    B sentences in a batch    T tokens    Q queries    K keys    H heads
    E width of one head       D width of the model     V vocabulary

One rule for every mask: boolean, and **True means "may attend"**.

>>> raw_K = np.array([12.5, 30.8, 25.1])  # how well "cat" matches each word of "The cat sat"
>>> softmax(raw_K / np.sqrt(64)).round(4)  # heads of width 64, so the scores shrink by 8
array([0.0638, 0.6282, 0.3081])
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array: TypeAlias = NDArray[np.floating[Any]]
Mask: TypeAlias = NDArray[np.bool_]
Ids: TypeAlias = NDArray[np.integer[Any]]
Activation: TypeAlias = Callable[[Array], Array]
Order: TypeAlias = Literal["post", "pre"]


def _dtypes(*arrays: NDArray[Any]) -> tuple[np.dtype[Any], np.dtype[Any]]:
    """The type to answer in, and the type to compute in: half precision is too coarse for exp."""
    answer = np.result_type(*arrays, np.float16)  # whole numbers become float64
    return answer, np.result_type(answer, np.float32)


def softmax(x: ArrayLike, axis: int = -1) -> Array:
    """exp(x) / sum(exp(x)): scores become weights that sum to one.

    Subtracting the largest score changes nothing in the result, and exp can no longer overflow.
    Where every score is -inf there is nothing to choose from: the weights are zeros, not NaN.
    """
    x = np.asarray(x)
    answer, work = _dtypes(x)
    x = x.astype(work)
    top = x.max(axis=axis, keepdims=True, initial=-np.inf)
    grown: Array = np.exp(x - np.where(top == -np.inf, 0, top))  # -inf - (-inf) would be NaN
    total = grown.sum(axis=axis, keepdims=True)
    weights: Array = grown / np.where(total == 0, 1, total)
    return weights.astype(answer)


def scaled_dot_product_attention(
    q: Array, k: Array, v: Array, mask: Mask | None = None, scale: float | None = None
) -> tuple[Array, Array]:
    """softmax(q kᵀ * scale) v, for arrays of shape (T, E), (B, T, E) or (B, H, T, E).

    q has Q rows, k and v have K rows; v may have another width than q and k. Returns the output
    (..., Q, width of v) and the weights (..., Q, K). The mask broadcasts to the weights: a blocked
    key has weight exactly 0, and a query that may attend to nothing gets zeros.

    Why the scale 1/sqrt(E): the dot product of two random vectors of width E has variance E. With
    no scale, the softmax of wide heads is nearly 0 or 1 everywhere and passes no gradient.
    """
    answer, work = _check_qkv(q, k, v)
    weights = _weights(q.astype(work), k.astype(work), mask, scale)
    return (weights @ v.astype(work)).astype(answer), weights.astype(answer)


def _scale(q: Array, scale: float | None) -> float:
    return 1 / math.sqrt(q.shape[-1]) if scale is None else scale


def _weights(q: Array, k: Array, mask: Mask | None, scale: float | None) -> Array:
    # swapaxes, because `.T` and `.transpose` would also turn the batch and head axes around.
    scores = q @ np.swapaxes(k, -1, -2) * _scale(q, scale)
    if mask is not None:
        # -inf and not a large negative number: it blocks exactly, in every precision.
        scores = np.where(_check_mask(mask, scores.shape), scores, -np.inf)
    return softmax(scores)


def _check_qkv(q: Array, k: Array, v: Array) -> tuple[np.dtype[Any], np.dtype[Any]]:
    shapes = f"given q {q.shape}, k {k.shape}, v {v.shape}"
    if not 2 <= q.ndim <= 4:
        raise ValueError(f"attention takes arrays of 2, 3 or 4 axes, {shapes}")
    # NumPy would stretch a batch of 1 over a batch of 2 and mix sentences without a word.
    if not q.shape[:-2] == k.shape[:-2] == v.shape[:-2]:
        raise ValueError(f"q, k and v must have the same batch and head axes, {shapes}")
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(f"q and k must have the same width, {shapes}")
    if k.shape[-2] != v.shape[-2]:
        raise ValueError(f"k and v must have the same number of tokens, {shapes}")
    return _dtypes(q, k, v)


def _check_mask(mask: Mask, scores: tuple[int, ...]) -> Mask:
    mask = np.asarray(mask)
    if mask.dtype != np.bool_:
        raise ValueError(
            f"a mask must be boolean, True = may attend, given {mask.dtype}: convert it with "
            "mask_from_blocked (1 = blocked) or mask_from_additive (0 and -inf)"
        )
    shapes = f"mask of shape {mask.shape} for scores of shape {scores}"
    try:
        np.broadcast_to(mask, scores)
    except ValueError:
        raise ValueError(f"{shapes}: the mask does not broadcast to the scores") from None
    # (4, 4) for 4 sentences of 4 tokens: NumPy reads it as (Q, K), the caller may mean (B, K).
    if 2 < len(scores) > mask.ndim and mask.shape[:1] == scores[:1] != (1,):
        raise ValueError(
            f"{shapes}: its first axis could mean the sentences; give it {len(scores)} axes, "
            "mask[None, ...] for the same mask everywhere, mask[:, None, ...] for one per sentence"
        )
    return mask


def basic_attention(Q: Array, K: Array, V: Array) -> tuple[Array, Array]:
    """Attention without a mask: every query sees every key. Returns (output, weights)."""
    return scaled_dot_product_attention(Q, K, V)


def self_attention(X: Array, W_Q: Array, W_K: Array, W_V: Array, mask: Mask | None = None) -> Array:
    """Queries, keys and values all come from X (T, D) or (B, T, D). Returns the output alone."""
    return scaled_dot_product_attention(X @ W_Q, X @ W_K, X @ W_V, mask)[0]


# Masks: True = may attend. Combine them with &.


def padding_mask(ids: Ids, pad: int = 0) -> Mask:
    """ids (B, T) -> (B, 1, 1, T), True at real tokens; the ones are for the heads and the queries.

    A frequent mistake is to leave the mask at (B, T): with B = T it fits and masks other sentences.
    """
    if ids.ndim != 2:
        raise ValueError(f"ids must have the shape (sentences, tokens), given {ids.shape}")
    real_BT: Mask = ids != pad
    return real_BT[:, None, None, :]


def causal_mask(size: int) -> Mask:
    """(T, T), True on and below the diagonal: a token sees itself and the past, not the future."""
    return np.tri(size, dtype=np.bool_)


def mask_from_blocked(mask: ArrayLike) -> Mask:
    """A mask of 0 = may attend and 1 = blocked (or False and True) -> True = may attend."""
    given: NDArray[Any] = np.asarray(mask)
    if not np.isin(given, (0, 1)).all():
        raise ValueError("expected a mask of 0 and 1; for 0 and -inf there is mask_from_additive")
    return np.isin(given, 0)


def mask_from_additive(mask: ArrayLike) -> Mask:
    """A mask to be added to the scores, 0 = may attend and -inf = blocked -> True = may attend."""
    given: NDArray[Any] = np.asarray(mask)
    # Booleans are refused although False equals 0: nobody adds them, so they mean something else.
    if given.dtype == np.bool_ or not np.isin(given, (0, -np.inf)).all():
        raise ValueError("expected a mask of 0 and -inf; for 0 and 1 there is mask_from_blocked")
    return np.isin(given, 0)


# Weights: plain tuples of arrays, named as the layers use them.


class Linear(NamedTuple):
    """x @ weight + bias; the weight is (in, out)."""

    weight: Array
    bias: Array


class Norm(NamedTuple):
    gamma: Array
    beta: Array
    eps: float = 1e-5


class Attention(NamedTuple):
    """q and k map D to H*E, v maps D to H times any width, out maps back to D."""

    q: Linear
    k: Linear
    v: Linear
    out: Linear


class FeedForward(NamedTuple):
    up: Linear
    down: Linear


class EncoderLayer(NamedTuple):
    attn: Attention
    attn_norm: Norm
    ff: FeedForward
    ff_norm: Norm


class DecoderLayer(NamedTuple):
    attn: Attention
    attn_norm: Norm
    cross: Attention
    cross_norm: Norm
    ff: FeedForward
    ff_norm: Norm


class Transformer(NamedTuple):
    """Embeddings are (V, D). The last norms are for order="pre", whose layers end without one."""

    source_embedding: Array
    target_embedding: Array
    encoder: tuple[EncoderLayer, ...]
    decoder: tuple[DecoderLayer, ...]
    head: Linear
    encoder_norm: Norm | None = None
    decoder_norm: Norm | None = None


def init(
    seed: int,
    *,
    source_vocab: int,
    target_vocab: int,
    width: int,
    depth: int,
    order: Order = "post",
) -> Transformer:
    """Random weights of a whole model, feed-forward 4 * width; the same seed, the same weights."""
    random = np.random.default_rng(seed)

    # Biases, gammas and betas are random too (not 0, 1, 0): forgetting one then changes the answer.
    def linear(fan_in: int, fan_out: int) -> Linear:
        weight = random.normal(scale=1 / math.sqrt(fan_in), size=(fan_in, fan_out))
        return Linear(weight, random.normal(scale=0.1, size=fan_out))

    def norm() -> Norm:
        return Norm(random.normal(1, 0.1, size=width), random.normal(0, 0.1, size=width))

    def attn() -> tuple[Attention, Norm]:
        return Attention(*(linear(width, width) for _ in range(4))), norm()

    def ff() -> tuple[FeedForward, Norm]:
        return FeedForward(linear(width, 4 * width), linear(4 * width, width)), norm()

    return Transformer(
        random.normal(scale=1 / math.sqrt(width), size=(source_vocab, width)),
        random.normal(scale=1 / math.sqrt(width), size=(target_vocab, width)),
        encoder=tuple(EncoderLayer(*attn(), *ff()) for _ in range(depth)),
        decoder=tuple(DecoderLayer(*attn(), *attn(), *ff()) for _ in range(depth)),
        head=linear(width, target_vocab),
        encoder_norm=norm() if order == "pre" else None,
        decoder_norm=norm() if order == "pre" else None,
    )


# Many heads: the same attention several times, each on its own slice of the width.


def linear(x: Array, weights: Linear) -> Array:
    return x @ weights.weight + weights.bias


def split_heads(x_BTD: Array, heads: int) -> Array:
    """(B, T, H*E) -> (B, H, T, E)."""
    if x_BTD.ndim != 3 or heads < 1 or x_BTD.shape[-1] % heads:
        raise ValueError(f"(batch, tokens, width) must split into {heads} heads, given {x_BTD.shape}")
    batch, tokens, width = x_BTD.shape  # of this array: there may be more keys than queries
    return x_BTD.reshape(batch, tokens, heads, width // heads).swapaxes(1, 2)


def combine_heads(x_BHTE: Array) -> Array:
    """(B, H, T, E) -> (B, T, H*E): the inverse of split_heads."""
    batch, heads, tokens, width = x_BHTE.shape
    return x_BHTE.swapaxes(1, 2).reshape(batch, tokens, heads * width)


def multi_head_attention(
    query: Array, memory: Array, weights: Attention, heads: int, mask: Mask | None = None
) -> tuple[Array, Array]:
    """query (B, Q, D) asks, memory (B, K, D) answers; returns (B, Q, D) and weights (B, H, Q, K).

    Self-attention: memory is query. Cross-attention: memory is what the encoder made.
    """
    q_BHQE = split_heads(linear(query, weights.q), heads)
    k_BHKE = split_heads(linear(memory, weights.k), heads)
    v_BHKE = split_heads(linear(memory, weights.v), heads)
    mixed_BHQE, weights_BHQK = scaled_dot_product_attention(q_BHQE, k_BHKE, v_BHKE, mask)
    return linear(combine_heads(mixed_BHQE), weights.out), weights_BHQK


def positional_encoding(
    length: int, width: int, layout: Literal["interleaved", "halves"] = "interleaved"
) -> Array:
    """(T, D): PE[pos, 2i] = sin(pos / 10000^(2i/D)) and PE[pos, 2i+1] = cos of the same angle.

    "halves" holds the same columns, all sines before all cosines. An odd width ends with a sine
    that has no cosine. A frequent mistake is to double an index that already counts 0, 2, 4, ...
    """
    even = np.arange(0, width, 2)  # this is 2i
    angles = np.arange(length)[:, None] / 10000.0 ** (even / width)
    sines, cosines = np.sin(angles), np.cos(angles[:, : width // 2])
    if layout == "halves":
        return np.concatenate([sines, cosines], axis=1)
    if layout != "interleaved":
        raise ValueError(f"layout must be 'interleaved' or 'halves', given {layout!r}")
    table_TD = np.empty((length, width))
    table_TD[:, 0::2], table_TD[:, 1::2] = sines, cosines
    return table_TD


# Layers: attention and feed-forward, each with a norm and a way around it.


def layer_norm(x: Array, gamma: Array, beta: Array, eps: float = 1e-5) -> Array:
    """Each token by itself: mean 0 and variance 1 over its width, then gamma and beta.

    A frequent mistake is (x - mean) / (std + eps) with a std that divides by D - 1: here the
    variance divides by D, and eps stands inside the root.
    """
    mean = x.mean(axis=-1, keepdims=True)
    variance = x.var(axis=-1, keepdims=True)
    normal: Array = (x - mean) / np.sqrt(variance + eps)
    return normal * gamma + beta


def relu(x: Array) -> Array:
    return np.maximum(x, 0)


_erfc = np.vectorize(math.erfc, otypes=[np.float64])


def gelu(x: Array) -> Array:
    """x * P(a standard normal number is below x), exactly and not by the tanh approximation."""
    # erfc(-z) instead of 1 + erf(z): that sum loses every digit for very negative x.
    below: Array = 0.5 * _erfc(-x / math.sqrt(2))
    return (x * below).astype(_dtypes(x)[0])


def feed_forward(x: Array, weights: FeedForward, activation: Activation = relu) -> Array:
    """activation(x W1 + b1) W2 + b2, for every token alone."""
    return linear(activation(linear(x, weights.up)), weights.down)


def _residual(x: Array, part: Callable[[Array], Array], norm: Norm, order: Order) -> Array:
    """post: norm(x + part(x)), as first published. pre: x + part(norm(x)), steadier when deep."""
    if order == "post":
        return layer_norm(x + part(x), *norm)
    if order == "pre":
        return x + part(layer_norm(x, *norm))
    raise ValueError(f"order must be 'post' or 'pre', given {order!r}")


def encoder_layer(
    x_BTD: Array,
    weights: EncoderLayer,
    heads: int,
    mask: Mask | None = None,
    order: Order = "post",
    activation: Activation = relu,
) -> Array:
    """Tokens look at each other, then each one works alone. (B, T, D) -> (B, T, D)."""
    attn, attn_norm, ff, ff_norm = weights
    x_BTD = _residual(x_BTD, lambda x: multi_head_attention(x, x, attn, heads, mask)[0], attn_norm, order)
    return _residual(x_BTD, lambda x: feed_forward(x, ff, activation), ff_norm, order)


def decoder_layer(
    x_BTD: Array,
    memory_BKD: Array,
    weights: DecoderLayer,
    heads: int,
    mask: Mask | None = None,
    memory_mask: Mask | None = None,
    order: Order = "post",
    activation: Activation = relu,
) -> Array:
    """An encoder layer with a look at the source in between. (B, T, D) -> (B, T, D)."""
    attn, attn_norm, cross, cross_norm, ff, ff_norm = weights
    x_BTD = _residual(x_BTD, lambda x: multi_head_attention(x, x, attn, heads, mask)[0], attn_norm, order)
    x_BTD = _residual(
        x_BTD,
        lambda x: multi_head_attention(x, memory_BKD, cross, heads, memory_mask)[0],
        cross_norm,
        order,
    )
    return _residual(x_BTD, lambda x: feed_forward(x, ff, activation), ff_norm, order)


def _embed(ids_BT: Ids, embedding_VD: Array, pad: int) -> Array:
    vocab, width = embedding_VD.shape
    if np.any((ids_BT < 0) | (ids_BT >= vocab)):  # NumPy would read id -1 as the last word
        raise ValueError(f"ids must be in 0..{vocab - 1}, given {ids_BT.min()}..{ids_BT.max()}")
    # Positions count real tokens, so padding on the left or on the right gives the same numbers.
    position_BT = np.maximum(np.cumsum(ids_BT != pad, axis=1) - 1, 0)
    table_TD = positional_encoding(ids_BT.shape[1], width).astype(embedding_VD.dtype)
    # sqrt(width): the small embeddings grow to the size of the sines they are added to.
    x_BTD: Array = embedding_VD[ids_BT] * math.sqrt(width) + table_TD[position_BT]
    return x_BTD


def transformer(
    source: Ids,
    target: Ids,
    weights: Transformer,
    heads: int,
    order: Order = "post",
    activation: Activation = relu,
    pad: int = 0,
) -> Array:
    """source ids (B, K) and target ids (B, T) -> logits (B, T, V).

    For training, give the target shifted right (begin token first): position t then guesses the
    token t + 1, and the causal mask keeps it from seeing that token.
    """
    if order == "pre" and (weights.encoder_norm is None or weights.decoder_norm is None):
        raise ValueError("order='pre' needs the last norms: init(..., order='pre') makes them")
    source_mask = padding_mask(source, pad)
    target_mask = padding_mask(target, pad) & causal_mask(target.shape[1])

    memory_BKD = _embed(source, weights.source_embedding, pad)
    for encoder in weights.encoder:
        memory_BKD = encoder_layer(memory_BKD, encoder, heads, source_mask, order, activation)
    if weights.encoder_norm is not None:
        memory_BKD = layer_norm(memory_BKD, *weights.encoder_norm)

    x_BTD = _embed(target, weights.target_embedding, pad)
    for decoder in weights.decoder:
        x_BTD = decoder_layer(x_BTD, memory_BKD, decoder, heads, target_mask, source_mask, order, activation)
    if weights.decoder_norm is not None:
        x_BTD = layer_norm(x_BTD, *weights.decoder_norm)
    return linear(x_BTD, weights.head)


def attention_backward(
    q: Array, k: Array, v: Array, mask: Mask | None, scale: float | None, grad_output: Array
) -> tuple[Array, Array, Array]:
    """The gradients of a loss for q, k and v, from its gradient for the output of attention.

    Forward: S = scale * q kᵀ, then W = softmax(S) in every row, then O = W v.
    Backward, with dX short for dLoss/dX:

    1. O = W v is linear in both:           dW = dO vᵀ           dv = Wᵀ dO
    2. In one row dW_j/dS_i = W_j (1 if i = j else 0) - W_j W_i. Summed over all j with dW_j:
                                            dS_i = W_i (dW_i - sum_j W_j dW_j)
    3. S = scale * q kᵀ is linear in both:  dq = scale * dS k    dk = scale * dSᵀ q

    A blocked key has W_i = 0, hence dS_i = 0: no gradient passes, and an all-blocked row gives 0.
    """
    answer, work = _check_qkv(q, k, v)
    expected = (*q.shape[:-1], v.shape[-1])
    if grad_output.shape != expected:
        raise ValueError(f"grad_output must have the shape {expected}, given {grad_output.shape}")
    q, k, v, grad_output = (array.astype(work) for array in (q, k, v, grad_output))
    weights = _weights(q, k, mask, scale)
    grad_weights = grad_output @ np.swapaxes(v, -1, -2)
    grad_v = np.swapaxes(weights, -1, -2) @ grad_output
    mean = (weights * grad_weights).sum(axis=-1, keepdims=True)
    grad_scores = weights * (grad_weights - mean) * _scale(q, scale)
    grad_q = grad_scores @ k
    grad_k = np.swapaxes(grad_scores, -1, -2) @ q
    return grad_q.astype(answer), grad_k.astype(answer), grad_v.astype(answer)
