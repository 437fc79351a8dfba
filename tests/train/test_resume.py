"""Interrupted and resumed is the same as never interrupted: bit for bit, whatever interrupted it."""

import json
import logging
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy
import pytest
import torch
from toy import FULL, Toy, full_training, hash_of, remains, strays, toy_bundle

import clearhead
from clearhead.errors import TrainError
from clearhead.nn import products
from clearhead.nn.kernels import Softmax
from clearhead.train import (
    SGD,
    AdamW,
    Cosine,
    LinearDecay,
    Noam,
    Trainer,
    Training,
    TrainingResult,
    checkpoints,
    read_log,
)
from clearhead.train.checkpoint import check_same_config
from clearhead.train.optimizer_step import MAX_LOSS_SCALE


def run(folder: Path, *, task: Toy | None = None, **changes: object) -> TrainingResult:
    return Trainer(toy_bundle(), task or Toy(parts=2), full_training(**changes), folder).run()


class Signalled(Toy):
    """Sends its own process a signal when a batch is asked for."""

    def __init__(self, step: int, micro: int, number: int = signal.SIGTERM) -> None:
        def before(now: int, part: int) -> None:
            if (now, part) == (step, micro):
                os.kill(os.getpid(), number)

        super().__init__(parts=2, before=before)


SETTINGS = {
    "everything": {},
    "mean of checkpoints": {"ema": None, "average": 3, "save_every": 2},
    "momentum": {"optimizer": SGD(momentum=0.9), "schedule": LinearDecay(warmup=3)},
    "bfloat16": {"precision": "bfloat16", "schedule": Cosine(warmup=3)},
    "float16": {"precision": "float16", "lr": None, "schedule": Noam(warmup=5)},
    "decay": {"optimizer": AdamW(decay=0.3), "ema": None},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_stopped_anywhere_and_resumed_ends_in_the_same_bits(name: str, tmp_path: Path) -> None:
    changes = SETTINGS[name]
    assert run(tmp_path / "straight", **changes).status == "done"
    wanted = remains(tmp_path / "straight")
    for k in (0, 1, 4, 5, 7, 11):  # at the start, at saves and validations, between them, before the end
        folder = tmp_path / str(k)
        stopped = run(folder, task=Signalled(k + 1, k % 2), **changes)
        assert (stopped.status, stopped.reason, stopped.step) == ("stopped", "SIGTERM", k)
        assert not (folder / "model.safetensors").exists()
        done = run(folder, **changes)
        assert (done.status, done.reason, done.step) == ("done", "steps", 12)
        assert remains(folder) == wanted
        assert strays(folder) == []


@pytest.mark.skipif(
    not hasattr(torch.ops.mkldnn, "_linear_pointwise"), reason="this torch was built without oneDNN"
)
def test_a_run_by_the_products_of_onednn_resumes_in_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path / "torch")
    monkeypatch.setattr(products, "has_slow_mkl", lambda: True)
    monkeypatch.setattr(products, "SMALLEST_PRODUCT", 1)
    run(tmp_path / "straight")
    run(tmp_path / "stopped", task=Signalled(6, 1))
    run(tmp_path / "stopped")
    assert remains(tmp_path / "stopped") == remains(tmp_path / "straight")
    # Another order of rounding, the same numbers.
    ends = [read_log(tmp_path / name)[-2]["loss"] for name in ("torch", "straight")]
    assert ends[0] == pytest.approx(ends[1], rel=1e-4)


class Loud(Signalled):
    """A loss so large that float16 overflows at the first scale: it is made smaller before the first step."""

    def loss(self, model: torch.nn.Module, batch: object) -> torch.Tensor:
        return super().loss(model, batch) * 3000


def test_a_loss_scale_that_had_to_shrink_is_resumed_and_not_found_again(tmp_path: Path) -> None:
    changes = {"precision": "float16", "clip": 1.0}
    run(tmp_path / "straight", task=Loud(99, 0), **changes)
    wanted = remains(tmp_path / "straight")
    assert wanted["state"]["scale"] < MAX_LOSS_SCALE and wanted["state"]["retried"] > 0
    for k in (1, 7):
        assert run(tmp_path / str(k), task=Loud(k + 1, 0), **changes).step == k
        run(tmp_path / str(k), task=Loud(99, 0), **changes)
        assert remains(tmp_path / str(k)) == wanted


def test_stopped_after_every_single_step(tmp_path: Path) -> None:
    run(tmp_path / "straight")
    results = [run(tmp_path / "often", task=Signalled(step, 1)) for step in range(2, 14)]
    assert [result.step for result in results] == list(range(1, 13))
    assert remains(tmp_path / "often") == remains(tmp_path / "straight")


def test_the_same_seed_is_the_same_run_and_another_is_another(tmp_path: Path) -> None:
    logs = []
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        run(tmp_path / name, seed=seed)
        logs.append(remains(tmp_path / name)["log"])
    assert logs[0] == logs[1] != logs[2]


def test_a_finished_run_stays_finished(tmp_path: Path) -> None:
    run(tmp_path)
    wanted = remains(tmp_path)
    bundle, task = toy_bundle(seed=9), Toy(parts=2, before=lambda step, micro: pytest.fail("it went on"))
    assert Trainer(bundle, task, full_training(), tmp_path).run().step == 12
    assert remains(tmp_path) == wanted
    assert hash_of(bundle.model) == hash_of(clearhead.load(tmp_path).model)


def test_a_model_whose_tensors_are_views_of_a_file_is_resumed_exactly(tmp_path: Path) -> None:
    """A loaded GPT-2 holds transposed windows on its file; a resumed one must not round differently."""
    clearhead.save(toy_bundle(), tmp_path / "first")
    for name, stops in (("straight", []), ("stopped", [3, 8])):
        for step in [*stops, None]:
            task = Toy(parts=2) if step is None else Signalled(step, 0)
            Trainer(clearhead.load(tmp_path / "first"), task, full_training(), tmp_path / name).run()
    # And once more, from a bundle that was loaded from the checkpoint itself.
    half = tmp_path / "half"
    Trainer(clearhead.load(tmp_path / "first"), Signalled(7, 0), full_training(), half).run()
    Trainer(clearhead.load(half / "checkpoint-000006"), Toy(parts=2), full_training(), half).run()
    assert remains(tmp_path / "stopped") == remains(tmp_path / "straight") == remains(half)


def test_a_tied_head_stored_twice_is_trained_as_one(tmp_path: Path) -> None:
    """Some files hold a tied head a second time; after training both must say the same."""
    from safetensors.torch import load_file, save_file

    clearhead.save(toy_bundle(), tmp_path / "first")
    path = tmp_path / "first" / "model.safetensors"
    tensors = load_file(path)
    save_file({**tensors, "lm_head.weight": tensors["transformer.wte.weight"].clone()}, path)
    bundle = clearhead.load(tmp_path / "first")
    assert list(bundle.report.aliases) == ["lm_head.weight"]
    Trainer(bundle, Toy(parts=2), full_training(), tmp_path / "run").run()
    written = load_file(tmp_path / "run" / "model.safetensors")
    assert torch.equal(written["lm_head.weight"], written["transformer.wte.weight"])
    assert not torch.equal(written["lm_head.weight"], tensors["transformer.wte.weight"])
    assert hash_of(clearhead.load(tmp_path / "run").model) == hash_of(bundle.model)


def test_a_model_of_no_family_is_resumed_too(tmp_path: Path) -> None:
    spec = toy_bundle().spec.edit(Softmax, dropout=0.2)
    for name, stops in (("straight", []), ("stopped", [6])):
        for step in [*stops, None]:
            task = Toy(parts=2) if step is None else Signalled(step, 0)
            Trainer(clearhead.build(spec), task, full_training(), tmp_path / name).run()
    assert remains(tmp_path / "stopped") == remains(tmp_path / "straight")
    config = json.loads((tmp_path / "straight" / "config.json").read_text())
    assert clearhead.Spec.from_dict(config["spec"]) == spec


@pytest.mark.parametrize("kind", ["checkpoint-000010", "."])
def test_checkpoints_and_the_folder_are_models_that_others_open(kind: str, tmp_path: Path) -> None:
    from transformers import GPT2LMHeadModel

    run(tmp_path)
    ours, theirs = clearhead.load(tmp_path / kind).model, GPT2LMHeadModel.from_pretrained(tmp_path / kind)
    ids = torch.arange(8)[None]
    with torch.no_grad():
        assert torch.allclose(ours(ids), theirs(ids).logits, atol=1e-5)


def test_a_second_signal_stops_at_once_and_nothing_is_lost(tmp_path: Path) -> None:
    class Twice(Toy):
        def batch(self, step: int, micro: int) -> object:
            if step == 8:
                os.kill(os.getpid(), signal.SIGINT)
                os.kill(os.getpid(), signal.SIGINT)
            return super().batch(step, micro)

    before = signal.getsignal(signal.SIGINT)  # a process in the background ignores it from the start
    run(tmp_path / "straight")
    with pytest.raises(KeyboardInterrupt, match="SIGINT came a second time"):
        run(tmp_path / "twice", task=Twice(parts=2))
    assert signal.getsignal(signal.SIGINT) is before
    assert list(checkpoints(tmp_path / "twice")) == [4, 5]
    run(tmp_path / "twice")
    assert remains(tmp_path / "twice") == remains(tmp_path / "straight")


def test_the_time_budget_stops_a_run_that_can_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from clearhead.train import loop as run_module

    run(tmp_path / "straight")
    hours = 0.0

    def later(step: int, micro: int) -> None:
        nonlocal hours
        hours += 1800  # half an hour for each part

    with monkeypatch.context() as patch:
        patch.setattr(run_module.time, "monotonic", lambda: hours)
        result = run(tmp_path / "late", task=Toy(parts=2, before=later), time_budget=5 * 3600.0)
    assert (result.status, result.reason) == ("stopped", "time budget") and 3 <= result.step <= 5
    assert clearhead.load(tmp_path / "late") is not None  # what there is by now
    assert run(tmp_path / "late").status == "done"  # the budget may change, no number depends on it
    assert remains(tmp_path / "late") == remains(tmp_path / "straight")


def test_a_trainer_in_another_thread_leaves_signals_alone(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    results: list[TrainingResult] = []
    thread = threading.Thread(target=lambda: results.append(run(tmp_path)))
    thread.start()
    thread.join()
    assert results[0].status == "done" and signal.getsignal(signal.SIGTERM) is before


def test_nothing_global_is_touched(tmp_path: Path) -> None:
    torch.manual_seed(5), random.seed(5), numpy.random.seed(5)

    def states() -> list[object]:
        state = numpy.random.get_state()
        return [
            torch.get_rng_state().tolist(), random.getstate(), state[1].tolist(), state[2],
            torch.get_num_threads(), torch.are_deterministic_algorithms_enabled(),
            torch.utils.deterministic.fill_uninitialized_memory,
            signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM),
        ]  # fmt: skip

    before = states()
    bundle = toy_bundle()
    Trainer(bundle, Toy(parts=2), full_training(threads=2), tmp_path).run()
    assert states() == before
    assert not bundle.model.training and all(p.grad is None for p in bundle.model.parameters())


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"lr": 2e-2}, "training.lr is 0.02 here and 0.01 there"),
        ({"optimizer": AdamW(decay=0.5)}, "training.optimizer.decay is 0.5 here and 0.01 there"),
        ({"steps": 11}, "training.steps is 11 here and 12 there"),
        ({"seed": 1, "clip": 2.0}, "training.seed is 1 here and 0 there"),
    ],
)
def test_a_run_of_other_settings_is_refused(changes: dict[str, object], said: str, tmp_path: Path) -> None:
    run(tmp_path, task=Signalled(4, 0))
    with pytest.raises(TrainError) as caught:
        run(tmp_path, **changes)
    assert said in str(caught.value) and "\n" not in str(caught.value)
    run(tmp_path, keep=3)  # which changes no number


def test_a_run_of_another_model_or_other_data_is_refused(tmp_path: Path) -> None:
    run(tmp_path, task=Signalled(4, 0))
    with pytest.raises(TrainError, match=r"task\.data is 'other' here and 'toy' there"):
        run(tmp_path, task=Toy(parts=2, data="other"))
    with pytest.raises(TrainError, match=r"model\.tower\.embed\.dropout is 0\.3 here and 0\.1 there"):
        Trainer(toy_bundle(dropout=0.3), Toy(parts=2), full_training(), tmp_path).run()


def test_a_folder_with_somebodys_model_is_not_trained_over(tmp_path: Path) -> None:
    clearhead.save(toy_bundle(), tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(TrainError, match="holds a model that is not from this run"):
        run(tmp_path)
    assert before.items() <= {path.name: path.read_bytes() for path in tmp_path.iterdir()}.items()


def test_resuming_elsewhere_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run(tmp_path, task=Signalled(4, 0))
    state = tmp_path / "checkpoint-000003" / "state.json"
    data = json.loads(state.read_text())
    assert data["environment"]["torch"] == torch.__version__ and data["environment"]["threads"] == 1
    torch.set_num_threads(2)
    try:
        with caplog.at_level(logging.WARNING, "clearhead.train"):
            run(tmp_path)
    finally:
        torch.set_num_threads(1)
    assert (
        "resumed elsewhere (threads 1 -> 2): results are close from here on, not bit-identical" in caplog.text
    )


def test_two_trainers_in_one_folder(tmp_path: Path) -> None:
    said: list[str] = []

    def second(step: int, micro: int) -> None:
        with pytest.raises(TrainError) as caught:
            Trainer(toy_bundle(), Toy(), full_training(), tmp_path).run()
        said.append(str(caught.value))

    Trainer(toy_bundle(), Toy(before=second), Training(steps=1), tmp_path).run()
    assert f"another trainer is running in {tmp_path}: process {os.getpid()};" in said[0]
    run(tmp_path / "free")


def test_two_processes_in_one_folder(tmp_path: Path) -> None:
    code = "import sys, toy; toy.hold(sys.argv[1])"
    words = [sys.executable, "-c", code, str(tmp_path)]
    here = {"PYTHONPATH": str(Path(__file__).parents[1])}
    holder = subprocess.Popen(
        words, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True, env={**os.environ, **here}
    )
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(TrainError, match=f"process {holder.pid};"):
            run(tmp_path)
    finally:
        holder.kill()  # which frees the folder, too
        holder.communicate()
    assert run(tmp_path).status == "done"


def test_the_log_begins_again_where_the_checkpoint_ends(tmp_path: Path) -> None:
    run(tmp_path, task=Signalled(7, 0))
    path = tmp_path / "metrics.jsonl"
    whole = path.read_bytes()
    path.write_bytes(
        whole + b'{"step": 7, "loss": 1.0, "speed": {}}\n{"step": 8, "lo'
    )  # killed while it wrote
    run(tmp_path)
    assert [r["step"] for r in read_log(tmp_path) if "loss" in r] == list(range(1, 13))
    assert path.read_bytes().startswith(whole)
    record = read_log(tmp_path)[0]
    assert set(record) == {"step", "loss", "lr", "grad_norm", "targets", "tokens", "speed"}
    assert set(FULL) and record["tokens"] == record["targets"] == sum(
        Toy(parts=2).batch(1, i).targets for i in (0, 1)
    )


def test_a_run_of_an_older_version_goes_on_when_fields_have_come_since() -> None:
    """What an older file does not say is at its default; what it says otherwise is still refused."""
    ours = {"model": toy_bundle().spec.to_dict()}
    older = json.loads(json.dumps(ours))
    tower = older["model"]["tower"]
    assert tower.pop("recompute") is False
    check_same_config(Path("there"), ours, older)
    tower["recompute"] = True
    with pytest.raises(TrainError, match=r"model\.tower\.recompute is False here and True there"):
        check_same_config(Path("there"), ours, older)


class FailingValidation(Toy):
    """Its validation of one step fails; `finished` ones are counted."""

    def __init__(self, at: int) -> None:
        super().__init__(parts=2)
        self.at, self.finished = at, 0

    def score(self, model: torch.nn.Module, split: str) -> dict[str, float]:
        if self.finished == self.at:
            raise ValueError("the scoring library is not here")
        self.finished += 1
        return super().score(model, split)


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_validation_that_fails_loses_no_weights(at: int, tmp_path: Path) -> None:
    """Saved first, validated then: the run goes on where it was, validates, and ends with the same bits."""
    changes = {"steps": 9, "valid_every": 3, "save_every": 9, "patience": 2}
    run(tmp_path / "whole", **changes)
    with pytest.raises(ValueError, match="scoring library"):
        run(tmp_path / "run", task=FailingValidation(at), **changes)
    assert max(checkpoints(tmp_path / "run")) == 3 * (at + 1)
    run(tmp_path / "run", **changes)
    assert remains(tmp_path / "run") == remains(tmp_path / "whole")
    assert not strays(tmp_path / "run")


def test_a_validation_that_was_finished_is_not_made_again(tmp_path: Path) -> None:
    """Killed between a validation and the next checkpoint: its scores are in the log."""
    changes = {"steps": 9, "valid_every": 3, "save_every": 9}

    def before(step: int, part: int) -> None:
        if step == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, task=Toy(parts=2, before=before), **changes)
    counting = FailingValidation(at=99)
    run(tmp_path, task=counting, **changes)
    assert counting.finished == 2  # of steps 6 and 9
    assert [r["step"] for r in read_log(tmp_path) if r.get("split") == "valid"] == [3, 6, 9]
