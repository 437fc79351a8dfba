"""Strategies by what must be true of them: brute force, chi-square, seeds, groups, drafts."""

from collections import Counter
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor
from zoo import VOCAB, attention, block, ids, pair, single

from clearhead import nn as cn
from clearhead.errors import InputError
from clearhead.generate import Beam, Contrastive, Draft, EndTokens, Greedy, Prompt, Sample, generate
from clearhead.generate.filters import AtLeast, Forced, Repetition, Suppressed, Temperature, TopK
from clearhead.generate.search import Strategy
from clearhead.nn import EncoderDecoderModel
from clearhead.nn.kernels import LSH

pytestmark = pytest.mark.usefixtures("replay")
END = EndTokens((0,))
CHI2 = {4: 18.467, 5: 20.515}  # by degrees of freedom: exceeded once in a thousand times


def tiny(vocab: int = 4, seed: int = 0) -> cn.SingleStackModel:
    """A decoder over a handful of tokens, so that every text can be tried."""
    spec = single(cn.TokenHead(vocab=vocab), causal=True, embed=cn.Tokens(vocab=vocab))
    return spec.build(seed=seed, dtype=torch.float64)


def says(
    model: Any, strategy: Strategy, *, source: Tensor | None = None, limit: int = 6, **rules: Any
) -> list[list[int]]:
    source = ids(1, 5) if source is None else source
    start = torch.ones(len(source), 1, dtype=torch.long) if isinstance(model, EncoderDecoderModel) else None
    run = generate(model, Prompt(source, None, start), strategy=strategy, limit=limit, **rules)
    return [answer.ids for answers in run.finish() for answer in answers]


# --- beams ---


@pytest.mark.parametrize("penalty", [0.0, 1.0, 2.0, -0.5])
@torch.no_grad()
def test_a_beam_as_wide_as_the_world_is_brute_force(penalty: float) -> None:
    """Four tokens, of which 0 ends a text; every text of up to three, scored by one pass each."""
    model, prompt, length = tiny(), torch.tensor([[1, 2]]), 3
    ends = {ids[: ids.index(0) + 1] if 0 in ids else ids for ids in product(range(4), repeat=length)}
    found = {}
    for text in ends:
        whole = torch.cat([prompt, torch.tensor([text])], dim=1)
        chances = model(whole)[0, 1:-1].log_softmax(-1).gather(1, torch.tensor(text)[:, None])
        found[text] = float(chances.sum()) / len(text) ** penalty
    best = sorted(found, key=lambda text: -found[text])
    strategy = Beam(4**length, penalty, "never", count=len(best))
    run = generate(model, Prompt(prompt), strategy=strategy, stops=(END,), limit=length)
    answers = run.finish()[0]
    assert [tuple(a.ids) for a in answers] == best
    assert [a.score for a in answers] == pytest.approx([found[text] for text in best], abs=1e-5)
    assert {a.reason for a in answers} == {"end", "length"}


def test_one_beam_is_greedy_and_one_group_is_no_group() -> None:
    model = single(causal=True).build(dtype=torch.float64)
    assert says(model, Beam(1), stops=(END,)) == says(model, Greedy(), stops=(END,))
    plain, grouped = Beam(4, count=4), Beam(4, count=4, groups=1, diversity=9.0)
    assert says(model, plain, stops=(END,)) == says(model, grouped, stops=(END,))


def test_groups_without_a_penalty_are_the_same_search_side_by_side() -> None:
    model = single(causal=True).build(dtype=torch.float64)
    halves = says(model, Beam(4, count=4, groups=2), stops=(END,))
    alone = says(model, Beam(2, count=2), stops=(END,))
    assert sorted(halves) == sorted(alone * 2)


def test_groups_avoid_each_other() -> None:
    model = single(causal=True).build(dtype=torch.float64)
    firsts = [answer[0] for answer in says(model, Beam(6, count=6, groups=3, diversity=50.0))]
    assert len(set(firsts)) >= 3
    # The first group knows of no other: it is a beam search of its own.
    assert set(map(tuple, says(model, Beam(2, count=2)))) <= set(
        map(tuple, says(model, Beam(6, count=6, groups=3, diversity=50.0)))
    )


def test_beams_share_what_was_heard() -> None:
    """The encoder and its keys once per source: the same answers as one source per beam."""
    model = pair().build(dtype=torch.float64)
    assert isinstance(model, EncoderDecoderModel)
    source, real = ids(2, 7), torch.ones(2, 7, dtype=torch.long)
    real[1, 4:] = 0
    memory = model.encode(source, real)
    target = ids(6, 5, seed=3)
    shared = cn.Cache(model.spec.decoder.depth, 9)
    one = model.decode(target, replace(memory, rows_per_source=3), cache=shared)
    rows = torch.arange(2).repeat_interleave(3)
    each = model.decode(target, model.encode(source[rows], real[rows]))
    torch.testing.assert_close(one.x_BTD, each.x_BTD, atol=1e-12, rtol=1e-12)
    assert shared.layers[0].cross_kv is not None and len(shared.layers[0].cross_kv[0]) == 2
    with pytest.raises(InputError, match="2 rows, shared by 4 each, the target 6"):
        model.decode(target, replace(memory, rows_per_source=4))


def test_reordering_beams_does_not_touch_the_keys_of_the_source() -> None:
    cache = cn.Cache(1, 4)
    cache.add_tokens(torch.ones(4, 2, dtype=torch.bool))
    layer = cache.layers[0]
    layer.append(torch.rand(4, 1, 2, 3), torch.rand(4, 1, 2, 3))
    layer.cross_kv = torch.rand(2, 1, 5, 3), torch.rand(2, 1, 5, 3)
    before, kept = layer.cross_kv, layer.kv
    assert kept is not None
    wanted = kept[0][[1, 1, 2, 2]].clone()
    cache.reorder(torch.tensor([1, 1, 2, 2]), torch.tensor([0, 1]))
    assert layer.cross_kv is before
    assert layer.kv is not None and layer.kv[0] is kept[0], "moved in place"
    assert torch.equal(layer.kv[0][:, :, :2], wanted[:, :, :2])
    cache.reorder(torch.tensor([2, 3]), torch.tensor([1]))
    assert layer.cross_kv is not None and torch.equal(layer.cross_kv[0], before[0][1:])


def test_a_record_tells_every_hypothesis_and_its_fate() -> None:
    model, width = single(causal=True).build(dtype=torch.float64), 3
    run = generate(model, Prompt(ids(2, 5)), strategy=Beam(width, count=width), stops=(EndTokens((4, 9)),),
                   limit=5, record=True)  # fmt: skip
    nodes = [node for step in run for node in step.nodes]
    known = {node.id: node for node in nodes}
    assert len(known) == len(nodes)
    for step in range(5):
        for request in range(2):
            here = [n for n in nodes if n.step == step and n.request == request]
            if here:
                assert len(here) == 3 * width and sum(n.fate == "kept" for n in here) <= width
    for node in nodes:
        parent = known.get(node.parent)
        if parent is None:
            assert node.step == 0
            continue
        assert parent.fate == "kept" and parent.step == node.step - 1 and parent.request == node.request
        assert node.score == pytest.approx(parent.score + node.logprob, abs=1e-6)
    for request, answers in enumerate(run.answers):
        for answer in answers:
            ends = [
                n
                for n in nodes
                if n.request == request and n.fate == "finished" and n.token == answer.ids[-1]
            ]
            assert any(_text(n, known) == answer.ids for n in ends)


def _text(node: Any, known: dict[int, Any]) -> list[int]:
    before = known.get(node.parent)
    return [*(_text(before, known) if before else []), node.token]


# --- draws ---


def test_a_draw_follows_the_probabilities() -> None:
    """Chi-square over 6,000 draws, filters included."""
    model, prompt, draws = tiny(8, seed=3), torch.tensor([[1, 2, 3]]), 6000
    rules: dict[str, Any] = {"filters": (Temperature(1.5), TopK(6))}
    run = generate(model, Prompt(prompt), strategy=Sample(seed=11, count=draws), limit=1, **rules)
    seen = Counter(answer.ids[0] for answer in run.finish()[0])
    with torch.no_grad():
        logits = model(prompt)[0, -1] / 1.5
    chance = logits.masked_fill(logits < logits.topk(6).values[-1], float("-inf")).softmax(-1).tolist()
    assert set(seen) <= {v for v, p in enumerate(chance) if p > 0}
    expected = {v: p * draws for v, p in enumerate(chance) if p > 0}
    statistic = sum((seen[v] - e) ** 2 / e for v, e in expected.items())
    assert statistic < CHI2[len(expected) - 1]


def test_the_same_seed_says_the_same_and_another_does_not() -> None:
    model = single(causal=True).build()
    torch.manual_seed(1)
    state = torch.get_rng_state()
    one = says(model, Sample(seed=5), limit=12)
    assert torch.equal(torch.get_rng_state(), state), "the global generator is nobody's business"
    torch.manual_seed(2)
    assert one == says(model, Sample(seed=5), limit=12) != says(model, Sample(seed=6), limit=12)


def test_seeds_belong_to_requests() -> None:
    """Alone or in a batch, first or last; more answers leave the first as it was."""
    model, source = single(causal=True).build(), ids(3, 5)
    batch = says(model, Sample(seed=(7, 8, 9)), source=source, limit=8)
    assert batch[::-1] == says(model, Sample(seed=(9, 8, 7)), source=source.flip(0), limit=8)
    assert [batch[1]] == says(model, Sample(seed=8), source=source[1:2], limit=8)
    several = says(model, Sample(seed=8, count=4), source=source[1:2], limit=8)
    assert several[0] == batch[1] and len(set(map(tuple, several))) == 4
    with pytest.raises(InputError, match="2 seeds were given for more requests"):
        says(model, Sample(seed=(7, 8)), source=source)


def test_beams_can_be_drawn() -> None:
    model = single(causal=True).build()
    one, two = (says(model, Beam(3, count=3, seed=s), limit=8) for s in (1, 2))
    assert one == says(model, Beam(3, count=3, seed=1), limit=8) != two


# --- contrast ---


def test_contrast_of_nothing_is_greedy_and_all_of_it_moves_away() -> None:
    model = single(causal=True).build(dtype=torch.float64)
    assert says(model, Contrastive(5, 0.0), limit=10) == says(model, Greedy(), limit=10)
    assert says(model, Contrastive(1, 0.9), limit=10) == says(model, Greedy(), limit=10)
    away = says(model, Contrastive(VOCAB, 1.0), limit=10)[0]
    assert len(set(away)) > len(set(says(model, Greedy(), limit=10)[0]))


@torch.no_grad()
def test_contrast_is_the_formula() -> None:
    """(1 - a) p - a max cos(h, context), computed without a cache for the first two tokens."""
    model, prompt, k, alpha = single(causal=True).build(dtype=torch.float64), ids(1, 5), 4, 0.7
    said: list[int] = []
    for _ in range(2):
        whole = torch.cat([prompt, torch.tensor([said], dtype=torch.long)], dim=1)
        best = model(whole)[0, -1].softmax(-1).topk(k)
        context = torch.nn.functional.normalize(model.hidden(whole)[0], dim=-1)
        values = []
        for p, token in zip(best.values, best.indices, strict=True):
            state = model.hidden(torch.cat([whole, token.view(1, 1)], dim=1))[0, -1]
            likeness = (context @ torch.nn.functional.normalize(state, dim=-1)).max()
            values.append(float((1 - alpha) * p - alpha * likeness))
        said.append(int(best.indices[values.index(max(values))]))
    assert says(model, Contrastive(k, alpha), source=prompt, limit=2) == [said]


# --- drafts ---

DRAFTED: list[tuple[Strategy, tuple[Any, ...]]] = [
    (Greedy(), ()),
    (Greedy(), (Repetition(1.5), AtLeast((0,), count=8), Suppressed((3,)))),
    (Sample(seed=4), (Temperature(0.7),)),
]


@pytest.mark.parametrize("ahead", [1, 2, 5, 50])
@pytest.mark.parametrize("number", range(len(DRAFTED)))
def test_a_draft_changes_nothing(number: int, ahead: int) -> None:
    """A good helper, a bad one and the model itself: the same tokens, greedy or drawn."""
    strategy, filters = DRAFTED[number]
    for large in (single(causal=True), pair()):
        model = large.build(dtype=torch.float64)
        near = large.build(dtype=torch.float64)
        with torch.no_grad():
            for p in near.parameters():
                p += 0.02 * torch.randn(p.shape, generator=torch.Generator().manual_seed(0))
        for helper in (model, near, large.build(seed=9, dtype=torch.float64)):
            rules: dict[str, Any] = {"filters": filters, "stops": (END,), "limit": 17}
            drafted = says(model, strategy, draft=Draft(helper, ahead), **rules)
            assert drafted == says(model, strategy, **rules)


def test_a_good_draft_saves_calls() -> None:
    model = single(causal=True).build(dtype=torch.float64)
    calls = []
    model.tower.register_forward_hook(lambda *_: calls.append(1))
    twin = single(causal=True).build(dtype=torch.float64)
    says(model, Greedy(), draft=Draft(twin, 4), limit=21)
    assert len(calls) == 1 + 4  # the prompt, and four looks at five tokens each


def test_a_drafted_draw_follows_the_probabilities() -> None:
    """Chi-square of the second token of 500 drafted answers, against the model's own distribution."""
    model, helper, prompt, draws = tiny(5, seed=3), tiny(5, seed=4), torch.tensor([[1, 2, 3]]), 500
    first = Forced((2,), at=0)
    seen = Counter(
        says(model, Sample(seed=s), source=prompt, limit=3, draft=Draft(helper, 2), filters=(first,))[0][1]
        for s in range(draws)
    )
    with torch.no_grad():
        chance = model(torch.tensor([[1, 2, 3, 2]]))[0, -1].softmax(-1).tolist()
    statistic = sum((seen[v] - p * draws) ** 2 / (p * draws) for v, p in enumerate(chance))
    assert statistic < CHI2[len(chance) - 1]


def test_a_draft_is_for_one_answer() -> None:
    model = single(causal=True).build()
    other = single(cn.TokenHead(vocab=9), causal=True, embed=cn.Tokens(vocab=9)).build()
    with pytest.raises(InputError, match="one request at a time; given 2"):
        says(model, Greedy(), source=ids(2, 4), draft=Draft(model))
    with pytest.raises(InputError, match="supports one sequence: drop num_beams"):
        says(model, Beam(2), draft=Draft(model))
    with pytest.raises(InputError, match="the draft has a vocabulary of 9, the model 31"):
        says(model, Greedy(), source=torch.tensor([[1, 2]]), draft=Draft(other))
    with pytest.raises(InputError, match="does not work with contrastive search: drop penalty_alpha"):
        says(model, Contrastive(1), draft=Draft(model))


# --- what cannot be said ---


def test_filters_that_leave_nothing_are_named() -> None:
    model = single(causal=True, block=block()).build()
    nothing = (Suppressed(tuple(range(VOCAB))),)
    for strategy in (Greedy(), Sample(), Beam(3), Contrastive()):
        with pytest.raises(InputError, match="every token was masked out by the filters"):
            says(model, strategy, filters=nothing)


def test_a_damaged_model_is_named() -> None:
    model = single(causal=True).build()
    with torch.no_grad():
        next(model.parameters()).fill_(float("nan"))
    for strategy in (Greedy(), Sample(), Beam(3), Contrastive()):
        with pytest.raises(InputError, match="not finite"):
            says(model, strategy)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: Beam(0), "num_beams is 0"),
        (lambda: Beam(2, count=3), "num_return_sequences is 3 with 2 beams"),
        (lambda: Beam(4, groups=3), "4 beams cannot be split into 3 equal groups"),
        (lambda: Beam(2, early_stopping="soon"), "early_stopping is 'soon'"),
        (lambda: Sample(count=0), "num_return_sequences is 0"),
        (lambda: Contrastive(0), "top_k is 0"),
        (lambda: Contrastive(4, 2.0), "penalty_alpha is 2.0"),
    ],
)
def test_a_strategy_that_makes_no_sense_is_refused(wrong: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        wrong()


def test_prompts_that_make_no_sense_are_refused() -> None:
    single_model, pair_model = single(causal=True).build(), pair().build()
    none = torch.zeros(1, 3, dtype=torch.long)
    for model, prompt, message in (
        (single_model, Prompt(torch.zeros(1, 0, dtype=torch.long)), "at least one token"),
        (single_model, Prompt(ids(1, 3), none), "no real token"),
        (single_model, Prompt(ids(1, 3), none[:, :2]), r"the mask is \(1, 2\), the ids \(1, 3\)"),
        (single_model, Prompt(ids(1, 3), None, ids(1, 1)), "no separate decoder"),
        (pair_model, Prompt(ids(1, 3)), "needs a start token"),
    ):
        with pytest.raises(InputError, match=message):
            generate(model, prompt, limit=3).finish()
    with pytest.raises(InputError, match="limit is 0"):
        generate(single_model, Prompt(ids(1, 3)), limit=0)


# --- models that cannot be told one token after another ---


@pytest.mark.parametrize(
    "strategy", [Greedy(), Sample(seed=2, count=3), Beam(3, count=3), Contrastive(3, 0.5)], ids=str
)
@torch.no_grad()
def test_a_kernel_that_cannot_be_cached_reads_everything_again(strategy: Strategy) -> None:
    """LSH attention sorts all tokens: each log-probability is that of one pass over the text so far."""
    kernel = LSH(chunk=4, rounds=2)
    model = single(causal=True, block=block(attention=attention(kernel=kernel))).build(dtype=torch.float64)
    source = ids(2, 6)
    run = generate(model, Prompt(source), strategy=strategy, stops=(EndTokens((4, 9)),), limit=5)
    for row, answers in enumerate(run.finish()):
        for answer in answers:
            for at, (token, logprob) in enumerate(zip(answer.ids, answer.logprobs, strict=True)):
                before = torch.tensor([[*source[row].tolist(), *answer.ids[:at]]])
                chances = model(before)[0, -1].log_softmax(-1)
                assert logprob == pytest.approx(float(chances[token]), abs=1e-9)
    twin = Draft(model, 3)
    assert says(model, Greedy(), draft=twin, limit=9) == says(model, Greedy(), limit=9)


def test_the_last_position_is_a_clear_error_in_every_way_to_run() -> None:
    """Axial positions count by rows and columns; a replayed step must not run past them."""
    model = single(causal=True, positions=cn.Axial(shape=(4, 8), widths=(14, 10))).build()
    with pytest.raises(InputError, match="longer than 32"):
        says(model, Greedy(), limit=60)
