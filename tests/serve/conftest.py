"""What the studio's tests stand on: a translator trained here once, and a server in a thread."""

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from served import Served, serving

STEPS = 130  # enough for words to find their translations


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's translator, trained for a few seconds; test workers share it."""
    shared = tmp_path_factory.getbasetemp().parent
    shared = shared if os.environ.get("PYTEST_XDIST_WORKER") else tmp_path_factory.getbasetemp()
    folder = shared / "demo"
    with (shared / "demo.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "model.safetensors").exists():
            words = [
                "train",
                "translate-en-zh",
                f"train.steps={STEPS}",
                "train.valid_every=65",
                "train.save_every=65",
            ]
            subprocess.run(
                [sys.executable, "-m", "clearhead", *words, "--out", str(folder)],
                check=True, capture_output=True,
            )  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def served(demo: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A studio whose home has a copy of the demo run, served as `clearhead studio` serves it."""
    home = tmp_path_factory.mktemp("home")
    shutil.copytree(demo, home / "runs" / "demo")
    with serving(home) as served:
        yield served
