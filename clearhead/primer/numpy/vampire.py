"""Attention told as a story of vampires that pick their victims. Vectors in, mixtures and weights out.

Query: what the vampire fancies. Key: what a victim smells of. Value: the energy that flows.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from .arrays import Array
from .attention import scaled_dot_product_attention, softmax
from .heads import combine_heads, split_heads


def _matrices(seed: int, *shapes: tuple[int, int]) -> list[Array]:
    """Random, with a standard deviation of one over the root of the inputs.

    With a standard deviation of 0.01 all scores are nearly equal and the weights of three words [.332, .333,
    .335]: a vampire without taste.
    """
    random = np.random.default_rng(seed)
    return [random.normal(scale=1 / math.sqrt(rows), size=(rows, columns)) for rows, columns in shapes]


class VampireAttention:
    """One head. Values keep the width of the model, so nothing needs to be projected back."""

    def __init__(self, d_model: int = 512, d_k: int = 64, *, seed: int = 0) -> None:
        self.d_model, self.d_k = d_model, d_k
        narrow, wide = (d_model, d_k), (d_model, d_model)
        self.W_q, self.W_k, self.W_v = _matrices(seed, narrow, narrow, wide)

    def softmax(self, x: ArrayLike) -> Array:
        return softmax(x)

    def scaled_dot_product_attention(
        self, Q: Array, K: Array, V: Array, mask: ArrayLike | None = None
    ) -> tuple[Array, Array]:
        return scaled_dot_product_attention(Q, K, V, mask)

    def forward(self, X: Array, mask: ArrayLike | None = None) -> tuple[Array, Array]:
        """X (B, T, D) -> the mixture (B, T, D) and the weights (B, T, T)."""
        return scaled_dot_product_attention(X @ self.W_q, X @ self.W_k, X @ self.W_v, mask)

    __call__ = forward


class MultiHeadVampireAttention:
    """Several vampires, each on a slice of the width; no biases."""

    def __init__(self, d_model: int = 512, num_heads: int = 8, *, seed: int = 0) -> None:
        if d_model % num_heads:
            raise ValueError(f"d_model 必須能被 num_heads 整除: {d_model} is not divisible by {num_heads}")
        self.d_model, self.num_heads, self.d_k = d_model, num_heads, d_model // num_heads
        self.W_q, self.W_k, self.W_v, self.W_o = _matrices(seed, *[(d_model, d_model)] * 4)

    def split_heads(self, x: Array) -> Array:
        return split_heads(x, self.num_heads)

    def combine_heads(self, x: Array) -> Array:
        return combine_heads(x)

    def forward(self, X: Array, mask: ArrayLike | None = None) -> tuple[Array, Array]:
        """X (B, T, D) -> (B, T, D) and the weights (B, H, T, T)."""
        q, k, v = (self.split_heads(X @ weight) for weight in (self.W_q, self.W_k, self.W_v))
        mixed, weights = scaled_dot_product_attention(q, k, v, mask)
        return combine_heads(mixed) @ self.W_o, weights

    __call__ = forward


def self_attention_sentence_encoder(
    sentence: str | Sequence[str],
    word_vectors: Mapping[str, Array],
    *,
    d_k: int = 64,
    seed: int = 0,
    say: Callable[[str], object] | None = print,
) -> tuple[Array, Array]:
    """Words, as a list or with spaces -> one vector (D,), the mean after self-attention, and the weights.

    The weights are (1, T, T): a batch of one sentence. They come from the seed, so that two calls agree, and
    their table counts columns of the terminal, of which a Chinese character takes two.
    """
    words = sentence.split() if isinstance(sentence, str) else list(sentence)
    unknown = [word for word in words if word not in word_vectors]
    if unknown or not words:
        raise ValueError(f"no vector for {', '.join(map(repr, unknown)) or 'an empty sentence'}")
    X_1TD = np.stack([np.asarray(word_vectors[word]) for word in words])[None]
    mixed_1TD, weights_1TT = VampireAttention(X_1TD.shape[-1], d_k, seed=seed).forward(X_1TD)
    if say is not None:
        say(weights_table(words, weights_1TT[0]))
    return mixed_1TD[0].mean(axis=0), weights_1TT


def weights_table(words: Sequence[str], weights_TT: Array) -> str:
    """The weights as lines of text, words on both sides, in columns that are straight in any script."""
    width = max(6, *(_columns(word) for word in words)) + 1
    lines = [" " * width + "".join(_right(word, width) for word in words)]
    for word, row in zip(words, weights_TT, strict=True):
        lines.append(word + " " * (width - _columns(word)) + "".join(f"{w:{width}.3f}" for w in row))
    return "\n".join(lines)


def _right(word: str, width: int) -> str:
    return " " * (width - _columns(word)) + word


def _columns(text: str) -> int:
    """How many columns of a terminal a text takes: two for a wide character, none for a combining one."""
    wide = (2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text if not unicodedata.combining(c))
    return sum(wide)
