"""The layers of the torch primer: equal to their formulas and to torch's own layers."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from textbook import random, shaken
from tolerance import assert_close
from torch import nn

import clearhead.primer.numpy as arrays
from clearhead.primer import torch as primer


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_feed_forward_is_its_formula_and_each_token_alone(activation: str) -> None:
    ff = shaken(primer.PositionwiseFeedForward(6, 10, activation=activation))
    x = random(2, 5, 6)
    bend = getattr(F, activation)
    expected = F.linear(
        bend(F.linear(x, ff.linear1.weight, ff.linear1.bias)), ff.linear2.weight, ff.linear2.bias
    )
    assert_close(ff(x), expected)
    assert_close(ff(x.flip(1)), ff(x).flip(1))
    assert primer.FeedForward(512).linear1.weight.shape == (2048, 512)


@pytest.mark.parametrize("width", [4, 8, 512])
@pytest.mark.parametrize("size", [1.0, 1e-4])
def test_layer_norm_equals_torch(width: int, size: float) -> None:
    norm = shaken(primer.LayerNorm(width))
    x = random(3, width) * size
    assert_close(norm(x), F.layer_norm(x, (width,), norm.gamma, norm.beta, eps=1e-6))
    assert bool(primer.LayerNorm(1)(torch.randn(3, 1)).isfinite().all())


@pytest.mark.parametrize("width", [16, 7])
def test_positions_are_the_formula(width: int) -> None:
    table = primer.positional_encoding(50, width)
    for pos in (0, 1, 17, 49):
        for column in range(width):
            angle = pos / 10000 ** (2 * (column // 2) / width)
            wave = math.cos(angle) if column % 2 else math.sin(angle)
            assert float(table[pos, column]) == pytest.approx(wave, abs=1e-6)
    assert torch.equal(primer.get_positional_encoding(50, width), table)
    assert_close(table, torch.from_numpy(arrays.get_positional_encoding(50, width)).float())
    module = primer.PositionalEncoding(width, max_len=20, dropout=0.0)
    assert not list(module.state_dict()) and torch.equal(module.pe, module.PE)
    assert torch.equal(module.pe[0], table[:20])
    assert_close(module(torch.zeros(2, 50, width))[1], table)  # longer than its table


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_layers_equal_torch(norm_first: bool, activation: str) -> None:
    more = {"activation": activation, "norm_first": norm_first}
    encoder = shaken(primer.EncoderLayer(8, num_heads=2, d_ff=16, **more))
    decoder = shaken(primer.DecoderLayer(8, n_heads=2, d_ff=16, **more))
    theirs = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dtype=torch.float64, **more).eval()
    other = nn.TransformerDecoderLayer(8, 2, 16, batch_first=True, dtype=torch.float64, **more).eval()
    copied(encoder, theirs)
    copied(decoder, other)
    x, memory = random(2, 5, 8), random(2, 7, 8, seed=1)
    padded = torch.tensor([[0] * 7, [0, 0, 0, 0, 1, 1, 1]]).bool()
    ahead = primer.create_look_ahead_mask(5)
    real = ~padded[:, None, None, :]
    # Not under no_grad: torch's fused path would fill the padding with zeros.
    assert_close(encoder(memory, real), theirs(memory, src_key_padding_mask=padded))
    expected = other(x, memory, tgt_mask=~ahead, memory_key_padding_mask=padded)
    assert_close(decoder(x, memory, real, ahead), expected)
    causal = primer.DecoderLayer(8, 2, 16, is_causal=True, **more).double().eval()
    causal.load_state_dict(decoder.state_dict())
    assert_close(causal(x, memory, real), expected)
    same, weights = decoder(x, memory, real, ahead, return_attention=True)
    assert torch.equal(same, decoder(x, memory, real, ahead)) and weights.shape == (2, 2, 5, 7)
    assert bool((weights[1, ..., 4:] == 0).all())
    assert encoder(memory, return_attention=True)[1].shape == (2, 2, 7, 7)


def copied(ours: nn.Module, theirs: nn.Module) -> None:
    """Our weights in torch's layer."""
    block: Any = ours.inner
    parts = [("attn", "self_attn"), ("cross", "multihead_attn")][: 2 if hasattr(block, "cross") else 1]
    norms = ["attn_norm", "cross_norm", "ff_norm"] if len(parts) == 2 else ["attn_norm", "ff_norm"]
    with torch.no_grad():
        for one, two in parts:
            a, b = getattr(block, one), getattr(theirs, two)
            b.in_proj_weight.copy_(torch.cat([a.q.weight, a.k.weight, a.v.weight]))
            b.in_proj_bias.copy_(torch.cat([a.q.bias, a.k.bias, a.v.bias]))
            b.out_proj.load_state_dict(a.out.state_dict())
        theirs.linear1.load_state_dict(block.ff.up.state_dict())
        theirs.linear2.load_state_dict(block.ff.down.state_dict())
        for i, name in enumerate(norms):
            getattr(theirs, f"norm{i + 1}").load_state_dict(getattr(block, name).state_dict())


def test_a_stack_of_either_layer_runs() -> None:
    x = memory = torch.randn(2, 5, 16)
    for layer in [primer.TransformerEncoderLayer(16, n_heads=4) for _ in range(3)]:
        x = layer(x)
    for layer in [primer.TransformerDecoderLayer(16, nhead=4) for _ in range(3)]:
        x, _ = layer(x, memory)
    block = primer.TransformerBlock(16, nhead=4, dropout=0.0, is_causal=True)
    later = x.detach().clone()
    later[:, 4] = 0
    assert torch.equal(block(x)[:, :4], block(later)[:, :4])
    theirs = nn.TransformerEncoderLayer(16, 4, 64, 0.0, activation="gelu", batch_first=True)
    copied(block, theirs)
    open_ = primer.TransformerBlock(16, nhead=4, dropout=0.0)
    open_.load_state_dict(block.state_dict())
    assert_close(open_(x), theirs(x))
