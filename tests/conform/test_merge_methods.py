"""Laws of merging over every method, and the functions of PEFT and mergekit beside ours, on tensors.

What a method gets are differences to a base, or whole parameters: here random tensors of both kinds.
"""

import json
import warnings
from collections.abc import Iterator, Sequence
from itertools import cycle
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from peft.utils import merge_utils as theirs
from safetensors.torch import load_file
from torch import Tensor

from clearhead.errors import ClearheadError
from clearhead.nn import generator
from clearhead.spec import Spec
from clearhead.tune import (
    Dare,
    DareTies,
    MergeKey,
    MergeMethod,
    Slerp,
    TaskArithmetic,
    Ties,
    WeightedAverage,
)

GOLDEN = Path(__file__).parents[1] / "golden" / "merged_by_mergekit.safetensors"
KEY = MergeKey(("tower.blocks.1.attn.q.weight", "model.layers.1.self_attn.q_proj.weight"), seed=3)
# Every kind with settings unlike its defaults.
METHODS: dict[str, MergeMethod] = {
    "WeightedAverage": WeightedAverage(weights=(0.3, 0.9), weights_pattern=(("*.ff", (1.0, 0.0)),)),
    "Slerp": Slerp(t=0.3, t_pattern=(("self_attn", 0.6),)),
    "TaskArithmetic": TaskArithmetic(weights=(0.8, -0.3), scale=1.2, normalize=True),
    "Ties": Ties(weights=(0.8, 0.3), density=(0.5, 0.9), average="none", majority="count"),
    "Dare": Dare(weights=(0.8, 0.3), density=0.4, density_pattern=(("attn.v", (0.1, 0.2)),), rescale="l1"),
    "DareTies": DareTies(weights=(0.8, 0.3), density=0.4, election="unweighted", rescale="none"),
}
WEIGHTED = {name: kind for name, kind in MergeMethod.kinds().items() if name != "Slerp"}
DRAWING = ("Dare", "DareTies")
every_kind = pytest.mark.parametrize("name", MergeMethod.kinds())


def tensors(count: int, *shape: int, seed: int = 0) -> list[Tensor]:
    return [torch.randn(*(shape or (6, 8)), generator=generator(seed, i)).double() for i in range(count)]


def result(method: MergeMethod, given: Sequence[Tensor], key: MergeKey = KEY) -> Tensor:
    method.check_count(len(given))
    return method.combine(given, key).tensor


def test_every_kind_is_met() -> None:
    assert set(METHODS) == set(MergeMethod.kinds()) and len(METHODS) == 6
    assert all(type(method).__name__ == name for name, method in METHODS.items())


@every_kind
def test_a_value_is_the_same_after_json_and_inputs_are_left_alone(name: str) -> None:
    method = METHODS[name]
    assert Spec.from_dict(json.loads(json.dumps(method.to_dict()))) == method
    given, state = tensors(2), torch.get_rng_state()
    before = [x.clone() for x in given]
    result(method, given)
    assert all(map(torch.equal, given, before)) and torch.equal(torch.get_rng_state(), state)


@every_kind
def test_the_seed_and_the_name_decide_what_is_drawn_and_nothing_else(name: str) -> None:
    method, given = METHODS[name], tensors(2)
    first = result(method, given)
    torch.manual_seed(9)
    assert torch.equal(result(method, given), first)
    for other in (MergeKey(KEY.names, seed=4), MergeKey(("tower.blocks.2.attn.q.weight", *KEY.names), 3)):
        assert torch.equal(result(method, given, other), first) == (name not in DRAWING)
    # The names of the checkpoint choose settings alone.
    assert torch.equal(result(method, given, MergeKey((KEY.names[0], "x", *KEY.names[1:]), 3)), first)


@pytest.mark.parametrize("name", WEIGHTED)
@given(st.lists(st.floats(-2, 2), min_size=3, max_size=3), st.permutations(range(3)))
def test_the_order_of_the_models_does_not_matter(name: str, weights: list[float], order: list[int]) -> None:
    if abs(sum(weights)) < 0.1 or not any(weights) or name in DRAWING:
        return  # draws go by the number of a model
    method, given = WEIGHTED[name](weights=tuple(weights)), tensors(3)
    turned = WEIGHTED[name](weights=tuple(weights[i] for i in order))
    one, two = result(method, given), result(turned, [given[i] for i in order])
    torch.testing.assert_close(one, two, atol=1e-12, rtol=1e-12)


@given(st.floats(0, 1))
def test_slerp_in_the_other_direction(t: float) -> None:
    one, two = tensors(2)
    here, there = result(Slerp(t=t), [one, two]), result(Slerp(t=1 - t), [two, one])
    torch.testing.assert_close(here, there, atol=1e-12, rtol=1e-12)


def neutral(name: str, **settings: object) -> MergeMethod:
    """The kind with everything kept."""
    kind = MergeMethod.kinds()[name]
    return kind(**({"density": 1.0} if hasattr(kind, "density") else {}), **settings)


@every_kind
def test_all_weight_on_one_model_gives_that_model(name: str) -> None:
    one, two = tensors(2)
    first, second = (
        (neutral(name, t=0.0), neutral(name, t=1.0))
        if name == "Slerp"
        else (neutral(name, weights=(1.0, 0.0)), neutral(name, weights=(0.0, 1.0)))
    )
    torch.testing.assert_close(result(first, [one, two]), one, atol=1e-15, rtol=1e-15)
    torch.testing.assert_close(result(second, [one, two]), two, atol=1e-15, rtol=1e-15)


@every_kind
def test_a_model_with_itself_or_alone_is_that_model(name: str) -> None:
    (x,) = tensors(1)
    half = {} if name == "Slerp" else {"weights": (0.5, 0.5)}
    assert torch.equal(result(neutral(name, **half), [x, x]), x)
    if MergeMethod.kinds()[name].fewest == 1:
        assert torch.equal(result(neutral(name), [x]), x)
    else:
        with pytest.raises(ClearheadError, match="merges 2 models"):
            result(neutral(name), [x])


def test_with_everything_kept_nothing_is_drawn() -> None:
    given, settings = tensors(3), {"weights": (0.2, -1.0, 3.0), "scale": 0.7}
    for normalize in (False, True):
        plain = result(TaskArithmetic(**settings, normalize=normalize), given)
        drawn = result(Dare(density=1, **settings, normalize=normalize), given)
        torch.testing.assert_close(drawn, plain, atol=1e-14, rtol=1e-14)
    for rescale in ("density", "l1", "none"):
        elected = result(Ties(density=1.0, **settings), given)
        drawn = result(DareTies(density=1.0, rescale=rescale, **settings), given)
        torch.testing.assert_close(drawn, elected, atol=1e-14, rtol=1e-14)


@given(st.floats(0.01, 1), st.integers(1, 60), st.integers(0, 3))
def test_ties_keeps_the_largest_and_exactly_as_many(density: float, size: int, places: int) -> None:
    x = torch.randn(size, generator=generator(size)).double().round(decimals=places)  # many are equal
    kept = result(Ties(density=density), [x])
    count = max(1, int(density * size)) if density < 1 else size
    assert int((kept != 0).sum()) <= count and set(kept[kept != 0].tolist()) <= set(x.tolist())
    largest = x.abs().sort(descending=True).values[:count]
    assert torch.equal(kept.abs().sort(descending=True).values[:count], largest)


def test_dare_keeps_the_expected_sum_and_about_as_many() -> None:
    (x,) = tensors(1, 400, 500)
    kept = result(Dare(density=0.3), [x])
    assert abs(float((kept != 0).double().mean()) - 0.3) < 0.005
    torch.testing.assert_close(kept[kept != 0] * 0.3, x[kept != 0], atol=1e-12, rtol=1e-12)
    same_sum = result(Dare(density=0.3, rescale="l1"), [x])
    assert abs(float(same_sum.abs().sum() / x.abs().sum()) - 1) < 1e-12


@every_kind
def test_pieces_give_what_the_whole_gives(name: str) -> None:
    method, given = METHODS[name], [x.round(decimals=1) for x in tensors(2, 9, 7)]  # many are equal
    parts = [x.split([4, 1, 4]) for x in given]
    merge_piece = method.plan(lambda: zip(*parts, strict=True), 2, KEY)
    found = [merge_piece(piece) for piece in zip(*parts, strict=True)]
    whole = method.combine(given, KEY)
    if name in DRAWING:  # the first piece has the draws of the whole
        assert torch.equal((found[0].tensor == 0), (whole.tensor[:4] == 0))
        return
    torch.testing.assert_close(torch.cat([each.tensor for each in found]), whole.tensor, atol=1e-13, rtol=0)
    assert sum(each.conflicts for each in found) == whole.conflicts


def test_patterns_choose_by_either_name_of_a_parameter() -> None:
    given = tensors(2)
    for pattern in ("*.attn.q", "tower.blocks.1", "q_proj", "model.layers.1.*"):
        chosen = WeightedAverage(weights=(1.0, 1.0), weights_pattern=((pattern, (0.0, 1.0)),))
        assert torch.equal(result(chosen, given), given[1])
    other = WeightedAverage(weights=(1.0, 0.0), weights_pattern=(("attn.v", (0.0, 1.0)),))
    assert torch.equal(result(other, given), given[0])
    first = Slerp(t=0.5, t_pattern=(("attn", 0.0), ("attn.q", 1.0)))  # the first that matches
    assert torch.equal(result(first, given), given[0])


def test_conflicts_are_counted_among_what_is_kept() -> None:
    one, two = torch.tensor([1.0, 2, -3, 0.1]).double(), torch.tensor([-2.0, 1, 2, -0.1]).double()
    assert TaskArithmetic().combine([one, two], KEY).conflicts == 3
    assert Ties(density=0.5).combine([one, two], KEY).conflicts == 1  # 2, -3 and -2, 2: at the third place
    assert WeightedAverage().combine([one, two], KEY).conflicts == 0


REFUSED: list[tuple[MergeMethod | type[MergeMethod], dict[str, object], str]] = [
    (WeightedAverage, {"weights": (1.0, -1.0)}, "add up to 0"),
    (TaskArithmetic, {"weights": (1.0, -1.0), "normalize": True}, "add up to 0"),
    (Dare, {"weights": (2.0, -2.0), "normalize": True}, "add up to 0"),
    (Ties, {"weights": (0.0, 0.0)}, "nothing of any model"),
    (WeightedAverage, {"weights": (1.0,)}, "1 weights for 2 models"),
    (WeightedAverage, {"weights_pattern": (("*.q", (1.0, 2.0, 3.0)),)}, "3 weights for 2 models"),
    (Ties, {"density": (0.1, 0.2, 0.3)}, "3 densities for 2 models"),
    (WeightedAverage, {"weights": (float("nan"), 1.0)}, "expected a tuple of finite numbers"),
    (Ties, {"density": 0.0}, "a number above 0, at most 1"),
    (Dare, {"density": 1.5}, "a number above 0, at most 1"),
    (Slerp, {"t": 1.5}, "a number from 0 to 1"),
    (Ties, {"election": "weigthed"}, "expected one of 'weighted', 'unweighted'"),
]


@pytest.mark.parametrize(("kind", "settings", "why"), REFUSED)
def test_settings_that_make_no_sense_are_refused(kind, settings: dict[str, object], why: str) -> None:
    with pytest.raises(ClearheadError, match=why):
        result(kind(**settings), tensors(2))


def test_a_misspelt_setting_is_refused_with_the_nearest() -> None:
    with pytest.raises(ClearheadError, match="did you mean 'density'"):
        Spec.from_dict({"kind": "Ties", "densty": 0.5})
    with pytest.raises(ClearheadError, match="did you mean 'TaskArithmetic'"):
        Spec.from_dict({"kind": "TaskArithmetics"})
    with pytest.raises(ClearheadError, match="Slerp merges 2 models; given 3"):
        result(Slerp(), tensors(3))


# PEFT's functions take tensors and give a tensor.

WEIGHTS = (0.7, 1.3, -0.4)


@pytest.fixture
def same_draws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """PEFT's draws are those of ours, one model after the other."""
    numbers = iter(range(10))

    def draw(p: Tensor) -> Tensor:
        key = generator(KEY.seed, "merge", next(numbers), KEY.names[0], 0)
        return (torch.rand(p.shape, generator=key) < p).to(p)

    monkeypatch.setattr(torch, "bernoulli", draw)
    yield
    assert next(numbers) == len(WEIGHTS)  # all were asked for


def test_peft_task_arithmetic() -> None:
    given = tensors(3)
    expected = theirs.task_arithmetic(given, torch.tensor(WEIGHTS, dtype=torch.float64))
    torch.testing.assert_close(result(TaskArithmetic(weights=WEIGHTS), given), expected, atol=1e-14, rtol=0)


@pytest.mark.parametrize("density", [0.2, 0.55, 1.0])
@pytest.mark.parametrize(("majority", "word"), [("sum", "total"), ("count", "frequency")])
def test_peft_ties(density: float, majority: str, word: str) -> None:
    given = tensors(3)
    method = Ties(weights=WEIGHTS, density=density, majority=majority, election="unweighted", average="count")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns where everything is kept
        expected = theirs.ties(given, torch.tensor(WEIGHTS, dtype=torch.float64), density, word)
    torch.testing.assert_close(result(method, given), expected, atol=1e-14, rtol=0)


def test_peft_dare_linear(same_draws: None) -> None:
    given, method = tensors(3), Dare(weights=WEIGHTS, density=0.4)
    expected = theirs.dare_linear(given, torch.tensor(WEIGHTS, dtype=torch.float64), 0.4)
    torch.testing.assert_close(result(method, given), expected, atol=1e-13, rtol=0)


def test_peft_dare_ties(same_draws: None) -> None:
    given = tensors(3)
    method = DareTies(weights=WEIGHTS, density=0.4, election="unweighted", average="count")
    expected = theirs.dare_ties(given, torch.tensor(WEIGHTS, dtype=torch.float64), 0.4)
    torch.testing.assert_close(result(method, given), expected, atol=1e-13, rtol=0)


@pytest.mark.parametrize("rescale", ["l1", "none"])
@pytest.mark.parametrize("name", ["dare_linear", "dare_ties"])
def test_mergekit_dare(name: str, rescale: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the masks that mergekit drew; see tests/golden/merged_by_mergekit.py for its settings."""
    golden = {key.removeprefix("dare/"): x.double() for key, x in load_file(GOLDEN).items()}
    deltas = [golden[which] - golden["base"] for which in ("one", "two")]
    masks = cycle([golden[f"{name}/{rescale}/{which}"].bool() for which in ("one", "two")])
    monkeypatch.setattr("clearhead.tune.sparse_deltas.drawn_mask", lambda x, density, key: next(masks))
    settings = {"weights": (0.6, 0.9), "density": (0.5, 0.7), "rescale": rescale, "scale": 0.8}
    method = Dare(**settings) if name == "dare_linear" else DareTies(**settings)
    merged = golden["base"] + result(method, deltas)
    torch.testing.assert_close(merged, golden[f"{name}/{rescale}"], atol=1e-6, rtol=1e-6)
