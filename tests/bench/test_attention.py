"""The benches of mixing: figures that follow from formulas, crossovers, refusals, what the commands print."""

import json
from collections import Counter
from pathlib import Path
from random import Random

import pytest
import torch
from checkpoints import bert

from clearhead.bench import puzzles
from clearhead.bench.attention import (
    AttentionBenchmark,
    AttentionPoint,
    LayerSize,
    crossover,
    growth_per_doubling,
    measure_attention,
    parse_variant,
)
from clearhead.bench.drift import drifts
from clearhead.bench.quality import QualitySettings, train_variants, variant_edit
from clearhead.bench.timing import peak_tensor_bytes
from clearhead.cli.main import main
from clearhead.errors import ClearheadError
from clearhead.nn import kernels

QUIET = lambda line: None  # noqa: E731
SMALL = LayerSize(width=32, heads=2)


def point(variant: str, length: int, seconds: float, memory: int = 1) -> AttentionPoint:
    return AttentionPoint(variant, length, seconds, seconds, memory, memory, 1, 1)


def test_memory_is_that_of_tensors_held_at_once() -> None:
    def work() -> None:
        one = torch.empty(1000)
        two = one + torch.empty(1000)  # three at once
        del one
        two.add_(1)
        torch.empty(2000).zero_()  # one left, and twice as much

    assert peak_tensor_bytes(work) == 3 * 4000
    assert peak_tensor_bytes(lambda: None) == 0


def test_predicted_operations_are_those_that_torch_counts() -> None:
    words = ["Softmax", "Tiled", "Window(4)", "Linear", "Performer(8)", "Linformer(4)", "Nystrom(4)",
             "Summary(8)", "Longformer(4)", "Convolution"]  # fmt: skip
    result = measure_attention(words, (96, 192), SMALL, rounds=1, limit=60, progress=QUIET)
    assert len(result.points) == 2 * len(words) and not result.refused
    for p in result.points:
        assert p.predicted == p.counted, p
        assert p.forward > 0 and p.both > 0 and 0 < p.forward_memory <= p.both_memory
    linear = {p.variant: p.counted for p in result.points if p.length == 192}
    assert linear["Window(4)"] < linear["Softmax"] / 1.4  # the pairs outside are not computed


def test_what_grows_with_the_length_alone_does_so_from_2k_to_8k() -> None:
    """Operations and memory, which no other program on the machine can disturb."""
    words = ["Softmax", "Window(32)", "Linear", "Performer(16)", "Linformer(16)", "Longformer(16)"]
    result = measure_attention(
        words, (2048, 4096, 8192), LayerSize(width=16, heads=1), rounds=1, limit=60, progress=QUIET
    )
    for word in words[1:]:
        assert growth_per_doubling(result, word, lambda p: p.both_memory).worst < 2.3, word
        assert growth_per_doubling(result, word, lambda p: p.counted).worst < 2.3, word
    assert growth_per_doubling(result, "Softmax", lambda p: p.counted).mean > 3.5


def test_crossover_lies_between_the_lengths_where_it_changes_hands() -> None:
    base = [point("Softmax", n, n * n / 1e6) for n in (512, 1024, 2048, 4096)]
    slow = [point("slow", n, n / 1000) for n in (512, 1024, 2048, 4096)]
    result = AttentionBenchmark([*base, *slow], {}, {})
    assert crossover(result, "slow", lambda p: p.both) == pytest.approx(1000, rel=1e-6)
    assert crossover(result, "Softmax", lambda p: p.both) is None
    fast = AttentionBenchmark([*base, *(point("fast", n, 1e-9) for n in (512, 1024))], {}, {})
    assert crossover(fast, "fast", lambda p: p.both) == 0
    never = AttentionBenchmark([*base, *(point("never", n, 1e9) for n in (512, 1024))], {}, {})
    assert crossover(never, "never", lambda p: p.both) is None
    assert growth_per_doubling(result, "slow", lambda p: p.both).worst == pytest.approx(2.0)
    assert growth_per_doubling(result, "Softmax", lambda p: p.both).mean == pytest.approx(4.0)
    uneven = AttentionBenchmark(
        [point("x", n, t) for n, t in ((2048, 1.0), (4096, 3.0), (8192, 4.0))], {}, {}
    )
    found = growth_per_doubling(uneven, "x", lambda p: p.both)
    assert found.worst == 3.0 and found.mean == pytest.approx(2.0)
    assert growth_per_doubling(fast, "fast", lambda p: p.both) is None


def test_a_variant_that_cannot_or_takes_too_long_is_named() -> None:
    causal = LayerSize(width=32, heads=2, causal=True)
    result = measure_attention(
        ["Softmax", "Nystrom(4)", "Tiled(4)"], (32, 64, 128), causal, rounds=1, limit=0.004, progress=QUIET
    )
    assert "early words would see late ones" in result.refused["Nystrom(4)"]
    assert result.skipped["Tiled(4)"] in (64, 128)
    with pytest.raises(ClearheadError, match="does not mix tokens"):
        parse_variant("Rope", SMALL, 64)
    assert parse_variant("Linformer(4)", SMALL, 900).kernel.length == 900


def test_drift_is_nothing_for_an_exact_kernel_and_something_for_another(tmp_path: Path) -> None:
    model = bert()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.mul_(20.0 if name.endswith(("query.weight", "key.weight", "value.weight")) else 1.0)
    model.save_pretrained(tmp_path)
    found, refused = drifts(
        str(tmp_path), ["Tiled(8)", "Linear", "Recurrent", "Linformer(4, 16)"], None, QUIET
    )
    assert found["Tiled(8)"].states < 1e-6 and found["Tiled(8)"].same == 1.0
    assert found["Linear"].states > 1e-2 and found["Linear"].bits > 0
    assert "Recurrent" not in found and "Recurrent" not in refused  # not a kernel
    assert "projections for 16 positions" in refused["Linformer(4, 16)"]


def test_puzzles_have_one_answer_that_stands_in_them() -> None:
    for row in puzzles.rows("recall", "train", 50, 40, seed=1):
        words = [
            i - puzzles.FIRST for i in row.ids if puzzles.FIRST <= i < puzzles.FIRST + puzzles.RECALL_WORDS
        ]
        assert words == [row.label] and len(row.ids) == 40
        assert row.ids.index(row.label + puzzles.FIRST) >= 30
    rows = puzzles.rows("listops", "train", 200, 60, seed=1)
    assert all(_value(list(row.ids[1:])) == row.label and len(row.ids) <= 60 for row in rows)
    assert len(Counter(row.label for row in rows)) == 10
    assert (
        rows
        == puzzles.rows("listops", "train", 200, 60, seed=1)
        != puzzles.rows("listops", "valid", 200, 60, 1)
    )
    assert puzzles.recall(Random(1), 24).ids[0] == puzzles.START


def _value(ids: list[int]) -> int:
    """The expression worked out by a stack, another way than it was made."""
    stack: list[list[int]] = [[]]
    operations: list[int] = []
    for i in ids:
        if i == puzzles.CLOSE:
            done = puzzles.OPERATIONS[operations.pop()](stack.pop())
            stack[-1].append(done)
        elif i > puzzles.CLOSE:
            operations.append(i - puzzles.CLOSE - 1)
            stack.append([])
        else:
            stack[-1].append(i - puzzles.DIGITS)
    return stack[0][0]


def test_every_variant_learns_from_the_same_rows() -> None:
    assert variant_edit("Recurrent", 24, causal=False)["Block.attention"].both_ways
    assert not variant_edit("Recurrent", 24, causal=True)["Block.attention"].both_ways
    assert variant_edit("Linformer(4)", 24, causal=False) == {
        "Attention.kernel": kernels.Linformer(rank=4, length=24)
    }
    setting = QualitySettings(steps=3, length=24, rows=4, width=16, heads=2, depth=1)
    found, refused = train_variants(
        ["recall", "text"], ["Softmax", "Linear", "Nystrom(4)", "Convolution"], setting, QUIET
    )
    assert [(x.task, x.variant) for x in found] == [
        ("recall", "Softmax"), ("recall", "Linear"), ("recall", "Nystrom(4)"), ("recall", "Convolution"),
        ("text", "Softmax"), ("text", "Linear"), ("text", "Convolution"),
    ]  # fmt: skip
    assert list(refused) == ["text, Nystrom(4)"]
    for x in found:
        assert x.loss > 0 and x.tokens_per_second > 0 and x.memory > 0
        assert (x.accuracy is None) == (x.task == "text")
    with pytest.raises(ClearheadError, match="did you mean 'recall'"):
        train_variants(["recal"], ["Softmax"], setting, QUIET)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["attention", "Linear", "--width", "0"], "--width is 0"),
        (["attention", "Linr", "--lengths", "32"], "did you mean 'Linear'"),
        (["attention", "Linear", "--lengths", "0"], "expected numbers of tokens, 1 or more"),
        (["quality", "--length", "8"], "--length is 8"),
        (["quality", "Linr", "--steps", "2", "--tasks", "nothing"], "there is no task 'nothing'"),
    ],
)
def test_bad_input_is_one_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        main(["bench", *words, "--threads", "1"])
    lines = capsys.readouterr().err.strip().splitlines()
    assert done.value.code == 2 and said in lines[-1]


def test_the_commands_print_tables_json_and_pictures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ["--lengths", "32", "64", "--width", "16", "--heads", "1", "--rounds", "1", "--threads", "1"]
    quick = ["--steps", "2", "--length", "24", "--rows", "2", "--width", "16", "--heads", "1", "--depth", "1"]
    for words in (
        ["attention", "Linear", "Recurrent", *small, "--save", str(tmp_path / "a.svg")],
        [
            "quality",
            "Softmax",
            "Linear",
            *quick,
            "--tasks",
            "recall",
            "--threads",
            "1",
            "--save",
            str(tmp_path / "q.png"),
        ],
    ):
        for more in ([], ["--json"]):
            with pytest.raises(SystemExit) as done:
                main(["bench", *words, *more])
            assert done.value.code == 0
            out = capsys.readouterr().out
            assert "Linear" in out and (not more or json.loads(out))
    assert "Linear" in (tmp_path / "a.svg").read_text() and (tmp_path / "q.png").stat().st_size > 5000
