"""Killed without warning, at random moments and inside saves, a run ends as if nothing had happened."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent


def kill(folder: Path, *how: object) -> dict[str, int]:
    words = [sys.executable, str(TESTS / "kills.py"), str(folder), *map(str, how)]
    paths = {"PYTHONPATH": os.pathsep.join([str(TESTS.parent), str(TESTS)])}
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, **paths})
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_eight_kills(tmp_path: Path) -> None:
    found = kill(tmp_path, 4, 4)
    assert found["kills"] == 8 and found["identical"] == found["runs"] >= 1
    assert found["with a checkpoint"] >= 2


def test_four_kills_of_adapters(tmp_path: Path) -> None:
    found = kill(tmp_path, 2, 2, "lora")
    assert found["kills"] == 4 and found["identical"] == found["runs"] >= 1


@pytest.mark.proof
@pytest.mark.timeout(600)
def test_forty_kills_of_adapters(tmp_path: Path) -> None:
    found = kill(tmp_path, 20, 20, "lora")
    assert found["kills"] == 40 and found["identical"] == found["runs"] >= 3


@pytest.mark.proof
@pytest.mark.timeout(600)
def test_fifty_kills(tmp_path: Path) -> None:
    found = kill(tmp_path, 30, 20)
    assert found["kills"] == 50 and found["identical"] == found["runs"] >= 3
    assert found["with a checkpoint"] >= 25


@pytest.mark.proof
@pytest.mark.timeout(600)
def test_a_kill_at_every_touch_of_the_disk(tmp_path: Path) -> None:
    found = kill(tmp_path, "every")
    assert found["identical"] == found["touches"] > 50


@pytest.mark.proof
@pytest.mark.timeout(600)
def test_a_kill_of_adapters_at_every_touch_of_the_disk(tmp_path: Path) -> None:
    found = kill(tmp_path, "every", "lora")
    assert found["identical"] == found["touches"] > 50
