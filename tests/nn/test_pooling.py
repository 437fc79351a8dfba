"""Pooling between layers (Funnel Transformer): the edges and refusals not covered by the registry laws."""

import pytest
import torch
from tolerance import assert_close

from clearhead import nn as cn
from clearhead.errors import InputError, SpecError
from clearhead.lens.heads import head_scores
from clearhead.lens.record import TraceInput
from clearhead.lens.tokens import of_ids
from clearhead.lens.trace import trace_ids
from clearhead.nn.long.pooling import Pooling


def model(**pooling: object) -> cn.SingleStack:
    block = cn.Block(attention=cn.Attention(heads=2, head_dim=4), feedforward=cn.MLP(hidden=16), order="post")
    tower = cn.Tower(
        width=8,
        depth=3,
        embed=cn.Tokens(vocab=20),
        block=block,
        positions=cn.RelativeWaves(first="apart"),
        pooling=cn.Pooling(before=(1,), restore=2, **pooling),
    )
    return cn.SingleStack(tower=tower, head=cn.Tags(count=2)).build()


def test_a_causal_tower_cannot_pool() -> None:
    block = cn.Block(attention=cn.Attention(heads=2, head_dim=4), feedforward=cn.MLP(hidden=16), order="post")
    with pytest.raises(SpecError, match="pooling is for encoders"):
        cn.Tower(
            width=8,
            depth=2,
            embed=cn.Tokens(vocab=20),
            block=block,
            causal=True,
            pooling=cn.Pooling(before=(1,)),
        )


def test_a_cache_is_refused() -> None:
    built = model()
    with pytest.raises(InputError, match="reads a whole text at once; call it without a cache"):
        built(torch.tensor([[1, 2, 3]]), cache=built.cache(5))


def test_an_unusual_mask_is_refused() -> None:
    built = model()
    with pytest.raises(InputError, match="takes a mask of padding or of packed texts"):
        built(torch.randint(0, 20, (1, 6)), cn.Causal())


def test_first_alone_groups_from_the_paper() -> None:
    """CLS keeps its place among the groups; the tokens after it pair up, each group at its first token."""
    view = cn.View(cn.Everyone(), 1, torch.arange(7)[None], torch.arange(7)[None])
    pooled = cn.Pooling(before=(1,), groups="first-alone").bind(view, None, 2)
    assert pooled.views[1].q_pos[0].tolist() == [-1, 1, 3, 5]


@pytest.mark.parametrize("pooled", ["queries", "all"])
def test_a_dropped_token_keeps_its_own_state_alone(pooled: str) -> None:
    """With an even number of tokens the last one is in no group; every other gets that of its group added."""
    built, seen = model(pooled=pooled), cn.Recorder()
    built(torch.arange(8)[None], tap=seen.tap())
    before, groups, after = (seen[f"tower.blocks.{x}"][0] for x in ("0.out", "1.out", "2.in"))
    assert len(groups) == 4 and torch.equal(after[7], before[7])
    assert_close(after[:7], before[:7] + groups[[0, 1, 1, 2, 2, 3, 3]])


def test_a_pooling_after_restore_or_out_of_order_is_refused() -> None:
    with pytest.raises(SpecError, match="in ascending order"):
        Pooling(before=(3, 1), restore=2)
    with pytest.raises(SpecError, match="Pooling names layer 5"):
        cn.Tower(
            width=8,
            depth=3,
            embed=cn.Tokens(vocab=20),
            block=cn.Block(attention=cn.Attention(heads=2, head_dim=4), feedforward=cn.MLP(hidden=16)),
            pooling=Pooling(before=(5,)),
        )


def test_queries_pooled_needs_a_plain_post_block() -> None:
    block = cn.Block(
        attention=cn.Attention(heads=2, head_dim=4, window=(1, 1)), feedforward=cn.MLP(hidden=16)
    )
    with pytest.raises(SpecError, match="pools its queries"):
        cn.Tower(
            width=8,
            depth=2,
            embed=cn.Tokens(vocab=20),
            block=block,
            pooling=cn.Pooling(before=(1,), pooled="queries"),
        )


@pytest.mark.parametrize("pooled", ["queries", "all"])
def test_the_lens_shows_a_dropped_token_as_zeros(pooled: str) -> None:
    ids = list(range(8))
    trace = trace_ids(model(pooled=pooled), TraceInput(ids, of_ids(ids, None)))
    weights = trace.attention("self", 1)
    assert weights.shape == (2, 8, 8) and not weights[:, 7].any() and not trace.hidden(2)[7].any()
    assert_close(weights[:, :7].sum(-1), torch.ones(2, 7))
    # Where only queries are pooled, the last token is still a key.
    assert bool(weights[:, :7, 7].any()) == (pooled == "queries")
    with pytest.raises(InputError, match="layer 1 reads pooled tokens"):
        trace.steps("self", 1, 0)


def test_what_the_lens_cannot_say_of_pooled_tokens_is_refused() -> None:
    """A dropped token has no state to predict from; weights between groups are not those between tokens."""
    ids = list(range(8))
    trace = trace_ids(model(), TraceInput(ids, of_ids(ids, None)))
    with pytest.raises(
        InputError, match="the logit lens needs every token in every layer; layers 1 pool them"
    ):
        trace.logit_lens()
    with pytest.raises(InputError, match="rollout needs every token"):
        trace.draw("rollout")
    assert trace.logit_lens_or_none() is None and "layers 1 read pooled tokens" in trace.notes[0]


def test_scores_of_heads_are_those_of_the_weights_between_groups() -> None:
    ids = list(range(8))
    trace = trace_ids(model(pooled="all"), TraceInput(ids, of_ids(ids, None)))
    scores, weights = head_scores(trace), trace.call("self", 1).pattern()[0]
    assert weights.shape == (2, 4, 4)
    assert_close(scores.entropy[1], -(weights * weights.log2()).sum(-1).mean(-1))
    assert scores.previous[1].isnan().all() and not scores.previous[0].isnan().any()
