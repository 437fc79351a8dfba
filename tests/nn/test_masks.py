"""Masks: the rules against their definitions, the adapters, the doctor, positions from padding."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clearhead import nn as cn
from clearhead.errors import InputError
from clearhead.nn import check_mask, mask_adapters
from clearhead.nn.masks import segment_positions

SIZE = 6


def dense(mask: cn.Mask, batch: int = 2, queries: int = SIZE, start: int = 0) -> torch.Tensor:
    keys = start + queries
    slots = torch.arange(keys)[None]
    over = cn.View(mask, batch, slots[:, start:], slots, start)
    full = torch.ones(1, 1, queries, keys, dtype=torch.bool) if over.dense is None else over.dense
    return full.expand(batch, -1, -1, -1)[:, 0]


def brute(allows, batch: int = 2) -> torch.Tensor:
    table = [[[allows(b, q, k) for k in range(SIZE)] for q in range(SIZE)] for b in range(batch)]
    return torch.tensor(table)


REAL = torch.tensor([[1, 1, 1, 1, 0, 0], [0, 1, 1, 1, 1, 1]]).bool()
DOCUMENT = torch.tensor([[0, 0, 1, 1, 1, -1], [5, 5, 5, 2, 2, 2]])
RULES = {
    "everyone": (cn.Everyone(), lambda b, q, k: True),
    "causal": (cn.Causal(), lambda b, q, k: k <= q),
    "window": (cn.SlidingWindow(2, 1), lambda b, q, k: q - 2 <= k <= q + 1),
    "window-left": (cn.SlidingWindow(0), lambda b, q, k: k == q),
    "prefix": (cn.PrefixMask(3), lambda b, q, k: k < 3 or k <= q),
    "global": (cn.Global((0, 4)), lambda b, q, k: q in (0, 4) or k in (0, 4)),
    "longformer": (cn.SlidingWindow(1, 1) | cn.Global((0,)), lambda b, q, k: abs(q - k) <= 1 or 0 in (q, k)),
    "padding": (cn.Padding(REAL), lambda b, q, k: bool(REAL[b, k])),
    "documents": (
        cn.Documents(DOCUMENT),
        lambda b, q, k: bool(DOCUMENT[b, q] == DOCUMENT[b, k]) and bool(DOCUMENT[b, k] >= 0),
    ),
    "not": (~cn.Causal(), lambda b, q, k: k > q),
    "not-padding": (~cn.Padding(REAL), lambda b, q, k: not bool(REAL[b, k])),
    "decoder": (cn.Causal() & cn.Padding(REAL), lambda b, q, k: k <= q and bool(REAL[b, k])),
}


@pytest.mark.parametrize("name", RULES)
def test_a_rule_is_its_definition(name: str) -> None:
    mask, definition = RULES[name]
    assert torch.equal(dense(mask), brute(definition))


@pytest.mark.parametrize("name", RULES)
def test_late_queries_see_the_last_rows_of_the_whole_mask(name: str) -> None:
    mask, definition = RULES[name]
    assert torch.equal(dense(mask, queries=2, start=4), brute(definition)[:, 4:])


def test_everyone_is_neutral_and_equal_rules_collapse() -> None:
    assert cn.Everyone() & cn.Causal() == cn.Causal() == cn.Causal() & cn.Everyone()
    assert cn.Causal() & cn.Causal() == cn.Causal()


def test_a_rule_is_rendered_once_per_call() -> None:
    calls = []

    class Counting(cn.Mask):
        def allows(self, b, h, q, k):
            calls.append(1)
            return k <= q

    slots = torch.arange(4)[None]
    over = cn.View(Counting(), 1, slots, slots)
    for _ in range(3):
        assert over.dense is not None
        assert over.restrict(cn.SlidingWindow(1)).dense is not None
    assert len(calls) == 2


@given(
    lengths=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    left=st.integers(0, 3),
    right=st.integers(0, 3),
)
def test_positions_count_the_real_tokens_of_each_text(lengths: list[int], left: int, right: int) -> None:
    row = [-1] * left + [n for n, size in enumerate(lengths) for _ in range(size)] + [-1] * right
    want = [0] * left + [i for size in lengths for i in range(size)]
    got = segment_positions(torch.tensor([row]))[0].tolist()
    assert got[: len(want)] == want
    assert all(p >= 0 for p in got)


@given(st.data(), st.integers(1, 9))
def test_two_rules_of_segments_part_a_row_wherever_either_does(data: st.DataObject, length: int) -> None:
    """Two tokens are of one text where both rules say so, and padding where either does: in any order."""
    numbers = st.lists(st.integers(-1, 5), min_size=length, max_size=length)
    one, two = (torch.tensor([data.draw(numbers)]) for _ in range(2))
    real = torch.tensor([data.draw(st.lists(st.booleans(), min_size=length, max_size=length))])
    for second, flags in ((cn.Documents(two), two >= 0), (cn.Padding(real), real)):
        same = (one[0, :, None] == one[0]) & (one >= 0).T
        if isinstance(second, cn.Documents):
            same &= two[0, :, None] == two[0]
        same &= flags & flags.T
        for joined in (cn.Documents(one) & second, second & cn.Documents(one)):
            found = joined.segments()[0]
            assert torch.equal((found[:, None] == found) & (found >= 0)[:, None], same)
            assert torch.equal(found >= 0, ((one >= 0) & flags)[0])
            real_queries = found >= 0  # what padding itself looks at is nobody's business
            assert torch.equal(dense(joined, 1, length)[0, real_queries], same[real_queries])


def test_a_hole_in_the_padding_does_not_restart_a_text() -> None:
    assert segment_positions(torch.tensor([[0, -1, 0, 0]]))[0].tolist() == [0, 0, 1, 2]


TRIANGLE = torch.ones(4, 4).tril().bool()


def test_each_door_gives_the_same_mask() -> None:
    additive = torch.zeros(4, 4).masked_fill(~TRIANGLE, float("-inf"))
    same = (
        mask_adapters.from_allowed(TRIANGLE),
        mask_adapters.from_allowed(TRIANGLE.long()),
        mask_adapters.from_allowed(TRIANGLE[None]),
        mask_adapters.from_blocked(~TRIANGLE),
        mask_adapters.from_blocked((~TRIANGLE).float()),
        mask_adapters.from_additive(additive),
    )
    for mask in same:
        assert torch.equal(dense(mask, queries=4)[0], TRIANGLE)
    assert torch.equal(
        dense(mask_adapters.from_attention_mask(REAL.long())), dense(mask_adapters.from_padding_mask(~REAL))
    )
    assert mask_adapters.from_attention_mask(torch.ones(2, 3)) == cn.Everyone()


def test_a_mask_per_head_reaches_the_heads() -> None:
    per_head = torch.stack([TRIANGLE, TRIANGLE.T, ~TRIANGLE, torch.ones(4, 4).bool()])[None]
    slots = torch.arange(4)[None]
    rendered = cn.View(mask_adapters.from_allowed(per_head) & cn.SlidingWindow(3, 3), 2, slots, slots).dense
    assert rendered.shape == (1, 4, 4, 4) and torch.equal(rendered, per_head)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: mask_adapters.from_attention_mask(torch.tensor([[0.0, float("-inf")]])),
            "use from_additive",
        ),
        (lambda: mask_adapters.from_attention_mask(torch.tensor([[2, 1]])), "ones and zeros"),
        (lambda: mask_adapters.from_attention_mask(torch.ones(2, 3, 3).bool()), "see from_allowed"),
        (lambda: mask_adapters.from_additive(torch.tensor([[1.0, 0.0]])), "use from_allowed"),
        (lambda: mask_adapters.from_additive(torch.tensor([[1, 0]])), "use from_allowed"),
        (lambda: mask_adapters.from_allowed(torch.ones(5).bool()), "given (5,)"),
        (lambda: cn.Padding(torch.ones(2, 3)), "given float32 of shape (2, 3)"),
        (lambda: cn.Documents(torch.ones(2, 3)), "int64"),
        (lambda: cn.SlidingWindow(-1), "zero or more"),
    ],
)
def test_a_wrong_mask_is_refused_by_name(call, words: str) -> None:
    with pytest.raises(InputError) as caught:
        call()
    assert words in str(caught.value) and "\n" not in str(caught.value)


def findings(mask: torch.Tensor | cn.Mask, *, causal: bool = True, real: torch.Tensor | None = None) -> str:
    return " | ".join(check_mask(mask, batch=2, length=4, causal=causal, real_BT=real))


def test_the_doctor_finds_each_classic_mistake() -> None:
    real = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]])
    assert findings(TRIANGLE) == ""
    assert findings(cn.Causal() & cn.Padding(real.bool()), real=real) == ""
    assert findings(real, causal=False, real=real) == ""
    assert "only the future may be seen" in findings(~TRIANGLE)
    assert "only the padding may be seen" in findings(1 - real, causal=False, real=real)
    assert "future: 12 pairs attend to later tokens; the first is row 0, token 0 at token 1" in findings(
        torch.ones(4, 4)
    )
    assert "shape: (4,)" in findings(torch.ones(4))
    assert "shape: (2, 4, 3)" in findings(torch.ones(2, 4, 3))
    assert "0/-inf" in findings(torch.zeros(4, 4).masked_fill(~TRIANGLE, float("-inf")))
    seen = torch.ones(4, 4).tril(-1)
    assert "blocked: 2 tokens see nothing; the first is row 0, token 0" in findings(seen)
