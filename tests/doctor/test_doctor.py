"""The doctors: each illness made on purpose is found, named and given a remedy; a healthy run has none."""

import json
import math
import os
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from toy import Toy, toy_bundle

from clearhead.cli.main import main
from clearhead.doctor import Finding, check_machine, check_run, is_healthy, machine
from clearhead.errors import TrainingStopped
from clearhead.lens.cost.machine import Speed
from clearhead.recipes import load_run, with_overrides
from clearhead.train import Trainer, Training, checkpoints

STEPS = 100
Record = dict[str, Any]


def healthy(step: int) -> Record:
    draw = random.Random(step)
    return {
        "step": step, "loss": 4 * math.exp(-step / 40) + 0.5 + 0.05 * draw.random(), "lr": 5e-4,
        "grad_norm": 0.5 + 0.2 * draw.random(), "targets": 100, "tokens": 100 * step,
        "speed": {"tokens_per_second": 1000 + 50 * draw.random(), "seconds": 0.1},
    }  # fmt: skip


def valid(step: int, score: float) -> Record:
    return {"step": step, "split": "valid", "scores": {"loss": score}, "best": True, "samples": []}


def a_run(
    folder: Path, change: Callable[[Record], Record] = lambda r: r, *more: Record, **train: str
) -> Path:
    """A run folder with a log and settings, as `clearhead train` leaves them."""
    records = [change(healthy(step)) for step in range(1, STEPS + 1)]
    records += more or [valid(50, 1.6), valid(100, 0.9)]
    lines = [json.dumps(r) for r in sorted(records, key=lambda r: r["step"])]
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    words = [f"--train.steps={STEPS}", *(f"--train.{name}={value}" for name, value in train.items())]
    run = with_overrides(load_run("gpt-chars", ["--train.schedule.warmup=10"]), words)
    (folder / "settings.yaml").write_text(run.to_yaml())
    return folder


def found(folder: Path, name: str) -> Finding:
    return next(finding for finding in check_run(folder) if finding.name == name)


def test_a_healthy_run_has_no_remarks(tmp_path: Path) -> None:
    findings = check_run(a_run(tmp_path))
    assert {finding.level for finding in findings} == {"ok"}, findings
    names = [finding.name for finding in findings]
    assert names == ["steps", "loss", "gradient", "rate", "speed", "validation", "checkpoints", "data"]


def late(r: Record) -> bool:
    return r["step"] > 80


ILLNESSES: dict[str, tuple[str, str, str, Callable[[Record], Record]]] = {
    "went up": ("loss", "wrong", "went up again", lambda r: r | ({"loss": 3.0} if late(r) else {})),
    "flat": ("loss", "wrong", "does not fall", lambda r: r | {"loss": 4.5}),
    "nan": ("loss", "wrong", "not a finite number in 20", lambda r: r | ({"loss": None} if late(r) else {})),
    "large start": ("loss", "note", "guess among", lambda r: r | {"loss": 30.0 / r["step"]}),
    "jump": ("gradient", "note", "jumped", lambda r: r | ({"grad_norm": 80.0} if r["step"] == 70 else {})),
    "vanishing": ("gradient", "wrong", "norm 1e-07", lambda r: r | {"grad_norm": 1e-7}),
    "clipped": ("gradient", "note", "100% of the later steps clipped", lambda r: r | {"grad_norm": 3.0}),
    "high rate": ("rate", "note", "0.05", lambda r: r | {"lr": 0.05}),
    "slow": ("speed", "note", "of late",
             lambda r: r | ({"speed": {"tokens_per_second": 100.0}} if r["step"] > 70 else {})),
}  # fmt: skip


@pytest.mark.parametrize("name", ILLNESSES)
def test_each_illness_is_found(name: str, tmp_path: Path) -> None:
    part, level, said, change = ILLNESSES[name]
    run = a_run(tmp_path, change)
    if name == "large start":
        (run / "config.json").write_text(json.dumps({"vocab_size": 100, "model_type": "gpt2"}))
    finding = found(run, part)
    assert finding.level == level and said in finding.value and finding.advice, finding
    assert is_healthy(check_run(run)) == (level != "wrong")


def test_a_jump_without_clipping_is_an_illness(tmp_path: Path) -> None:
    run = a_run(tmp_path, ILLNESSES["jump"][3], clip="null")
    assert found(run, "gradient").level == "wrong"


def test_scores_that_get_worse_are_noticed(tmp_path: Path) -> None:
    scores = [valid(25, 1.0), valid(50, 0.9), valid(75, 1.1), valid(100, 1.4)]
    finding = found(a_run(tmp_path, lambda r: r, *scores), "validation")
    assert finding.level == "note" and "in step 50" in finding.value and "worse ever since" in finding.value


def test_post_norm_without_warm_up_is_noticed(tmp_path: Path) -> None:
    run = a_run(tmp_path, schedule="{kind: Constant}")
    (run / "config.json").write_text(json.dumps({"model_type": "bert"}))
    assert "warm-up" in found(run, "rate").advice


def test_a_stopped_run_is_told_how_to_go_on(tmp_path: Path) -> None:
    run = a_run(tmp_path, steps="500")
    assert "--resume" in found(run, "steps").advice


def test_a_broken_checkpoint_is_named(tmp_path: Path) -> None:
    Trainer(toy_bundle(), Toy(), Training(steps=4, save_every=2, lr=1e-2), tmp_path).run()
    assert found(tmp_path, "checkpoints") == Finding("checkpoints", "of step 2, 4")
    weights = checkpoints(tmp_path)[4] / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(bytes(data))
    finding = found(tmp_path, "checkpoints")
    assert finding.level == "wrong" and "step 4" in finding.value and "step 2" not in finding.value


def test_rows_that_are_learned_and_held_out_are_found(tmp_path: Path) -> None:
    lines = [f"line number {i} of a small text" for i in range(40)]
    for name, texts in (("train", lines), ("valid", [*lines[:3], "a new line of text"])):
        rows = "\n".join(json.dumps({"text": text}) for text in texts)
        (tmp_path / f"{name}.jsonl").write_text(rows)
    run = tmp_path / "run"
    run.mkdir()
    a_run(run)
    words = [f"data.source={tmp_path / 'train.jsonl'}", f"data.valid={tmp_path / 'valid.jsonl'}"]
    settings = with_overrides(load_run(str(run / "settings.yaml")), words)
    (run / "settings.yaml").write_text(settings.to_yaml())
    finding = found(run, "data")
    assert finding.level == "wrong" and "3 held-out rows are learned" in finding.value
    (tmp_path / "train.jsonl").unlink()
    assert found(run, "data").level == "note"


def run_cli(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as done:
        main(list(words))
    said = capsys.readouterr()
    return int(done.value.code or 0), said.out, said.err


def test_the_command_exits_1_for_the_ill_and_0_for_the_healthy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = a_run(tmp_path)
    code, out, _ = run_cli(capsys, "doctor", str(run))
    assert code == 0 and "8 checks, 0 wrong" in out
    a_run(tmp_path, ILLNESSES["flat"][3])
    code, out, _ = run_cli(capsys, "doctor", str(run))
    assert code == 1 and "try: a larger learning rate" in out
    code, out, _ = run_cli(capsys, "doctor", str(run), "--json")
    assert code == 1 and not json.loads(out)["healthy"]


@pytest.mark.parametrize("words", [("doctor", "./nowhere"), ("doctor", "."), ("doctor", "a", "b")])
def test_what_is_no_run_is_one_line(
    words: tuple[str, ...],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = run_cli(capsys, *words)
    assert code == 2 and out == "" and err.count("\n") == 1


@pytest.fixture
def calm(monkeypatch: pytest.MonkeyPatch) -> None:
    """No measuring and no second process: what is found depends on the test alone."""
    monkeypatch.setattr(machine, "measure", lambda: Speed(100e9, 20e9))
    monkeypatch.setattr(machine, "_cpuinfo", lambda: ["model name : a processor"])


@pytest.mark.usefixtures("calm")
def test_this_machine_is_described(tmp_path: Path) -> None:
    findings = {finding.name: finding for finding in check_machine(tmp_path)}
    assert f"torch {torch.__version__}" in findings["libraries"].value
    assert "100 GFLOP/s" in findings["speed"].value
    assert all(finding.advice for finding in findings.values() if finding.level != "ok")
    assert {"python", "threads", "disk", "font", "browser", "extra gguf", "extra studio"} <= set(findings)


@pytest.mark.usefixtures("calm")
def test_what_is_missing_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(machine, "cores", lambda: 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    monkeypatch.setattr(machine, "_installed", lambda name: name != "gguf")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    monkeypatch.setattr("clearhead.lens.pictures.chinese_font", lambda: None)
    findings = {finding.name: finding for finding in check_machine(tmp_path)}
    assert (findings["threads"].level, findings["disk"].level) == ("wrong", "wrong")
    assert findings["threads"].advice.endswith("OMP_NUM_THREADS=1")
    assert findings["extra gguf"].advice.endswith("pip install 'clearhead[gguf]'")
    assert findings["font"].level == "note" and "fonts-noto-cjk" in findings["font"].advice
    assert not is_healthy(findings.values())


@pytest.mark.usefixtures("calm")
@pytest.mark.parametrize(("code", "level"), [(0, "ok"), (-4, "wrong")])
def test_matrix_units_that_are_announced_and_refused(
    code: int, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "_cpuinfo", lambda: ["flags : sse amx_bf16 amx_tile"])
    done = subprocess.CompletedProcess([], code, "", "")
    monkeypatch.setattr("clearhead.lens.pictures.chinese_font", lambda: "a font")  # it runs a process, too
    monkeypatch.setattr(subprocess, "run", lambda *words, **named: done)
    finding = {f.name: f for f in check_machine()}["bfloat16"]
    assert finding.level == level and ("ONEDNN_MAX_CPU_ISA" in finding.advice) == (code != 0)


def test_a_run_that_ended_with_nan_is_not_called_healthy(tmp_path: Path) -> None:
    """The step that failed has no line of numbers; it has one that says what failed."""
    a_run(tmp_path)
    with pytest.raises(TrainingStopped):
        Trainer(toy_bundle(), Toy(), Training(steps=60, lr=1e8, clip=None), tmp_path / "ill").run()
    (tmp_path / "settings.yaml").rename(tmp_path / "ill" / "settings.yaml")
    found = {finding.name: finding for finding in check_run(tmp_path / "ill")}
    assert found["not finite"].level == "wrong" and " in step " in found["not finite"].value
    assert not is_healthy(found.values())
