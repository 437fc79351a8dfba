"""What the NumPy primer's tests share: random arrays, torch's answers, torch's modules as the primer's."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import Tensor, nn
from torch.nn import functional as F

from clearhead.primer import numpy as primer

SHAPES = [  # batch and head axes, queries, keys, width of q and k, width of v
    ((), 3, 3, 4, 4),
    ((), 2, 5, 4, 7),
    ((2,), 5, 3, 8, 2),
    ((2, 3), 4, 6, 5, 3),
]


def assert_close(actual: Any, expected: Any) -> None:
    assert_allclose(actual, expected, rtol=1e-12, atol=1e-12)


def random_qkv(shape: tuple[Any, ...]) -> tuple[primer.Array, primer.Array, primer.Array]:
    lead, queries, keys, width, value_width = shape
    random = np.random.default_rng(0)
    return (
        random.normal(size=(*lead, queries, width)),
        random.normal(size=(*lead, keys, width)),
        random.normal(size=(*lead, keys, value_width)),
    )


def random_mask(shape: tuple[Any, ...]) -> primer.Mask:
    """Some keys blocked, and no query without a key."""
    mask = np.random.default_rng(1).random((*shape[0], shape[1], shape[2])) < 0.6
    mask[..., 0] = True
    assert not mask.all()
    return mask


def torch_attention(q: Any, k: Any, v: Any, mask: primer.Mask | None = None, **more: Any) -> Tensor:
    q, k, v = (x if isinstance(x, Tensor) else torch.from_numpy(x) for x in (q, k, v))
    attn_mask = None if mask is None else torch.from_numpy(mask)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask, **more)


def numpied(x: Tensor) -> primer.Array:
    return x.detach().numpy()


def refused(message: str) -> Any:
    return pytest.raises(ValueError, match=re.escape(message))


def linear_of(module: Any) -> primer.Linear:
    return primer.Linear(numpied(module.weight).T, numpied(module.bias))


def norm_of(module: nn.LayerNorm) -> primer.Norm:
    return primer.Norm(numpied(module.weight), numpied(module.bias), module.eps)


def attention_of(module: nn.MultiheadAttention) -> primer.Attention:
    weights = np.split(numpied(module.in_proj_weight), 3)
    biases = np.split(numpied(module.in_proj_bias), 3)
    q, k, v = (primer.Linear(w.T, b) for w, b in zip(weights, biases, strict=True))
    return primer.Attention(q, k, v, linear_of(module.out_proj))


def feed_forward_of(layer: Any) -> primer.FeedForward:
    return primer.FeedForward(linear_of(layer.linear1), linear_of(layer.linear2))


def encoder_layer_of(layer: nn.TransformerEncoderLayer) -> primer.EncoderLayer:
    return primer.EncoderLayer(
        attention_of(layer.self_attn),
        norm_of(layer.norm1),
        feed_forward_of(layer),
        norm_of(layer.norm2),
    )


def decoder_layer_of(layer: nn.TransformerDecoderLayer) -> primer.DecoderLayer:
    return primer.DecoderLayer(
        attention_of(layer.self_attn),
        norm_of(layer.norm1),
        attention_of(layer.multihead_attn),
        norm_of(layer.norm2),
        feed_forward_of(layer),
        norm_of(layer.norm3),
    )


def shaken(module: nn.Module) -> Any:
    """The module in float64 and eval mode, with no bias left at 0 and no gamma left at 1."""
    generator = torch.Generator().manual_seed(0)
    module = module.double().eval()
    with torch.no_grad():
        for parameter in module.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.add_(0.2 * noise)
    return module


PAD_FROM = 4  # the second sentence of a padded batch ends here


def batch_of(tokens: int, seed: int) -> tuple[primer.Array, primer.Mask]:
    x = np.random.default_rng(seed).normal(size=(2, tokens, 8))
    padded = np.zeros((2, tokens), bool)
    padded[1, PAD_FROM:] = True
    return x, padded
