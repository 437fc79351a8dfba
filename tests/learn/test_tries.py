"""The experiments: what they measure is what their words say, and one seed gives one table."""

import json
import math
from typing import Any

import pytest

from clearhead.cli.main import main
from clearhead.cli.tries import _plot
from clearhead.learn.tries import TRIES, tries
from clearhead.learn.tries.small import ResultTable, Words


def table(name: str, seed: int = 0) -> list[tuple[Any, ...]]:
    return list(tries()[name].measure(seed).rows)


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as done:
        main(["learn", "try", *words])
    said = capsys.readouterr()
    return int(done.value.code or 0), said.out, said.err


def test_variance_grows_with_the_width_and_gradients_die() -> None:
    rows = table("scale")
    for width, variance, raw, scaled, gradient, kept in rows:
        assert variance == pytest.approx(int(width), rel=0.1)
        assert scaled == pytest.approx(0.32, abs=0.03) and kept == pytest.approx(0.8, abs=0.02)
        assert raw > scaled and gradient < kept
    assert rows[-1][4] < 0.1 * rows[0][4]


def test_view_alone_scatters_tokens() -> None:
    right, wrong = table("view-transpose")
    assert right[1:] == ("1.0 1.1 1.2", 1.0) and wrong[1:] == ("0.3 0.4 0.5", 0.25)


def test_a_residual_needs_one_width() -> None:
    assert [row[3] for row in table("n-embd")] == ["✗", "✓", "✗"]


def test_layer_norm_does_not_see_its_neighbours() -> None:
    for _, layer, batch in table("layernorm-batchnorm"):
        assert layer == 0 and batch > 0.5


def test_order_cannot_be_learned_without_positions() -> None:
    (_, _, moved, right), (_, _, still, coin) = table("no-positions")
    assert right > 95 and moved > 1
    assert 40 < coin < 60 and still < 1e-4


def test_a_model_that_peeks_cannot_write() -> None:
    (_, honest, writes, best), (_, peeks, stutters, _) = table("no-mask")
    assert best == math.log(10) and honest == pytest.approx(best, abs=0.05) == writes
    assert peeks < 0.5 and stutters > best + 1


def test_pre_norm_learns_where_post_norm_does_not() -> None:
    post, pre = table("pre-norm")
    assert post[-1] > 2.2 and pre[-1] < 1.5


def test_without_residuals_depth_hurts() -> None:
    rows = table("no-residual")
    assert all(with_it < 1.3 for _, with_it, _ in rows)
    assert rows[-1][2] > 2.2


@pytest.mark.parametrize("seed", [0, 1])
def test_with_one_layer_the_model_without_residuals_wins_and_the_answer_says_so(seed: int) -> None:
    (_, with_it, without), *deeper = table("no-residual", seed)
    assert without < with_it and all(lost > kept for _, kept, lost in deeper)
    answer = tries()["no-residual"].answer
    assert "At depth 1 the model without them wins" in answer["en"] and "只有一层时" in answer["zh"]


@pytest.mark.parametrize("seed", [0, 1])
def test_a_model_without_dropout_over_fits(seed: int) -> None:
    plain, little, much = table("dropout", seed)
    guessing, best_possible = math.log(10), 1.18
    for _, seen, held_out, lowest, step in (plain, little, much):
        assert seen < held_out and lowest < held_out and int(step) < 200
        assert best_possible < lowest < 1.7
    assert plain[1] < 0.15 and plain[2] > guessing + 0.3
    assert little[1] < 0.2 and little[2] > guessing  # too little for so few rows
    assert 0.4 < much[1] < 1.18 and much[2] < 2.0
    assert plain[3] < much[2]  # early stopping helps even more than dropout


def test_only_attention_and_a_net_of_fixed_length_reach_far_back() -> None:
    recurrent, feed_forward, convolution, attention = table("rnn-or-attention")
    *_, chance = recurrent[1:6]
    assert recurrent[1] > 99 and recurrent[3] < 40 and recurrent[4] < 20 and chance < 20
    assert min(convolution[1:4]) > 99 and max(convolution[4:6]) < 20  # it reaches 8 back, and no farther
    for far in (feed_forward, attention):
        assert min(far[1:6]) > 99
    sizes = [row[6] for row in (recurrent, attention, convolution, feed_forward)]
    assert sizes == sorted(sizes)


def test_larger_models_have_a_lower_loss_by_about_a_power_law() -> None:
    rows = table("scaling")
    sizes, losses = [row[1] for row in rows], [row[2] for row in rows]
    assert sizes == sorted(sizes) and sizes[-1] > 100 * sizes[0]
    assert losses == sorted(losses, reverse=True)
    assert all(fitted == pytest.approx(loss, rel=0.03) for _, _, loss, fitted in rows)
    slope = math.log(rows[-1][3] / rows[0][3]) / math.log(sizes[-1] / sizes[0])
    assert 1 - 10**slope == pytest.approx(0.07, abs=0.02)  # "about 7 %", as its answer says


def test_a_plot_has_a_point_for_each_row(capsys: pytest.CaptureFixture[str]) -> None:
    words = Words("x", "x"), Words("size", "大小"), Words("loss", "损失")
    rows = (("a", 10.0, 4.0), ("b", 100.0, 2.0), ("c", 1000.0, 1.0))
    lines = _plot(ResultTable(words, rows, bar=2, plot=(1, 2)), "en").splitlines()
    points = [(line.index("●"), number) for number, line in enumerate(lines) if "●" in line]
    (left, top), (middle, half), (right, bottom) = points  # a power law is a straight line
    assert abs(middle - (left + right) / 2) <= 1 and abs(half - (top + bottom) / 2) <= 1
    assert "loss" in lines[0] and "4" in lines[1] and "1,000" in lines[-2] and "size" in lines[-1]


@pytest.mark.parametrize("name", TRIES)
def test_it_asks_and_answers_in_both_languages(name: str) -> None:
    for words in (tries()[name].question, tries()[name].answer):
        assert words["en"] and any(ord(letter) > 0x2E80 for letter in words["zh"])


def test_as_a_person_sees_it(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "scale", "--lang", "zh", "--seed", "3")
    assert code == 0 and "方差" in out and "█" in out and "大约十秒" in err
    said = json.loads(run(capsys, "scale", "--json", "--seed", "3")[1])
    assert said["rows"] == json.loads(run(capsys, "scale", "--json", "--seed", "3")[1])["rows"]
    assert said["rows"] != json.loads(run(capsys, "scale", "--json", "--seed", "4")[1])["rows"]
    listed = run(capsys, "--lang", "en")[1]
    assert all(name in listed for name in TRIES)
    assert [each["name"] for each in json.loads(run(capsys, "--json")[1])] == list(TRIES)
    code, _, err = run(capsys, "no-msk")
    assert code == 2 and "did you mean 'no-mask'?" in err and err.count("\n") == 1
