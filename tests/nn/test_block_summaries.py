"""Attention with block summaries, beyond the laws of all models: packed texts, long texts, refusals."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers
from references import REFERENCES
from tolerance import assert_close
from torch import Tensor
from zoo import OPEN, attention, block, ids, single

import clearhead as ch
from clearhead import nn as cn

NAMES = [name for name in OPEN if name.startswith("block-summaries")]
members = pytest.mark.parametrize("name", NAMES)


def plain_formula(attn: torch.nn.Module, x_TD: Tensor, bias: tuple[Tensor, Tensor] | None = None) -> Tensor:
    """One text with all pairs at once; `bias` are the scores of tokens and of blocks, (H, Q, K) each."""
    length, count = len(x_TD), len(x_TD) // attn.block
    ends = [attn.block * (n + 1) for n in range(count)]
    ends[-1:] = [length] if ends else []  # the last block takes what is left
    sums = [x_TD[attn.block * n : end].sum(0) for n, end in enumerate(ends)]
    source = torch.cat([x_TD, *(attn.summary_norm(x)[None] for x in sums)])[None]
    q, k, v = (project(x)[0] for project, x in
               ((attn.queries, x_TD[None]), (attn.keys, source), (attn.values, source)))  # fmt: skip
    k, v = (x.repeat_interleave(len(q) // len(x), dim=0) for x in (k, v))
    scores = q @ k.mT * attn.scale
    if bias is not None:
        scores = scores + torch.cat(bias, dim=-1)
    at = torch.arange(length)
    if isinstance(attn.rule, cn.SlidingWindow):
        ahead = at - at[:, None]
        out_of_sight = (ahead < -attn.rule.left) | (ahead > attn.rule.right)
        scores[:, :, :length] = scores[:, :, :length].masked_fill(out_of_sight, float("-inf"))
    return attn.out((scores.softmax(-1) @ v).transpose(0, 1).flatten(1))


@pytest.mark.parametrize("length", [1, 2, 3, 7, 64, 65, 130, 200])
@pytest.mark.parametrize("window", [None, (0, 0), (5, 2), (40, 40)], ids=str)
@torch.no_grad()
def test_tiles_give_what_the_plain_formula_does(window: tuple[int, int] | None, length: int) -> None:
    """One tile and several, the last one full and not; a text shorter than a block."""
    spec = attention(project=cn.BlockSummaries(block=3), window=window, kv_heads=2)
    model = single(block=block(attention=spec), depth=1, positions=cn.NoPositions()).build(
        dtype=torch.float64
    )
    attn, record = model.tower.blocks[0].attn, cn.Recorder()
    x = ids(2, length)
    model(x, tap=record.tap("tower.blocks.0.*"))
    normed = model.tower.blocks[0].attn_norm(record["tower.blocks.0.in"])
    for row in range(2):
        assert_close(record["tower.blocks.0.attn.out"][row], plain_formula(attn, normed[row]))


@torch.no_grad()
def test_distances_in_tokens_and_in_blocks_have_a_table_each() -> None:
    spec = attention(project=cn.BlockSummaries(block=4), window=(9, 9))
    positions = cn.RelativeBuckets(buckets=8, max_distance=12)
    model = single(block=block(attention=spec), depth=1, positions=positions).build(dtype=torch.float64)
    tower, record, length = model.tower, cn.Recorder(), 90
    model(ids(1, length), tap=record.tap("tower.blocks.0.*"))
    at, count = torch.arange(length), length // 4
    own = (at // 4).clamp(max=count - 1)
    scheme = tower.positions
    bias = tuple(
        table(scheme._bucket(ahead)).permute(2, 0, 1)
        for table, ahead in (
            (scheme.table, at - at[:, None]),
            (scheme.block_table, torch.arange(count) - own[:, None]),
        )
    )
    normed = tower.blocks[0].attn_norm(record["tower.blocks.0.in"])[0]
    assert_close(record["tower.blocks.0.attn.out"][0], plain_formula(tower.blocks[0].attn, normed, bias))


@members
@torch.no_grad()
def test_packed_texts_equal_each_alone(name: str) -> None:
    """Blocks are counted from the first token of each text; padding before, between and behind."""
    model = single(**OPEN[name]).build(dtype=torch.float64)
    packed = ids(2, 14)
    number = torch.tensor([[-1] + [0] * 5 + [-1] + [1] * 4 + [2] + [-1] * 2, [3] * 3 + [7] * 11])
    got = model(packed, cn.Documents(number))
    for row, text in ((0, 0), (0, 1), (0, 2), (1, 3), (1, 7)):
        at = number[row] == text
        assert_close(got[row, at], model(packed[row, at][None])[0])


@members
@torch.no_grad()
def test_padding_alone_is_no_error(name: str) -> None:
    model, real = single(**OPEN[name]).build(dtype=torch.float64), torch.zeros(2, 5, dtype=torch.long)
    assert bool(model(ids(2, 5), real).isfinite().all())
    real[0] = 1
    assert_close(model(ids(2, 5), real)[:1], model(ids(2, 5)[:1]))


@members
@torch.no_grad()
def test_weights_on_tokens_and_on_summaries_sum_to_one(name: str) -> None:
    """Also where texts differ in length: a short one has no weight on summaries that only others have."""
    model, record = single(**OPEN[name]).build(dtype=torch.float64), cn.Recorder()
    real = torch.ones(2, 9, dtype=torch.long)
    real[1, :4] = 0
    model(ids(2, 9), real, tap=record.tap("tower.blocks.0.attn.*pattern"))
    near, far = (record[f"tower.blocks.0.attn.{site}"] for site in ("pattern", "summary_pattern"))
    total = near.sum(-1) + far.sum(-1)
    assert_close(total[0], torch.ones_like(total[0]))
    assert_close(total[1, :, 4:], torch.ones_like(total[1, :, 4:]))
    assert not near[1, :, :, :4].any() and not far[1, :, :, 5 // model.tower.blocks[0].attn.block :].any()


@pytest.mark.parametrize("length", [1, 15, 16, 17, 31, 300])
@torch.no_grad()
def test_the_default_sizes_equal_the_reference(length: int, tmp_path: Path) -> None:
    """Blocks of 16 tokens, a radius of 127, as all published checkpoints have them."""
    reference = REFERENCES["longt5/tokens/summaries-16"]
    tiny = replace(reference, changes={"encoder_attention_type": "transient-global", "local_radius": 127})
    theirs = tiny.files(tmp_path)
    assert isinstance(theirs, transformers.LongT5ForConditionalGeneration)
    ours, source, target = ch.load(tmp_path).model, ids(2, length, seed=3) + 3, ids(2, 4) + 3
    assert_close(ours(source, target), theirs(input_ids=source, decoder_input_ids=target).logits)


@torch.no_grad()
def test_a_trace_says_that_weights_on_summaries_are_elsewhere() -> None:
    bundle = ch.build(single(**OPEN["block-summaries-window"]))
    trace = bundle.trace(ids(1, 9))
    assert "activation('tower.blocks.0.attn.summary_pattern')" in trace.notes[0]
    assert trace.activation("tower.blocks.0.attn.summary_pattern").shape == (4, 9, 4)
    assert "BlockSummaries(block=2)" in ch.lens.sentence(bundle.spec.tower)
    with pytest.raises(ch.errors.InputError, match="no scores to show"):
        trace.steps("self", 0, 0)


def test_what_it_cannot_do_is_one_line() -> None:
    summaries = cn.BlockSummaries(block=2)
    with pytest.raises(ch.errors.SpecError, match="needs kernel=Softmax without cap and sink"):
        attention(project=summaries, kernel=cn.Linear())
    with pytest.raises(ch.errors.SpecError, match="leave qk_norm and clip unset"):
        attention(project=summaries, clip=1.0)
    encoder = single(block=block(attention=attention(project=summaries)))
    with pytest.raises(ch.errors.UnsupportedError, match="a summary would show later tokens"):
        encoder.edit(cn.Tower, causal=True).build()
    with pytest.raises(ch.errors.UnsupportedError, match="a mask of any kind"):
        encoder.build()(ids(1, 4), cn.PrefixMask(2))
    with pytest.raises(
        ch.errors.UnsupportedError, match="no bias of pairs of tokens; choose RelativeBuckets"
    ):
        encoder.edit(cn.Tower, positions=cn.Alibi()).build()(ids(1, 4))
    with pytest.raises(ch.errors.SpecError, match="'sparse'; only 'local' and 'transient-global' can be"):
        ch.build("longt5", encoder_attention_type="sparse")
