"""What the studio's tests stand on: a trained run with its checkpoints, and a server in a thread."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from served import Served, serving

from clearhead.serve.shelf import EXAMPLE


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder as training leaves it: the built-in translator, and two checkpoints beside it."""
    folder = tmp_path_factory.mktemp("made") / "demo"
    shutil.copytree(EXAMPLE / "translator", folder)
    for step in (300, 600):
        shutil.copytree(EXAMPLE / "translator", folder / f"checkpoint-{step:06d}")
    return folder


@pytest.fixture(scope="module")
def served(demo: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A studio whose home has a copy of the demo run, served as `clearhead studio` serves it."""
    home = tmp_path_factory.mktemp("home")
    shutil.copytree(demo, home / "runs" / "demo")
    with serving(home) as served:
        yield served
