"""Order, buckets, packing, padding: laws over many sizes. Functions of numbers, and of nothing else."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.data import Augment, Buckets, epoch_order, pack, pad, plan_rows, rows_of_step
from clearhead.errors import ClearheadError

SEEDS, EPOCHS = st.integers(0, 2**63), st.integers(0, 1000)


@given(seed=SEEDS, epoch=EPOCHS, count=st.integers(0, 300))
def test_an_order_is_a_permutation(seed: int, epoch: int, count: int) -> None:
    rows = epoch_order(seed, epoch, count)
    assert sorted(rows.tolist()) == list(range(count))
    assert rows.tolist() == epoch_order(seed, epoch, count).tolist()


def test_an_order_is_the_same_for_ever() -> None:
    # Written down from the first version: runs that were interrupted under it must find their place again.
    assert epoch_order(0, 0, 8).tolist() == ORDER_0_0_8
    assert epoch_order(7, 3, 8).tolist() == ORDER_7_3_8


ORDER_0_0_8 = [2, 0, 7, 6, 5, 3, 1, 4]
ORDER_7_3_8 = [7, 5, 3, 4, 2, 1, 6, 0]


def test_orders_differ_by_seed_epoch_and_purpose_and_are_even() -> None:
    orders = {
        tuple(epoch_order(s, e, 20, p).tolist()) for s in range(3) for e in range(3) for p in ("rows", "x")
    }
    assert len(orders) == 18
    places = np.array([epoch_order(0, epoch, 10) for epoch in range(3000)])
    share = np.array([np.bincount(column, minlength=10) / 3000 for column in places.T])
    assert abs(share - 0.1).max() < 0.03


@given(seed=SEEDS, count=st.integers(1, 40), size=st.integers(1, 60))
def test_batches_give_every_row_once_before_any_row_twice(seed: int, count: int, size: int) -> None:
    steps = -(-2 * count // size)
    stream = np.concatenate(
        [rows_of_step(seed, step, count=count, size=size) for step in range(1, steps + 1)]
    )
    for epoch in range(2):
        assert sorted(stream[epoch * count : (epoch + 1) * count].tolist()) == list(range(count))
    assert all(len(rows_of_step(seed, step, count=count, size=size)) == size for step in (1, steps, 10**6))


LENGTHS = st.lists(st.integers(0, 50), min_size=1, max_size=120)
PAIRS = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=120)


@given(
    lengths=LENGTHS | PAIRS,
    tokens=st.integers(60, 400),
    seed=SEEDS,
    epoch=EPOCHS,
    rows=st.none() | st.integers(1, 9),
)
def test_buckets_take_each_row_once_and_keep_the_budget(lengths, tokens, seed, epoch, rows) -> None:
    buckets = Buckets(lengths, tokens=tokens, seed=seed, rows=rows)
    plan = buckets.plan(epoch)
    assert sorted(np.concatenate(plan).tolist()) == list(range(len(lengths)))
    table = np.array(lengths).reshape(len(lengths), -1)
    for batch_rows in plan:
        assert len(batch_rows) * table[batch_rows].max(0).sum() <= tokens
        assert rows is None or len(batch_rows) <= rows
    assert len(plan) == len(buckets)


def test_a_budget_is_used_to_the_last_token_and_not_beyond() -> None:
    for tokens, rows in ((30, 3), (29, 2), (31, 3)):
        assert {len(batch) for batch in Buckets([10] * 12, tokens=tokens, seed=0).plan(0)} == {rows}
    assert len(Buckets([[10, 5]] * 12, tokens=59, seed=0)) == 4  # both sides count


@given(lengths=LENGTHS, seed=SEEDS, step=st.integers(1, 10**6))
def test_a_batch_is_a_function_of_seed_and_step(lengths, seed: int, step: int) -> None:
    one, two = (Buckets(lengths, tokens=60, seed=seed) for _ in range(2))
    two.batch(1)
    assert one.batch(step).tolist() == two.batch(step).tolist()
    epoch, inside = divmod(step - 1, len(one))
    assert one.batch(step).tolist() == one.plan(epoch)[inside].tolist()


def test_epochs_differ_in_order_and_in_company() -> None:
    buckets = Buckets([7] * 200 + [9] * 200, tokens=90, seed=0)
    first, second = ([tuple(rows) for rows in buckets.plan(epoch)] for epoch in (0, 1))
    assert first != second
    assert set(map(frozenset, first)) != set(map(frozenset, second))
    lengths = [int(buckets.lengths[list(rows)].max()) for rows in first]
    assert lengths != sorted(lengths)


def test_rows_that_do_not_fit_are_named() -> None:
    with pytest.raises(
        ClearheadError, match=r"2 of 3 rows do not fit .* 10 tokens .row 1, 3; the longest has 30"
    ):
        Buckets([[10, 20], [2, 3], [9, 3]], tokens=10, seed=0)
    for call in (
        lambda: Buckets([], tokens=9, seed=0),
        lambda: Buckets([-1], tokens=9, seed=0),
        lambda: Buckets([1], tokens=9, seed=0).batch(0),
        lambda: rows_of_step(0, 0, count=3, size=2),
    ):
        with pytest.raises(ClearheadError) as caught:
            call()
        assert "\n" not in str(caught.value)


DOCUMENTS = st.lists(st.lists(st.integers(1, 9), max_size=40), max_size=30)


@given(documents=DOCUMENTS, length=st.integers(1, 25), seed=SEEDS, cut=st.sampled_from(["long", "any"]))
def test_packing_keeps_every_token_and_never_looks_over_a_border(documents, length, seed, cut) -> None:
    rows = plan_rows([len(d) for d in documents], length, seed=seed, cut=cut)
    packed = pack(documents, rows, length, pad=0)
    assert packed.ids_RT.shape == packed.labels_RT.shape == packed.documents_RT.shape == (len(rows), length)
    kept = [[None] * len(d) for d in documents]
    asked = [[0] * len(d) for d in documents]
    for r, row in enumerate(rows):
        at = 0
        for number, (document, start, end) in enumerate(row):
            place = slice(at, at + end - start)
            assert (packed.documents_RT[r, place] == number).all()
            kept[document][start:end] = packed.ids_RT[r, place].tolist()
            for i, label in enumerate(packed.labels_RT[r, place].tolist(), start + 1):
                assert label == (documents[document][i] if i < len(documents[document]) else -100)
                if i < len(documents[document]):
                    asked[document][i] += 1
            at = place.stop
        assert (packed.documents_RT[r, at:] == -1).all() and (packed.labels_RT[r, at:] == -100).all()
        assert (packed.ids_RT[r, at:] == 0).all()
    assert kept == documents
    assert all(times == [0] + [1] * (len(times) - 1) for times in asked if times)
    assert rows == plan_rows([len(d) for d in documents], length, seed=seed, cut=cut)
    if cut == "long":
        assert all(
            end - start == length or (start, end) == (start, len(documents[d]))
            for row in rows
            for d, start, end in row
        )


def test_packing_wastes_little() -> None:
    chance = random.Random(0)
    lengths = [int(chance.lognormvariate(4, 1)) + 1 for _ in range(2000)]
    documents = [[1] * n for n in lengths]
    for cut, limit in (("long", 0.05), ("any", 0.01)):
        assert pack(documents, plan_rows(lengths, 512, cut=cut), 512, pad=0).waste < limit
    assert plan_rows(lengths, 512, epoch=0) != plan_rows(lengths, 512, epoch=1)


def test_packed_documents_are_a_mask_of_the_core() -> None:
    import torch

    from clearhead.nn import Documents

    packed = pack([[1, 2, 3], [4, 5]], plan_rows([3, 2], 6), 6, pad=0)
    Documents(torch.from_numpy(packed.documents_RT))


def test_padding() -> None:
    ids, real = pad([[1, 2], [3]], 0)
    assert ids.tolist() == [[1, 2], [3, 0]] and real.tolist() == [[True, True], [True, False]]
    assert pad([[1, 2], [3]], 9, side="left")[0].tolist() == [[1, 2], [9, 3]]
    assert pad([], 0)[0].shape == (0, 0)


def test_global_generators_are_left_alone() -> None:
    before = random.getstate(), np.random.get_state()
    buckets = Buckets(list(range(1, 40)), tokens=80, seed=1)
    buckets.batch(5), rows_of_step(0, 3, count=9, size=4), plan_rows([3, 4], 5)
    Augment(delete=0.5, swap=0.5, letters=0.5)("a few words to change", seed=0, row=0, epoch=0)
    after = random.getstate(), np.random.get_state()
    assert before[0] == after[0] and all(
        np.array_equal(a, b) for a, b in zip(before[1], after[1], strict=True)
    )
