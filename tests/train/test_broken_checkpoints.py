"""A broken checkpoint costs time and nothing else: the run goes back, and ends in the same bits."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from toy import Toy, full_training, remains, strays, toy_bundle

from clearhead.train import Trainer, checkpoints, verify


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def remove(path: Path) -> None:
    path.unlink()


def link_to_nothing(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


def link_to_no_end(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


DAMAGES = [truncate, flip, remove, link_to_nothing, link_to_no_end]
FILES = ["MANIFEST.json", "config.json", "model.safetensors", "state.json", "state.safetensors"]
# The last checkpoint is made by the last step: it is made again under the same name, and pruned later.
SETTINGS = {"steps": 8, "save_every": 2, "valid_every": None}


def train(folder: Path, **changes: object) -> None:
    Trainer(toy_bundle(), Toy(parts=2), full_training(**SETTINGS, **changes), folder).run()


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("straight") / "run"
    train(folder)
    return folder


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in the middle, after step 4: two checkpoints, and four steps to go."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    with pytest.raises(ZeroDivisionError):
        task = Toy(parts=2, before=lambda step, micro: 1 // (5 - step))
        Trainer(toy_bundle(), task, full_training(**SETTINGS), folder).run()
    assert list(checkpoints(folder)) == [2, 4]
    return folder


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", FILES)
def test_a_run_goes_back_and_ends_in_the_same_bits(
    name: str, damage: Callable[[Path], None], straight: Path, stopped: Path, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(stopped, tmp_path / "run"))
    assert {path.name for path in checkpoints(run)[4].iterdir()} == set(FILES)
    damage(checkpoints(run)[4] / name)
    train(run)
    assert remains(run) == remains(straight) and strays(run) == []
    for path in checkpoints(run).values():
        verify(path)


@pytest.mark.parametrize("damage", DAMAGES)
def test_with_every_checkpoint_broken_it_begins_again(
    damage: Callable[[Path], None], straight: Path, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(straight, tmp_path / "run"))
    for path, name in zip(checkpoints(run).values(), FILES, strict=False):
        damage(path / name)
    train(run)
    assert remains(run) == remains(straight) and strays(run) == []


def test_a_checkpoint_that_is_a_link_goes_without_what_it_points_at(
    straight: Path, stopped: Path, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(stopped, tmp_path / "run"))
    elsewhere = tmp_path / "elsewhere"
    (run / "checkpoint-000004").rename(elsewhere)
    flip(elsewhere / "config.json")
    (run / "checkpoint-000004").symlink_to(elsewhere)
    train(run)
    assert remains(run) == remains(straight) and strays(run) == []
    assert {path.name for path in elsewhere.iterdir()} == set(FILES)
