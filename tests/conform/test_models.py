"""Laws that every model obeys, whatever it is made of."""

import json
import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tolerance import assert_close
from zoo import (
    BARE,
    DECODERS,
    ENCODERS,
    EVERY,
    HEADED,
    PAIRS,
    SINGLES,
    VOCAB,
    assert_same_bits,
    has_no_effect,
    ids,
    routed_as,
    run,
)

from clearhead import nn as cn
from clearhead.errors import InputError
from clearhead.nn.model import Model
from clearhead.spec import Spec

every = pytest.mark.parametrize("spec", EVERY.values(), ids=EVERY)
singles = pytest.mark.parametrize("spec", SINGLES.values(), ids=SINGLES)
decoders = pytest.mark.parametrize("spec", DECODERS.values(), ids=DECODERS)
pairs = pytest.mark.parametrize("spec", PAIRS.values(), ids=PAIRS)
generative = pytest.mark.parametrize(
    "spec",
    [*DECODERS.values(), *PAIRS.values()],
    ids=[*(f"decoder/{n}" for n in DECODERS), *(f"pair/{n}" for n in PAIRS)],
)


@every
def test_json_round_trip(spec: Model) -> None:
    assert Spec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec


@every
def test_two_builds_with_one_seed_are_bit_equal_and_another_seed_differs(spec: Model) -> None:
    one, two, other = spec.build(seed=1), spec.build(seed=1), spec.build(seed=2)
    for name, weight in one.state_dict().items():
        assert torch.equal(weight, two.state_dict()[name])
    assert any(not torch.equal(w, other.state_dict()[n]) for n, w in one.state_dict().items())


@every
def test_the_count_is_that_of_the_built_model(spec: Model) -> None:
    counted = sum(p.numel() for p in spec.build().parameters())
    assert spec.count() == counted == sum(spec.count_parts().values())


@every
def test_global_random_state_is_untouched(spec: Model) -> None:
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()
    model = spec.build()
    run(model, ids(2, 5), ids(2, 4)).sum().backward()
    spec.count()
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    assert np.array_equal(np.random.get_state()[1], before[2])


@every
def test_every_tap_site_exists_and_watching_changes_nothing(spec: Model) -> None:
    model, record = spec.build(), cn.Recorder()
    plain = run(model, ids(2, 5), ids(2, 4))
    watched = run(model, ids(2, 5), ids(2, 4), tap=record.tap())
    assert torch.equal(plain, watched)
    assert set(record) == set(cn.sites(model))
    patterns = {name: x for name, x in record.items() if name.endswith(".pattern")}
    assert patterns or not any(isinstance(n, cn.Attention) for n in spec.nodes())
    for name, x in patterns.items():
        if model.get_submodule(name.removesuffix(".pattern")).kernel.is_normalised:
            assert_close(x.sum(-1), torch.ones(x.shape[:-1]))
            assert bool((x >= 0).all())


@every
def test_a_tap_can_change_the_answer_at_every_site(spec: Model) -> None:
    model = spec.build(dtype=torch.float64)
    plain = run(model, ids(2, 5), ids(2, 4))
    for site in cn.sites(model):
        changed = run(model, ids(2, 5), ids(2, 4), tap=cn.Tap(site, lambda _, x: x + torch.rand_like(x)))
        # A row of keys may be shifted by a constant without moving the softmax: hence the noise.
        assert not torch.equal(plain, changed), site


@every
def test_a_model_that_answered_can_still_learn(spec: Model) -> None:
    """What a first call in inference mode leaves behind (tables, random features) may be used in training."""
    model = spec.build(dtype=torch.bfloat16).eval()  # of a kind no other test asks for: nothing is kept yet
    source = target = ids(2, 12)
    with torch.inference_mode():
        run(model, source, target)
    run(model, source, target).sum().backward()


@every
def test_every_parameter_gets_gradient(spec: Model) -> None:
    model = spec.build(dtype=torch.float64)
    target = torch.arange(44).reshape(2, 22) % VOCAB
    source = target.flip(1)
    types = {"types": torch.arange(44).reshape(2, 22) % 2} if _has_types(spec) else {}
    answer = run(model, source, target, **types)
    weights = torch.randn(answer.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    (answer * weights).sum().backward()
    if isinstance(spec, cn.SingleStack) and spec.second:
        second = model.read_second(model.states(target))
        (second * weights.flatten()[: second.numel()].reshape(second.shape)).sum().backward()
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:  # a router's balance: it only changes the choice
            continue
        if name.endswith(("positions.table.weight", "embed.table.weight")):
            used = parameter.grad.abs().sum(1) > 0
            assert used.any(), name
        elif has_no_effect(spec, name):
            assert parameter.grad.abs().max() < 1e-9, name  # the same amount on every score of a row
        else:
            assert parameter.grad.abs().max() > 1e-9, name


def keeps_state(part: torch.nn.Module) -> bool:
    return getattr(part, "cache_kind", "keys") == "state"


def _has_types(spec: Model) -> bool:
    return isinstance(spec, cn.SingleStack) and any(getattr(n, "types", 0) for n in spec.nodes())


@generative
@given(length=st.integers(2, 12), data=st.data())
def test_the_future_never_leaks(spec: Model, length: int, data: st.DataObject) -> None:
    model = spec.build()
    cut = data.draw(st.integers(1, length - 1))
    one = ids(2, length, seed=length)
    two = torch.cat([one[:, :cut], ids(2, length - cut, seed=99)], dim=1)
    source = ids(2, 5)
    assert_same_bits(spec, run(model, source, one)[:, :cut], run(model, source, two)[:, :cut])


@decoders
def test_packed_documents_equal_each_alone_and_do_not_see_each_other(spec: Model) -> None:
    model = spec.build(dtype=torch.float64)
    packed, number = ids(2, 12), torch.tensor([[0] * 5 + [1] * 4 + [-1] * 3, [3] * 2 + [7] * 10])
    got = model(packed, cn.Documents(number))
    assert_close(got[0, :5], model(packed[:1, :5])[0])
    assert_close(got[0, 5:9], model(packed[:1, 5:9])[0])
    assert_close(got[1, 2:], model(packed[1:, 2:])[0])
    other = packed.clone()
    other[0, 5:], other[1, 2:] = ids(1, 7, seed=5), ids(1, 10, seed=6)
    again = model(other, cn.Documents(number))
    assert_same_bits(spec, got[0, :5], again[0, :5])
    assert_same_bits(spec, got[1, :2], again[1, :2])


@pairs
def test_packed_pairs_equal_each_alone(spec: Model) -> None:
    model = spec.build(dtype=torch.float64)
    source, target = ids(1, 9), ids(1, 7)
    s_doc, t_doc = torch.tensor([[0] * 4 + [1] * 5]), torch.tensor([[0] * 3 + [1] * 4])
    got = model(source, target, cn.Documents(s_doc), cn.Documents(t_doc))
    assert_close(got[:, :3], model(source[:, :4], target[:, :3]))
    assert_close(got[:, 3:], model(source[:, 4:], target[:, 3:]))


@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_left_right_and_no_padding_agree(spec: Model, dtype: torch.dtype) -> None:
    model = spec.build(dtype=dtype)
    source, target = ids(1, 6), ids(1, 5)
    alone = run(model, source, target)
    for left in (0, 3):
        s, s_real = _padded(source, left, 3 - left)
        t, t_real = _padded(target, left, 3 - left)
        masks = {"src_mask": s_real, "tgt_mask": t_real}
        if spec.inputs == 1:
            masks = {"mask": t_real}
        answer = run(model, s, t, **masks)
        if answer.ndim == 3:  # one answer per token
            answer = answer[:, left : left + 5]
        assert_close(answer[1:], alone)


def _padded(x: torch.Tensor, left: int, right: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A batch of a full row of noise and the padded `x`; the padding holds noise as well."""
    length = left + x.shape[1] + right
    batch = ids(2, length, seed=7)
    batch[1, left : length - right] = x[0]
    real = torch.ones(2, length, dtype=torch.long)
    real[1, :left], real[1, length - right :] = 0, 0
    return batch, real


@generative
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@torch.no_grad()
def test_cached_equals_uncached(spec: Model, dtype: torch.dtype) -> None:
    """Growing and allocated; all at once, token by token, and in chunks; a shorter prompt padded in front."""
    model = spec.build(dtype=dtype)
    named = "tgt_mask" if isinstance(spec, cn.EncoderDecoder) else "mask"
    for capacity, length in ((None, _growing_limit(spec)), (20, 20)):
        source, target = ids(2, 6), ids(2, length)
        real = torch.ones(2, length, dtype=torch.long)
        real[1, :3] = 0
        whole = run(model, source, target, **{named: real})
        for chunks in ([length], [1] * length, [7, 1, 1, length - 9]):
            cache = model.cache(capacity)
            parts = [
                run(model, source, new, cache=cache, **{named: flags})
                for new, flags in zip(target.split(chunks, 1), real.split(chunks, 1), strict=True)
            ]
            got = torch.cat(parts, dim=1)
            assert cache.length == length + virtual_tokens(spec)
            assert_close(got[0], whole[0])
            assert_close(got[1, 3:], whole[1, 3:])


def virtual_tokens(spec: Model) -> int:
    """How many virtual tokens a cache of the model holds beside those of the text."""
    return 0 if spec.head_tower.virtual is None else spec.head_tower.virtual.length


def _growing_limit(spec: Model) -> int:
    """Scaling that depends on the length needs to know, beyond its trained one, how long the run will be."""
    trained = [n.length for n in spec.nodes() if isinstance(n, cn.DynamicNTK | cn.LongRope)]
    return min([20, *trained])


@generative
@torch.no_grad()
def test_a_cache_can_be_trimmed_and_reordered(spec: Model) -> None:
    """A running state cannot go back: it says so, and is as it was."""
    model = spec.build(dtype=torch.float64)
    source, target = ids(3, 6), ids(3, 9)
    for capacity in (None, 9):
        cache, rows = model.cache(capacity), torch.tensor([2, 0])
        if any(keeps_state(part) for part in model.modules()):
            run(model, source, target[:, :4], cache=cache)
            with pytest.raises(InputError, match="running state"):
                cache.trim(3)
            cache.trim(4)
        else:
            run(model, source, target[:, :7], cache=cache)
            cache.trim(4 + virtual_tokens(spec))
        cache.reorder(rows)
        rest = run(model, source[rows], target[rows, 4:], cache=cache)
        assert_close(rest, run(model, source, target)[rows, 4:])


@every
def test_checkpointed_gradients_equal_plain_ones(spec: Model) -> None:
    plain, saving = (
        spec.edit(cn.Tower, recompute=recompute).build(dtype=torch.float64) for recompute in (False, True)
    )
    for model in (plain, saving):
        run(model, ids(2, 5), ids(2, 6)).square().sum().backward()
    for (name, one), two in zip(plain.named_parameters(), saving.parameters(), strict=True):
        assert (one.grad is None) == (two.grad is None), name
        if one.grad is not None:
            assert_close(one.grad, two.grad)


def test_recomputing_keeps_less_for_the_way_back() -> None:
    kept: dict[bool, int] = {}
    for recompute in (False, True):
        model, sizes = DECODERS["Learned"].edit(cn.Tower, depth=6, recompute=recompute).build(), []
        count = lambda x: (sizes.append(x.numel()), x)[1]  # noqa: E731, B023
        with torch.autograd.graph.saved_tensors_hooks(count, lambda x: x):
            model(ids(2, 12))
        kept[recompute] = sum(sizes)
    assert kept[True] < kept[False] / 3


# Roundings add up over layers. The worst of these models, an encoder and a decoder with gates, is 0.036 of
# the largest answer away in bfloat16 (which has steps of 1/256) and 0.0085 in float16 (1/2048).
HALF = {torch.bfloat16: 5e-2, torch.float16: 1.2e-2}


@every
@pytest.mark.parametrize("dtype", HALF, ids=str)
@torch.no_grad()
def test_half_precision_is_finite_and_near(spec: Model, dtype: torch.dtype) -> None:
    half = spec.build(dtype=dtype)
    exact = spec.build(dtype=dtype).to(torch.float64)  # the same rounded weights
    tap = routed_as(exact, ids(2, 5), ids(2, 6))
    got, want = (run(m, ids(2, 5), ids(2, 6), tap=tap) for m in (half, exact))
    assert got.dtype == dtype and bool(got.isfinite().all())
    scale = want.abs().max()
    assert_close(got.double() / scale, want / scale, tolerance=HALF[dtype])


@singles
@torch.no_grad()
def test_hidden_states_are_what_the_head_reads(spec: Model) -> None:
    model, record = spec.build(), cn.Recorder()
    address = f"{list(spec.tower_fields)[-1]}.out"
    states = model.hidden(ids(2, 5), tap=record.tap(address))
    assert torch.equal(states, record[address][:, -states.shape[1] :])
    assert spec is not BARE["headless"] or torch.equal(states, model(ids(2, 5)))


@torch.no_grad()
def test_a_window_is_the_mask_of_that_name() -> None:
    near, far = DECODERS["window"].build(), DECODERS["Learned"].build()
    assert torch.equal(near(ids(2, 9)), far(ids(2, 9), cn.SlidingWindow(2, 1)))
    assert not torch.equal(near(ids(2, 9)), far(ids(2, 9)))


def test_encoders_look_both_ways() -> None:
    """The law of the future can fail: an encoder breaks it."""
    model = ENCODERS["Learned"].build()
    one, two = ids(1, 6), ids(1, 6)
    two[0, 5] = (one[0, 5] + 1) % VOCAB
    assert not torch.equal(model(one)[:, :5], model(two)[:, :5])


def test_heads_answer_in_their_shapes() -> None:
    shapes = {"TokenHead": (2, 5, VOCAB), "Labels": (2, 3), "Tags": (2, 5, 3), "Span": (2, 5, 2)}
    for name, shape in shapes.items():
        assert HEADED[name].build()(ids(2, 5)).shape == shape
    assert HEADED["Pooled"].build()(ids(2, 5)).shape == (2, 24)
