"""The vampires as torch modules that can be trained; `clearhead.primer.numpy` has them as plain arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...errors import SpecError
from ...nn import LinearLayer, Xavier, initialise
from ..numpy import vampire
from .attention import MultiHeadAttention, scaled_dot_product_attention
from .masks import MaskLike
from .names import seed_or_draw


class VampireAttention(nn.Module):
    """One head; values keep the width. Xavier initialisation, because at 0.01 all victims look alike."""

    def __init__(self, d_model: int = 512, d_k: int = 64, *, seed: int | None = None) -> None:
        super().__init__()
        self.W_q, self.W_k = (LinearLayer(d_model, d_k, bias=False) for _ in range(2))
        self.W_v = LinearLayer(d_model, d_model, bias=False)
        initialise(self, Xavier(), seed_or_draw(seed))

    def forward(self, X: Tensor, mask: MaskLike = None) -> tuple[Tensor, Tensor]:
        """X (B, T, D) -> the mixture (B, T, D) and the weights (B, T, T)."""
        return scaled_dot_product_attention(self.W_q(X), self.W_k(X), self.W_v(X), mask)

    def softmax(self, x: Any) -> Tensor:
        return torch.as_tensor(x).softmax(-1)


class MultiHeadVampireAttention(MultiHeadAttention):
    """Several of them; no biases."""

    def __init__(self, d_model: int = 512, num_heads: int = 8, *, seed: int | None = None) -> None:
        if d_model % num_heads:
            raise SpecError(f"d_model 必須能被 num_heads 整除: {d_model} is not divisible by {num_heads}")
        super().__init__(d_model, num_heads, 0.0, bias="", seed=seed)

    def forward(self, X: Tensor, mask: MaskLike = None) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        """X (B, T, D) -> (B, T, D) and the weights (B, H, T, T)."""
        out, weights = super().forward(X, X, X, mask)
        assert isinstance(weights, Tensor)
        return out, weights


def self_attention_sentence_encoder(
    sentence: str | Sequence[str],
    word_vectors: Mapping[str, Any],
    *,
    d_k: int = 64,
    seed: int = 0,
    say: Callable[[str], object] | None = print,
) -> tuple[Tensor, Tensor]:
    """Words -> one vector (the mean after self-attention) and the weights (1, T, T); see the NumPy primer."""
    arrays = {word: np.asarray(vector) for word, vector in word_vectors.items()}
    vector, weights = vampire.self_attention_sentence_encoder(sentence, arrays, d_k=d_k, seed=seed, say=say)
    return torch.from_numpy(vector), torch.from_numpy(weights)
