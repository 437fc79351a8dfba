"""Losses: the vocabulary product only where there is a label, smoothing over real classes only."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from tolerance import assert_close
from zoo import ids, single

from clearhead.data.packing import IGNORE_INDEX
from clearhead.errors import SpecError
from clearhead.tasks.losses import Smoothing, class_loss, token_loss


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_without_smoothing_it_is_cross_entropy() -> None:
    logits, labels = noise(6, 9), torch.tensor([0, 3, 8, 2, 2, 5])
    want = F.cross_entropy(logits, labels, reduction="sum")
    assert_close(Smoothing().loss(logits, labels), want)
    assert_close(Smoothing(1e-12).loss(logits, labels), want, tolerance=1e-9)


@given(amount=st.floats(0.01, 0.9), classes=st.integers(3, 12), seed=st.integers(0, 50))
def test_smoothing_is_the_divergence_from_the_smoothed_truth(amount: float, classes: int, seed: int) -> None:
    """Against torch's own divergence, with the truth written out class by class; class 0 is padding."""
    logits, labels = noise(4, classes, seed=seed), torch.tensor([1, 2, classes - 1, 1])
    truth = torch.full((4, classes), amount / (classes - 2), dtype=torch.float64)
    truth[:, 0] = 0
    truth[torch.arange(4), labels] = 1 - amount
    want = F.kl_div(logits.log_softmax(-1), truth, reduction="sum")
    assert_close(Smoothing(amount, unreal=(0,)).loss(logits, labels), want, tolerance=1e-10)


def test_a_perfect_answer_has_loss_zero_and_a_constant_changes_nothing() -> None:
    truth = torch.tensor([[0.0, 0.9, 0.05, 0.05]], dtype=torch.float64)
    smoothing = Smoothing(0.1, unreal=(0,))
    answer = (truth + 1e-300).log()
    assert abs(float(smoothing.loss(answer, torch.tensor([1])))) < 1e-12
    assert_close(smoothing.loss(answer + 7.0, torch.tensor([1])), smoothing.loss(answer, torch.tensor([1])))


def test_a_uniform_model_has_a_perplexity_of_the_vocabulary() -> None:
    loss = Smoothing().loss(torch.zeros(5, 17), torch.arange(5)) / 5
    assert math.isclose(math.exp(float(loss)), 17, rel_tol=1e-6)


def test_only_labelled_tokens_reach_the_vocabulary() -> None:
    model = single(causal=True).build(dtype=torch.float64)
    states = model.states(ids(2, 7))
    labels = torch.full((2, 7), IGNORE_INDEX)
    labels[0, 2], labels[1, 5], labels[1, 6] = 4, 9, 0
    seen: list[tuple[int, ...]] = []
    read = model.read
    model.read = lambda s: (seen.append(tuple(s.x_BTD.shape)), read(s))[1]
    got = token_loss(model, states, labels, Smoothing())
    want = F.cross_entropy(
        model(ids(2, 7)).flatten(0, 1), labels.flatten(), reduction="sum", ignore_index=IGNORE_INDEX
    )
    assert_close(got, want)
    assert seen[0] == (1, 3, 24)  # three labels, three products


def test_rows_without_a_label_count_nothing() -> None:
    logits, labels = noise(3, 4, 5), torch.tensor([[1, IGNORE_INDEX, 2, IGNORE_INDEX]] * 3)
    want = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum", ignore_index=IGNORE_INDEX)
    assert_close(class_loss(logits, labels, Smoothing()), want)


@pytest.mark.parametrize("amount", [-0.1, 1.0, float("nan")])
def test_a_wrong_amount_is_refused(amount: float) -> None:
    with pytest.raises(SpecError, match="label smoothing"):
        Smoothing(amount)


def test_two_classes_of_which_one_is_padding_cannot_be_smoothed() -> None:
    with pytest.raises(SpecError, match="two real classes"):
        Smoothing(0.1, unreal=(0,)).loss(torch.zeros(1, 2), torch.tensor([1]))
