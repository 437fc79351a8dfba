"""Runs: watched from their folder alone, steered by signals, never lost by the page."""

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from served import Served

from clearhead.errors import TrainError
from clearhead.serve.registry import ModelRegistry
from clearhead.serve.run_status import events, status, training_process
from clearhead.serve.runs import RunManager
from clearhead.train.log import read_log


def listen(folder: Path, after: int = 0, most: int = 10_000) -> list[tuple[str, Any, str]]:
    """Events of a run folder until it ends, or until so many records were told."""

    async def take() -> list[tuple[str, Any, str]]:
        found: list[tuple[str, Any, str]] = []
        told = 0
        async for text in events(folder, after):
            fields = dict(line.split(": ", 1) for line in text.strip().splitlines() if ": " in line)
            if "data" in fields:
                found.append((fields["event"], json.loads(fields["data"]), fields.get("id", "")))
                told += len(found[-1][1]) if fields["event"] == "records" else 0
            if told >= most:
                break
        return found

    return asyncio.run(asyncio.wait_for(take(), 60))


def write(folder: Path, steps: range) -> None:
    with (folder / "metrics.jsonl").open("a") as file:
        for step in steps:
            file.write(json.dumps({"step": step, "loss": 1 / step}) + "\n")


def test_a_finished_run_is_told_once_and_then_ends(tmp_path: Path) -> None:
    write(tmp_path, range(1, 6))
    (records, end) = listen(tmp_path)
    assert [r["step"] for r in records[1]] == [1, 2, 3, 4, 5] and records[2] == "5"
    assert end[0] == "end"


def test_a_reader_goes_on_behind_the_event_it_saw_last(tmp_path: Path) -> None:
    write(tmp_path, range(1, 6))
    write(tmp_path, range(6, 9))
    (records, _) = listen(tmp_path, after=5)
    assert [r["step"] for r in records[1]] == [6, 7, 8] and records[2] == "8"


def test_half_a_line_is_not_told(tmp_path: Path) -> None:
    write(tmp_path, range(1, 3))
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3, "lo')
    (records, _) = listen(tmp_path)
    assert [r["step"] for r in records[1]] == [1, 2]
    assert status(tmp_path)["step"] == 2


def test_a_line_that_is_finished_later_is_told_then(tmp_path: Path) -> None:
    log = tmp_path / "metrics.jsonl"
    log.write_text('{"step": 1}\n{"step": 2, "lo')

    async def take() -> list[int]:
        told: list[int] = []
        stream = events(tmp_path, 0, starting=lambda: len(told) < 2)
        async for text in stream:
            for line in text.splitlines():
                if line.startswith("data: ["):
                    told += [record["step"] for record in json.loads(line.removeprefix("data: "))]
            if told == [1]:
                with log.open("a") as file:
                    file.write('ss": 3}\n')
        return told

    assert asyncio.run(asyncio.wait_for(take(), 20)) == [1, 2]


@pytest.mark.parametrize("broken", ["not json\n", "[1, 2]\n", '{"loss": 3}\n', "\n"])
def test_a_line_that_is_no_record_is_passed_over(tmp_path: Path, broken: str) -> None:
    (tmp_path / "metrics.jsonl").write_text(broken)
    write(tmp_path, range(1, 3))
    (records, _) = listen(tmp_path)
    assert [r["step"] for r in records[1]] == [1, 2]


def test_the_one_who_holds_the_lock_is_the_worker(tmp_path: Path) -> None:
    code = (
        "import fcntl,sys,time; f=open(sys.argv[1],'w'); fcntl.flock(f, fcntl.LOCK_EX);"
        "print('held', flush=True); time.sleep(30)"
    )
    assert training_process(tmp_path) is None
    lock = tmp_path / ".lock"
    with subprocess.Popen([sys.executable, "-c", code, str(lock)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        try:
            assert training_process(tmp_path) == holder.pid
            assert status(tmp_path)["status"] == "training"
        finally:
            holder.kill()
    assert training_process(tmp_path) is None


def wait(what: Any, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


SMALL = {"model.d_model": "16", "model.encoder_ffn_dim": "16", "model.decoder_ffn_dim": "16",
         "data.tokens": "300"}  # fmt: skip


def test_save_now_goes_on_in_the_same_process_and_a_stop_after_it_is_final(tmp_path: Path) -> None:
    runs = RunManager(ModelRegistry(home=tmp_path))
    long = {"train.steps": "20000", "train.valid_every": "20000", "train.save_every": "20000"}
    entry = runs.start("translate-en-zh", "saved", SMALL | long)
    wait(lambda: (status(entry.path)["step"] or 0) >= 2)
    pid = training_process(entry.path)
    runs.order(entry, "save")
    wait(lambda: entry.checkpoints())
    saved = entry.checkpoints()[-1][0]
    wait(lambda: (status(entry.path)["step"] or 0) > saved + 2)
    assert training_process(entry.path) == pid  # the same process trains on
    runs.order(entry, "save")
    runs.order(entry, "stop")
    wait(lambda: training_process(entry.path) is None and not runs.starting(entry))
    time.sleep(1)
    assert training_process(entry.path) is None and status(entry.path)["status"] == "stopped"
    assert runs.failure(entry) == ""


def test_a_run_stopped_before_its_first_step_is_stopped_and_can_go_on(tmp_path: Path) -> None:
    runs = RunManager(ModelRegistry(home=tmp_path))
    entry = runs.start("translate-en-zh", "early", SMALL | {"train.steps": "42", "train.valid_every": "42"})
    assert status(entry.path, starting=runs.starting(entry))["status"] == "starting"
    with pytest.raises(TrainError, match="still starting"):
        runs.order(entry, "save")
    runs.order(entry, "stop")
    wait(lambda: not runs.starting(entry))
    assert status(entry.path, starting=runs.starting(entry))["status"] == "stopped"
    assert runs.failure(entry) == ""
    runs.order(entry, "go on")
    wait(lambda: status(entry.path)["step"] == 42 and training_process(entry.path) is None)
    assert runs.failure(entry) == "" and status(entry.path)["status"] == "ready"


def test_a_run_is_started_held_stopped_and_goes_on_exactly(tmp_path: Path) -> None:
    """Started as the page starts it; what it learns after a stop is what it would have learned without."""
    runs = RunManager(ModelRegistry(home=tmp_path))
    entry = runs.start(
        "translate-en-zh", "A Small One!", SMALL | {"train.steps": "50", "train.valid_every": "50"}
    )
    assert entry.path == tmp_path / "runs" / "a-small-one"
    wait(lambda: (status(entry.path)["step"] or 0) >= 3)
    runs.order(entry, "pause")
    wait(lambda: status(entry.path)["status"] == "paused")
    held = status(entry.path)["step"]
    time.sleep(0.5)
    assert status(entry.path)["step"] == held
    runs.order(entry, "stop")
    wait(lambda: training_process(entry.path) is None)
    stopped = status(entry.path)
    if stopped["step"] < 50:
        assert stopped["status"] == "stopped"
        runs.order(entry, "go on")
    wait(lambda: status(entry.path)["step"] == 50 and training_process(entry.path) is None)
    assert runs.failure(entry) == ""
    steps = [record["step"] for record in read_log(entry.path) if "loss" in record]
    assert steps == list(range(1, 51))
    assert runs._new_folder("a-small-one").name == "a-small-one-2"  # the same name does not touch the first


def test_a_run_that_cannot_begin_says_why(tmp_path: Path) -> None:
    runs = RunManager(ModelRegistry(home=tmp_path))
    entry = runs.start("classify", "x", {"data.source": "/no/such/file.csv"})
    wait(lambda: runs.failure(entry))
    assert "/no/such/file.csv" in runs.failure(entry) and "\n" not in runs.failure(entry)


def test_orders_to_nobody_are_refused_in_a_line(served: Served) -> None:
    import httpx

    run = served.id("demo")
    answer = httpx.post(
        f"{served.url}/api/runs/{run}/order", json={"order": "stop"}, headers={"origin": served.url}
    )
    assert answer.status_code == 400 and "no process is training" in answer.json()["error"]
