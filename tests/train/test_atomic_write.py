"""A checkpoint is whole or not there: full disks, flipped bytes, leftovers, and what is kept."""

import errno
import json
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from toy import Toy, full_training, remains, strays, toy_bundle

from clearhead.errors import LoadError, SaveError
from clearhead.store import write_folder as _write  # noqa: F401 (so that the module below is there to patch)
from clearhead.store.manifest import MANIFEST
from clearhead.train import Trainer, Training, checkpoint, checkpoints, verify
from clearhead.train.atomic_write import write_atomically

write_module = __import__("sys").modules["clearhead.store.write"]
# Everything that touches the disk.
DOORS = [
    (write_module, "save_file"), (checkpoint, "save_file"), (Path, "write_bytes"), (Path, "write_text"),
    (os, "replace"), (os, "rename"), (os, "fsync"), (shutil, "copymode"),
]  # fmt: skip


def trainer(folder: Path, **changes: object) -> Trainer:
    return Trainer(toy_bundle(), Toy(parts=2), full_training(**changes), folder)


class Full:
    """A disk that is full from the n-th touch on, once."""

    def __init__(self, patch: pytest.MonkeyPatch, count: int) -> None:
        self.left = count
        for where, name in DOORS:
            patch.setattr(where, name, self._wrap(getattr(where, name)))

    def _wrap(self, real: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **options: object) -> object:
            self.left -= 1
            if self.left == -1:
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(*args, **options)

        return call


def test_a_full_disk_at_any_touch_leaves_the_checkpoint_before_whole(tmp_path: Path) -> None:
    """Failing at each touch of the disk from the second checkpoint to the finished model."""
    settings = {"steps": 3, "save_every": 1, "valid_every": None}
    trainer(tmp_path / "straight", **settings).run()
    first = tmp_path / "first"
    with pytest.raises(ZeroDivisionError):
        task = Toy(parts=2, before=lambda step, micro: 1 // (2 - step))
        Trainer(toy_bundle(), task, full_training(**settings), first).run()
    assert list(checkpoints(first)) == [1]
    wanted = remains(tmp_path / "straight")
    for count in range(500):
        folder = tmp_path / "full" / "run"
        shutil.rmtree(folder.parent, ignore_errors=True)
        shutil.copytree(first, folder)
        run = trainer(folder, **settings)
        with pytest.MonkeyPatch.context() as patch:
            full = Full(patch, count)
            try:
                run.run()
            except SaveError as error:
                assert "No space left" in str(error) and "\n" not in str(error)
            else:
                assert full.left >= 0 and count > 50
                break
        left = checkpoints(folder)
        assert 1 in left or 2 in left
        for path in left.values():
            verify(path)
        assert not [name for name in strays(folder) if name.startswith(".tmp-checkpoint")]
        trainer(folder, **settings).run()
        assert remains(folder) == wanted, count
        assert strays(folder) == []
    else:
        pytest.fail("a run has no end")


def test_a_failed_save_is_one_line_that_names_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*words: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.raises(SaveError) as caught:
        trainer(tmp_path).run()
    message = str(caught.value)
    assert message.startswith(f"{tmp_path}/checkpoint-000004 was not saved: [Errno 28] No space left")
    assert message.endswith("earlier checkpoints are as they were")


@pytest.fixture(scope="module")
def one_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("one")
    trainer(folder).run()
    return folder / "checkpoint-000010"


@pytest.mark.parametrize(
    "name", ["model.safetensors", "state.safetensors", "state.json", "config.json", "MANIFEST.json"]
)
def test_a_flipped_byte_is_found_and_its_file_named(name: str, one_checkpoint: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(one_checkpoint, tmp_path / "copy")
    verify(copy)
    data = (copy / name).read_bytes()
    every = max(len(data) // 150, 1)  # the weights have forty thousand
    for place in {*range(0, len(data), every), len(data) - 1}:
        broken = bytearray(data)
        broken[place] ^= 1 << (place % 8)
        (copy / name).write_bytes(broken)
        with pytest.raises(LoadError) as caught:
            verify(copy)
        assert f"/{name} is not what was saved" in str(caught.value) and "\n" not in str(caught.value)
    for other in (data[:-1], data + b" ", b""):
        (copy / name).write_bytes(other)
        with pytest.raises(LoadError, match=f"/{name} is not what was saved"):
            verify(copy)
    (copy / name).unlink()
    with pytest.raises(LoadError, match=f"/{name} cannot be read"):
        verify(copy)


def test_the_manifest_names_every_file(one_checkpoint: Path) -> None:
    manifest = json.loads((one_checkpoint / "MANIFEST.json").read_text())
    files = {path.name for path in one_checkpoint.iterdir()} - {"MANIFEST.json"}
    assert set(manifest["files"]) == files
    assert {"config.json", "model.safetensors", "state.json", "state.safetensors"} <= files
    assert manifest["step"] == 10


@pytest.mark.parametrize("broken", [1, 2, 3])
def test_broken_checkpoints_are_named_and_left_out(
    broken: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"keep": 3, "save_every": 4, "valid_every": None}
    trainer(tmp_path / "straight", **settings).run()
    folder = tmp_path / "broken"
    trainer(folder, **settings).run()
    assert list(checkpoints(folder)) == [4, 8, 12]
    for path in list(checkpoints(folder).values())[-broken:]:
        weights = bytearray((path / "model.safetensors").read_bytes())
        weights[-1] ^= 1
        (path / "model.safetensors").write_bytes(weights)
    with caplog.at_level(logging.WARNING, "clearhead.train"):
        result = trainer(folder, **settings).run()
    assert result.status == "done"
    lines = [line for line in caplog.messages if "is broken and left out" in line]
    assert len(lines) == broken and "checkpoint-000012/model.safetensors is not what was saved" in lines[0]
    assert remains(folder) == remains(tmp_path / "straight")
    for path in checkpoints(folder).values():
        verify(path)


def test_leftovers_are_swept(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    (folder / ".tmp-checkpoint-000004-99").mkdir(parents=True)
    (folder / ".del-checkpoint-000001-99").mkdir()
    (folder / ".tmp-metrics.jsonl").write_text("{}")
    (tmp_path / ".tmp-run-99").mkdir()
    (tmp_path / ".tmp-other-99").mkdir()  # somebody else's
    (folder / "notes.txt").write_text("mine")
    trainer(folder).run()
    assert strays(folder) == [".tmp-other-99"]
    assert (folder / "notes.txt").read_text() == "mine"


def test_the_last_and_the_best_are_kept(tmp_path: Path) -> None:
    seen: list[list[int]] = []
    task = Toy(
        scores=[3.0, 1.0, 2.0, 2.0, 2.0], before=lambda step, micro: seen.append([*checkpoints(tmp_path)])
    )
    training = Training(steps=10, valid_every=2, save_every=1)
    result = Trainer(toy_bundle(), task, training, tmp_path).run()
    assert (result.best, result.best_step) == (1.0, 4)
    assert list(checkpoints(tmp_path)) == [4, 9, 10]
    assert all(len(steps) >= min(i, 2) for i, steps in enumerate(seen))  # never fewer than two
    best = (tmp_path / "checkpoint-000004" / "model.safetensors").read_bytes()
    assert (tmp_path / "model.safetensors").read_bytes() == best


def test_a_commit_that_reads_back_wrong_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that takes the bytes and returns others."""
    real = os.rename

    def rename(source: Path, target: Path) -> None:
        real(source, target)
        if target.name == "checkpoint-000003":
            (target / "a.txt").write_text("b")

    def fill(folder: Path) -> None:
        folder.mkdir()
        (folder / "a.txt").write_text("a")

    monkeypatch.setattr(os, "rename", rename)
    verify(write_atomically(tmp_path, 2, fill))
    with pytest.raises(SaveError, match=r"checkpoint-000003 was not saved: .*a\.txt is not what was saved"):
        write_atomically(tmp_path, 3, fill)


@pytest.mark.parametrize(
    ("place", "why"), [("file", "is a file; expected a folder"), ("file/run", "cannot be written")]
)
def test_a_folder_that_cannot_be_made(place: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(SaveError, match=why) as caught:
        trainer(tmp_path / place).run()
    assert "\n" not in str(caught.value)


def test_everything_is_on_the_disk_before_it_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order that survives a power cut: files, manifest, folder, one rename, the folder around it."""
    events: list[tuple[str, str]] = []
    sync, rename = os.fsync, os.rename

    def fsync(descriptor: int) -> None:
        events.append(("sync", os.readlink(f"/proc/self/fd/{descriptor}")))
        sync(descriptor)

    def renamed(source: Path, target: Path) -> None:
        events.append(("rename", str(target)))
        rename(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "rename", renamed)
    trainer(tmp_path, steps=1, valid_every=None).run()
    monkeypatch.undo()
    target = tmp_path / "checkpoint-000001"
    at = events.index(("rename", str(target)))
    aside = f"{tmp_path}/.tmp-{target.name}-{os.getpid()}"
    before = [path for what, path in events[:at] if what == "sync"]
    assert before[0] == str(tmp_path / "metrics.jsonl")  # no checkpoint is ahead of the log
    assert {f"{aside}/{path.name}" for path in target.iterdir() if path.name != MANIFEST} <= set(before)
    assert before[-2:] == [f"{aside}/.tmp-{MANIFEST}-{os.getpid()}", aside]
    assert events[at + 1] == ("sync", str(tmp_path))
