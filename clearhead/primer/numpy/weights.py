"""Weights as plain tuples of arrays, named as the layers use them; a seed in, all weights of a model out."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from .arrays import Array, Order


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

    # Biases, gammas and betas are random too (not 0, 1, 0): forgetting one then changes the output.
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
