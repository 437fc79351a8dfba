"""Plans: sums that must come out, what more devices may do, and figures that others published."""

import json
import subprocess
import sys
import time
from itertools import product
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from zoo import DECODERS, ENCODERS, PAIRS

from clearhead import nn as cn
from clearhead.cli.main import main
from clearhead.errors import InputError
from clearhead.families import SIZES, family_and_config
from clearhead.lens.cost import cost
from clearhead.lens.cost.complexity import TAPS, complexity_table, crossing
from clearhead.lens.cost.layers import tower
from clearhead.lens.cost.machine import step_time
from clearhead.lens.cost.plan import Device, layouts, parse_layout, plan
from clearhead.lens.cost.split import Job, Layout, share
from clearhead.lens.cost.total import model_cost
from clearhead.nn.cost import CallShape
from clearhead.nn.model import Model

MODELS = {"bert-base", "gpt2-xl", "llama-7b", "t5-base", "albert-base"}
BIG = Device(memory=10**15)


def spec(name: str) -> Model:
    family, config = family_and_config(name)
    return family.spec(config, "tokens")


@pytest.mark.parametrize("name", sorted(MODELS & {*SIZES}))
@pytest.mark.parametrize("training", [True, False])
def test_one_device_does_what_the_model_costs(name: str, training: bool) -> None:
    job = Job(batch=4, length=128, target=64, training=training)
    whole = cost(spec(name), batch=4, length=128, target=64, training=training, number=2, device="cuda")
    part = share(spec(name), job, Layout(), rows=4)
    assert part.memory == whole.memory
    assert part.flops == (whole.training_flops if training else whole.flops)
    assert part.traffic == 0 and part.idle == 0


@pytest.mark.parametrize("name", sorted(MODELS & {*SIZES}))
def test_twice_the_devices_never_need_more_memory(name: str) -> None:
    """Of each, when the same batch is split further in any one way."""
    job = Job(batch=64, length=128, training=True)
    for zero, data, tensor, again in product(range(4), (1, 2, 4), (1, 2, 4), (False, True)):
        if zero and data == 1:
            continue
        before = share(spec(name), job, Layout(data=data, tensor=tensor, zero=zero, recompute=again), rows=1)
        for more in (Layout(data=2 * data, tensor=tensor, zero=zero, recompute=again),
                     Layout(data=data, tensor=2 * tensor, zero=zero, recompute=again)):  # fmt: skip
            after = share(spec(name), job, more, rows=1)
            assert after.memory <= before.memory
            assert after.flops < before.flops
    least = [
        min(share(spec(name), job, layout, rows=1).memory for layout in layouts(spec(name), job, count))
        for count in (1, 2, 4, 8, 16, 32)
    ]
    assert least == sorted(least, reverse=True)


def test_zero_divides_what_it_says() -> None:
    """ZeRO's three levels (Rajbhandari 2019): 2 + 2 + 12 bytes a parameter in half precision, cut in turn."""
    model, job, ways = spec("gpt2-xl"), Job(batch=64, length=128, training=True), 64
    count = model.count()
    for zero in range(4):
        part = share(model, job, Layout(data=ways, zero=zero), rows=1)
        wanted = [12 * count, 2 * count, 2 * count]
        cut = [-(-size // ways) if zero > level else size for level, size in enumerate(wanted)]
        assert [part.optimizer, part.gradients, part.weights] == cut


def test_traffic_of_rings() -> None:
    """A ring sum of a tensor sends 2 (n - 1) / n of it; spread weights are gathered twice on top."""
    model, job = spec("gpt2"), Job(batch=8, length=128, training=True)
    size = 2 * model.count()
    for zero, times in ((0, 2), (1, 2), (2, 2), (3, 3)):
        part = share(model, job, Layout(data=8, zero=zero), rows=1)
        assert part.sent == {"data": times * size * 7 // 8, "tensor": 0, "pipeline": 0}
    stream = 2 * 8 * 128 * 768
    assert share(model, job, Layout(tensor=4), rows=8).sent["tensor"] == 12 * 2 * 2 * 2 * stream * 3 // 4
    assert share(model, job, Layout(pipeline=4), rows=1).sent["pipeline"] == 2 * stream


def test_stages_hold_every_layer_once() -> None:
    """The fullest stage of many holds one layer of the deepest tower and a front door at most."""
    model, job = spec("llama-7b"), Job(batch=32, length=128, training=True)
    parts = cost(model).parts
    layer = parts["tower.blocks"] // 32
    part = share(model, job, Layout(pipeline=32), rows=1)
    assert part.weights == 2 * (layer + max(parts["tower.embed"], parts["head"] + 4096))
    assert part.idle == 31 / (32 + 31)


def test_the_first_stage_keeps_a_part_for_every_stage_behind_it() -> None:
    """One forward, one backward (Narayanan 2019): a quarter of the layers, for four parts on their way."""
    model = spec("gpt2")
    sides = model_cost(model, Job(batch=1, length=128, training=True).call(1)).towers["tower"]
    layers, front = sum(layer.all.saved for layer in sides.blocks), sides.embed.saved + sides.positions.saved
    for batch, flight in ((1, 1), (2, 2), (4, 4), (16, 4)):
        job = Job(batch=batch, length=128, training=True)
        part = share(model, job, Layout(pipeline=4), rows=1)
        assert part.activations >= flight * (layers // 4 + front)
        assert batch == 1 or part.activations == flight * (layers // 4 + front)


def test_activations_of_a_layer_are_those_of_the_published_formula() -> None:
    """34 s b h bytes in half precision with fused attention and dropout (Korthikanti 2022)."""
    model = spec("gpt3")
    usage = CallShape(batch=1, length=2048, training=True, number=2, device="cuda")
    layer = tower(model.tower, usage).blocks[0].all
    published = 34 * 2048 * 12288
    assert 0 <= layer.saved - published < 0.002 * published


def test_operations_of_a_step_are_six_for_each_matrix_parameter_and_token() -> None:
    """6 N T and 12 L n^2 d, the fused backward pass with one product more (Chowdhery 2022, Dao 2022)."""
    model, n = spec("gpt3"), 2048
    matrices = 96 * 12 * 12288**2 + 50257 * 12288
    fused = cost(model.edit(cn.Softmax, dropout=0.0), length=n, training=True).training_flops
    assert fused == 6 * matrices * n + 14 * 96 * n * n * 12288


@pytest.mark.parametrize("name", ["order-pre", "grouped", "Gated-silu", "odd-sizes"])
def test_the_complexity_table_counts_what_torch_counts(name: str) -> None:
    side, n = ENCODERS[name].tower, 37
    rows = {row.part: row for row in complexity_table(side, n)}
    layer = tower(side, CallShape(batch=1, length=n)).blocks[0].all
    three = [rows[part] for part in ("scores and mix", "projections", "feed-forward")]
    assert sum(row.flops for row in three) == layer.flops
    d = side.width
    with FlopCounterMode(display=False) as count, torch.no_grad():
        cell, state = torch.nn.RNNCell(d, d, device="meta"), torch.empty(1, d, device="meta")
        for _ in range(n):
            state = cell(torch.empty(1, d, device="meta"), state)
    assert rows["recurrent"].flops == count.get_total_flops()
    assert rows["recurrent"].parameters == sum(p.numel() for p in cell.parameters())
    with FlopCounterMode(display=False) as count, torch.no_grad():
        kernel = torch.nn.Conv1d(d, d, TAPS, padding="same", device="meta")
        kernel(torch.empty(1, d, n, device="meta"))
    assert rows["convolution"].flops == count.get_total_flops()
    assert rows["convolution"].parameters == sum(p.numel() for p in kernel.parameters())


def test_attention_costs_more_than_its_projections_from_twice_the_width_on() -> None:
    assert crossing(complexity_table(spec("gpt2").tower, 100), 100) == 2 * 768


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("tensor=3", "6 devices, not 8"), ("tensr=2", "did you mean 'tensor'"), ("zero=4", "0 to 3"),
        ("data=0", "1 or more"), ("data", "1 or more"),
    ],
)  # fmt: skip
def test_words_that_are_no_layout_are_refused(words: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        parse_layout(words, 8)


def test_layouts_that_cannot_be_are_refused() -> None:
    model, job = spec("gpt2"), Job(batch=4, length=128, training=True)
    for layout, said in (
        (Layout(tensor=8), "does not divide the 12"),
        (Layout(pipeline=16), "more than the 12 layers"),
        (Layout(data=8), "more than the 4 rows"),
        (Layout(tensor=2, zero=1), "there is one"),
    ):
        with pytest.raises(InputError, match=said):
            plan(model, job, layout.devices, BIG, layout)


@pytest.mark.parametrize("models", [ENCODERS, DECODERS, PAIRS])
def test_every_kind_of_model_can_be_planned(models: dict[str, Model]) -> None:
    for name in ("order-post", "shared-layers", "pattern", "grouped"):
        for training in (True, False):
            found = plan(models[name], Job(batch=8, length=8, training=training), 4, BIG)
            assert found.best is not None and found.best.layout.devices == 4


def test_a_timed_step_leaves_no_trace() -> None:
    before = torch.random.get_rng_state()
    took = step_time(DECODERS["dropped"], CallShape(batch=2, length=8, training=True))
    assert took.timed and took.seconds > 0 and took.flops > 0
    assert torch.equal(before, torch.random.get_rng_state())
    huge = step_time(spec("gpt3"), CallShape(batch=1, length=8))
    assert not huge.timed and huge.seconds == pytest.approx(huge.flops / huge.speed.flops)


def test_planning_gpt3_takes_less_than_a_second() -> None:
    job = Job(batch=1024, length=2048, training=True)
    began = time.process_time()
    found = plan(spec("gpt3"), job, 1024, Device(memory=80 * 10**9))
    assert time.process_time() - began < 1
    assert found.best is not None and found.best.memory < 72e9
    assert not any(row.memory < 72e9 for row in found.rows if row.layout.tensor == row.layout.pipeline == 1)


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as done:
        main(list(words))
    said = capsys.readouterr()
    return int(done.value.code or 0), said.out, said.err


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "plan", "gpt3", "--train", "--devices", "1024")
    assert code == 0 and "174,604,259,328 parameters" in out and "suggestion  data" in out
    said = json.loads(run(capsys, "plan", "gpt3", "--train", "--devices", "1024", "--json")[1])
    assert said["layouts"][said["suggestion"]]["fits"] and said["cost"]["parameters"] == 174604259328
    code, out, _ = run(capsys, "plan", "gpt3", "--train", "--devices", "16")
    assert code == 0 and "none fits" in out
    code, out, _ = run(capsys, "plan", "bert-base")
    assert code == 0 and "one forward pass" in out and "suggestion" not in out
    code, out, _ = run(
        capsys, "plan", "reformer-crime", "--length", "512"
    )  # hashed attention is counted, not calculated
    assert code == 0 and "2,747,904 parameters" in out and "2.86 GFLOP" in out
    code, out, _ = run(capsys, "plan", "t5-small", "--table")
    assert code == 0 and "one layer of the encoder" in out and "one layer of the decoder" in out
    rows = json.loads(run(capsys, "plan", "gpt2", "--table", "--json")[1])["layers"]["decoder"]
    assert [row["part"] for row in rows][:3] == ["scores and mix", "projections", "feed-forward"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("gpt9",), "did you mean"), (("gpt2", "--length", "2000"), "at most 1024"),
        (("gpt2", "--devices", "0"), "1 or more"), (("gpt2", "--memory", "much"), "80GB"),
        (("gpt2", "--batch", "0"), "1 or more"), (("gpt2", "--parallel", "x=2"), "parallel has no 'x'"),
        (("gpt2", "--precision", "int3"), "precision"),
    ],
)  # fmt: skip
def test_what_cannot_be_planned_is_one_line(
    words: tuple[str, ...], expected: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    code, out, err = run(capsys, "plan", *words)
    assert code == 2 and out == "" and err.count("\n") == 1 and expected in err, err


# Of this program alone: what getrusage says includes the test that started it.
PEAK = """
import clearhead.cli.main as program
try:
    program.main(["plan", "gpt3", "--train", "--devices", "1024"])
except SystemExit:
    # Not getrusage: across fork and exec it still remembers the size of the parent.
    rows = open("/proc/self/status").read().splitlines()
    print(next(row.split()[1] for row in rows if row.startswith("VmHWM")))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
def test_planning_allocates_nothing() -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, cwd=root)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.splitlines()[-1]) < 400_000  # kilobytes, torch itself being most of them
