"""The lens on every family: the weights it shows are those of `transformers`' own eager attention."""

from pathlib import Path
from typing import Any

import pytest
import torch
from references import REFERENCES, Reference, eager
from tolerance import assert_close

import clearhead as ch
from clearhead import nn as cn


def attends(reference: Reference) -> bool:
    family = reference.family
    spec = family.spec(family.config({}), next(iter(family.architectures)))
    return any(isinstance(node, cn.Attention) for node in spec.nodes())


# Heads on top change nothing below: one task of each family, and every variation.
TOWERS = {
    name: r
    for name, r in REFERENCES.items()
    if r.name != "plain" or r.task == next(iter(r.family.architectures))
    if r.family.name != "reformer"  # theirs are in the order of buckets, which is not handed out
    if attends(r)
}


@pytest.mark.parametrize("reference", TOWERS.values(), ids=TOWERS)
@torch.no_grad()
def test_attention_equals_the_reference(reference: Reference, tmp_path: Path) -> None:
    """All kinds, layers and heads; and the answer is the same with the lens on and off."""
    theirs = reference.files(tmp_path)
    eager(theirs)
    bundle = ch.load(tmp_path)
    key = torch.Generator().manual_seed(4)
    vocab = min(theirs.config.vocab_size, getattr(theirs.config, "decoder_vocab_size", None) or 99)
    ids, target = (torch.randint(3, vocab, (1, n), generator=key) for n in (13, 9))
    if theirs.config.is_encoder_decoder:
        want = theirs(input_ids=ids, decoder_input_ids=target, output_attentions=True, use_cache=False)
        kinds = {"self": "encoder_attentions", "decoder": "decoder_attentions", "cross": "cross_attentions"}
        trace = bundle.trace(ids, target)
        plain = bundle.model(ids, target)
    else:
        given = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        if reference.task == "choice":  # questions with one choice
            given = {name: x[:, None] for name, x in given.items()}
        want = theirs(**given, output_attentions=True)
        kinds = {"self": "attentions"}
        trace = bundle.trace(ids)
        plain = bundle.model(ids)
    assert torch.equal(trace.answer, plain[0])
    big_bird = any(isinstance(node, cn.BigBird) for node in bundle.spec.nodes())
    for kind, name in kinds.items():
        _compare(trace, kind, want[name], first_block_once=big_bird)


def _compare(trace: Any, kind: str, wanted: tuple[torch.Tensor, ...], *, first_block_once: bool) -> None:
    assert trace.layers(kind) == len(wanted)
    for layer, given in enumerate(wanted):
        keys = len(trace.sides(kind)[1])
        if trace.address(kind, layer) in trace.record.groups:  # pooled: the lens shows it token by token
            assert_close(trace.call(kind, layer).pattern()[0], given[0], 1e-5)
            continue
        if given.ndim == 5:
            size = given.shape[-2]
            want = _from_blocks(given[..., : 3 * size], keys)
            if given.shape[-1] > 3 * size:  # behind the keys of three blocks, summaries
                summaries = given[..., 3 * size :].transpose(1, 2).flatten(2, 3)[0, :, :keys]
                assert_close(
                    trace.activation(f"{trace.address(kind, layer)}.summary_pattern"), summaries, 1e-5
                )
                assert_close(want[0].sum(-1) + summaries.sum(-1), torch.ones(want.shape[1:3]))
        else:
            want = given if given.shape[-1] == keys else _unpacked(given)
        if first_block_once:  # without random blocks theirs looks at it several times and writes it down once
            want[..., 0] += (1 - want.sum(-1)) * (want.sum(-1) < 0.999)
        assert trace.heads(kind) == want.shape[1]
        assert_close(trace.attention(kind, layer), want[0], 1e-5)
        for head in (0, -1):  # one head alone is computed another way: only what was asked for
            assert_close(trace.attention(kind, layer, head), want[0, head], 1e-5)


def _from_blocks(blocks: torch.Tensor, length: int) -> torch.Tensor:
    """LongT5 hands out (batch, blocks, heads, queries, keys of three blocks)."""
    batch, count, heads, size, width = blocks.shape
    dense = torch.zeros(batch, heads, count * size, (count + 2) * size)
    for i in range(count):
        dense[:, :, i * size : (i + 1) * size, i * size : i * size + width] = blocks[:, i]
    return dense[:, :, :length, size : size + length]


def _unpacked(band: torch.Tensor) -> torch.Tensor:
    """Longformer hands out (batch, heads, tokens, window + 1), each row about its own token."""
    batch, heads, length, width = band.shape
    dense = torch.zeros(batch, heads, length, length)
    for q in range(length):
        for j in range(width):
            k = q + j - width // 2
            if 0 <= k < length:
                dense[:, :, q, k] = band[:, :, q, j]
    return dense
