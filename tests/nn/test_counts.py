"""Exact sizes, without allocating anything."""

import resource
from dataclasses import replace

import pytest

from clearhead import nn as cn
from clearhead.nn.model import Model


def original(
    width: int, heads: int, hidden: int, depth: int = 6, source: int = 1, target: int = 1
) -> cn.EncoderDecoder:
    """Vaswani 2017, as drawn: post-norm, no norm after the stack."""
    heads_ = cn.Attention(heads=heads, bias="qkvo")
    block = cn.Block(attention=heads_, feedforward=cn.MLP(hidden=hidden, act="relu"), order="post")
    encoder = cn.Tower(
        width=width, depth=depth, embed=cn.Tokens(vocab=source), block=block, positions=cn.Sinusoidal()
    )
    decoder = replace(encoder, causal=True, embed=cn.Tokens(vocab=target), block=replace(block, cross=heads_))
    head = cn.TokenHead(vocab=target, tied=False, bias=True)
    return cn.EncoderDecoder(encoder=encoder, decoder=decoder, head=head, shared=False)


def gpt(width: int, depth: int, heads: int, length: int) -> cn.SingleStack:
    block = cn.Block(attention=cn.Attention(heads=heads, bias="qkvo"), feedforward=cn.MLP(hidden=4 * width))
    tower = cn.Tower(width=width, depth=depth, embed=cn.Tokens(vocab=50257), block=block, causal=True,
                     positions=cn.Learned(length=length), last_norm=cn.norm.Layer())  # fmt: skip
    return cn.SingleStack(tower=tower, head=cn.TokenHead(vocab=50257))


def llama(width: int, depth: int, heads: int, hidden: int, kv_heads: int | None = None) -> cn.SingleStack:
    norm = cn.norm.RMS()
    block = cn.Block(
        attention=cn.Attention(heads=heads, kv_heads=kv_heads), feedforward=cn.Gated(hidden=hidden), norm=norm
    )
    tower = cn.Tower(width=width, depth=depth, embed=cn.Tokens(vocab=32000), block=block, causal=True,
                     positions=cn.Rope(), last_norm=norm)  # fmt: skip
    return cn.SingleStack(tower=tower, head=cn.TokenHead(vocab=32000, tied=False))


SIZES: dict[str, tuple[Model, int]] = {
    "the 10k/10k demo": (original(512, 8, 2048, source=10000, target=10000), 59_508_496),
    "GPT-2 XL": (gpt(1600, 48, 25, 1024), 1_557_611_200),
    "GPT-3": (gpt(12288, 96, 96, 2048), 174_604_259_328),
    "LLaMA-7B": (llama(4096, 32, 32, 11008), 6_738_415_616),
    "LLaMA-65B": (llama(8192, 80, 64, 22016), 65_285_660_672),
    "Llama-2-70B": (llama(8192, 80, 64, 28672, kv_heads=8), 68_976_648_192),
    "en-fr 30k": (original(512, 8, 2048, source=30000, target=30000), 90_248_496),
    "summaries": (original(768, 12, 2048, source=50000, target=50000), 195_601_232),
    "code": (original(512, 8, 2048, source=10000, target=5000), 54_383_496),
}


@pytest.mark.parametrize("name", SIZES)
def test_exact_sizes(name: str) -> None:
    spec, size = SIZES[name]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert spec.count() == size
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024  # KiB


@pytest.mark.parametrize(
    ("spec", "encoder", "decoder"),
    [(original(512, 8, 2048), 18_914_304, 25_224_192), (original(1024, 16, 4096), 75_577_344, 100_780_032)],
    ids=["base", "big"],
)
def test_the_core_of_base_and_big(spec: cn.EncoderDecoder, encoder: int, decoder: int) -> None:
    parts = spec.count_parts()
    assert (parts["encoder.blocks"], parts["decoder.blocks"]) == (encoder, decoder)
    assert encoder + decoder in (44_138_496, 176_357_376)


def test_sharing_layers_makes_the_count_independent_of_depth() -> None:
    shared = gpt(64, 12, 4, 32).edit(cn.Tower, distinct=1)
    assert shared.count() == shared.edit(cn.Tower, depth=24).count() == gpt(64, 1, 4, 32).count()
