"""Writing folders: `transformers` opens them, nothing else is touched, and no save is left half done."""

import json
import os
import re
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import INDEX, SINGLE, assert_same, bert, block_sockets, gpt2, one_file, tensors
from transformers import BertForMaskedLM, GPT2LMHeadModel

from clearhead import store
from clearhead.errors import LoadError, SaveError
from clearhead.store import atomic

# The name `clearhead.store.write` is the function; the module behind it comes from the table of modules.
write_module = sys.modules["clearhead.store.write"]
REMOVE = shutil.rmtree
CONFIG = {"model_type": "gpt2", "b": 1, "a": "名"}
OLD_CONFIG = {"old": 1}
SIZES = {"one file": 10**9, "two shards": 60, "many shards": 1}


def contents(folder: Path) -> dict[str, bytes | None]:
    """Every path in a folder; the bytes of files, None for folders."""
    paths = sorted(folder.rglob("*"))
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in paths}


def other() -> dict[str, torch.Tensor]:
    """Tensors of the same names and shapes with other values."""
    return {name: (~x if x.dtype == torch.bool else x + 1) for name, x in tensors().items()}


@pytest.mark.parametrize("shard_bytes", [10**9, 20_000])
@pytest.mark.parametrize(("make", "kind"), [(gpt2, GPT2LMHeadModel), (bert, BertForMaskedLM)])
def test_transformers_opens_what_we_wrote(tmp_path: Path, monkeypatch, make, kind, shard_bytes: int) -> None:
    block_sockets(monkeypatch)
    state = make().state_dict()  # tied weights included, under both of their names
    config = json.loads(make().config.to_json_string())
    generation = {"max_new_tokens": 3}
    store.write_folder(tmp_path, config=config, tensors=state, generation=generation, shard_bytes=shard_bytes)
    assert (len(list(tmp_path.glob("*.safetensors"))) > 1) == (shard_bytes == 20_000)
    opened, report = kind.from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    assert_same(opened.state_dict(), state)
    found = store.read_folder(tmp_path)
    assert_same(found.tensors, state)
    assert (found.config, found.generation) == (config, generation)


def test_the_files(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "model"
    files = {"tokenizer.json": b"{}", "1_Pooling/config.json": b"{ }"}
    store.write_folder(folder, config=CONFIG, tensors=tensors(), files=files, shard_bytes=60)
    found = contents(folder)
    shards = [name for name in found if name.endswith(".safetensors")]
    assert shards == [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    assert set(found) == {"config.json", INDEX, *shards, *files, "1_Pooling"}
    assert found["config.json"].decode() == '{\n  "a": "名",\n  "b": 1,\n  "model_type": "gpt2"\n}\n'
    assert {name: found[name] for name in files} == files
    index = json.loads(found[INDEX])
    assert index["metadata"] == {"total_size": sum(x.nbytes for x in tensors().values())}
    assert set(index["weight_map"]) == set(tensors())
    assert b'"__metadata__":{"format":"pt"}' in found[shards[0]]
    assert os.listdir(folder.parent) == ["model"]
    mask = os.umask(0)
    os.umask(mask)
    assert {stat.S_IMODE(p.stat().st_mode) for p in folder.iterdir() if p.is_file()} == {0o666 & ~mask}


def test_a_shard_is_no_larger_than_asked(tmp_path: Path) -> None:
    many = {f"x{i}": torch.zeros(10) for i in range(7)} | {"big": torch.zeros(100), "small": torch.zeros(1)}
    store.write_folder(tmp_path, config=CONFIG, tensors=many, shard_bytes=80)
    found, sizes = store.read_folder(tmp_path).tensors, {}
    for name in found:
        sizes[found.file(name).name] = sizes.get(found.file(name).name, 0) + many[name].nbytes
    assert sorted(sizes.values()) == [4, 40, 80, 80, 80, 400]


def test_views_shared_memory_and_parameters(tmp_path: Path) -> None:
    whole = torch.arange(24.0).reshape(4, 6)
    given = {
        "whole": whole, "again": whole, "turned": whole.mT, "rows": whole[1:3], "column": whole[:, 2],
        "wide": torch.ones(1).expand(3, 5), "learned": torch.nn.Parameter(whole[2:]), "empty": whole[:0],
    }  # fmt: skip
    store.write_folder(tmp_path, config=CONFIG, tensors=given)
    assert_same(store.read_folder(tmp_path).tensors, {name: x.detach() for name, x in given.items()})


def test_pieces_that_do_not_overlap_are_not_copied() -> None:
    q, k, v = torch.arange(24.0).reshape(6, 4).chunk(3)
    ready = write_module._without_shared_memory({"v": v, "q": q, "k": k, "same": k})
    assert [ready[name].data_ptr() for name in "qkv"] == [x.data_ptr() for x in (q, k, v)]
    assert ready["same"].data_ptr() != k.data_ptr()
    whole = torch.arange(24.0).reshape(6, 4)
    ready = write_module._without_shared_memory({"all": whole, "middle": whole[1:3], "last": whole[3:]})
    stretches = sorted((x.data_ptr(), x.data_ptr() + x.nbytes) for x in ready.values())
    assert all(one[1] <= two[0] for one, two in pairwise(stretches))


@pytest.mark.parametrize("before", SIZES)
@pytest.mark.parametrize("after", SIZES)
def test_saving_onto_itself(tmp_path: Path, before: str, after: str) -> None:
    store.write_folder(tmp_path, config=CONFIG, tensors=tensors(), shard_bytes=SIZES[before])
    found = store.read_folder(tmp_path)
    store.write_folder(tmp_path, config=found.config, tensors=found.tensors, shard_bytes=SIZES[after])
    again = store.read_folder(tmp_path)
    assert_same(again.tensors, tensors())
    assert_same(found.tensors, tensors())  # what was mapped before stays whole as well
    fresh = tmp_path / "fresh"
    store.write_folder(fresh, config=CONFIG, tensors=tensors(), shard_bytes=SIZES[after])
    assert set(os.listdir(tmp_path)) == {*os.listdir(fresh), "fresh"}  # nothing of the old save is left


def test_what_is_not_ours_stays(tmp_path: Path) -> None:
    store.write_folder(tmp_path, config=CONFIG, tensors=tensors(), shard_bytes=1)
    mine = {"README.md": b"read", "model-best.safetensors": b"best", "checkpoint-1/model.safetensors": b"c"}
    (tmp_path / "checkpoint-1").mkdir()
    for name, data in mine.items():
        (tmp_path / name).write_bytes(data)
    store.write_folder(tmp_path, config=CONFIG, tensors=other())
    assert set(contents(tmp_path)) == {"config.json", SINGLE, "checkpoint-1", *mine}
    assert {name: contents(tmp_path)[name] for name in mine} == mine


def test_a_link_to_a_folder_is_followed(tmp_path: Path) -> None:
    (tmp_path / "disk" / "model").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "disk" / "model")
    store.write_folder(tmp_path / "link", config=CONFIG, tensors=tensors())
    assert (tmp_path / "link").is_symlink()
    (tmp_path / "ahead").symlink_to(tmp_path / "disk" / "to come")
    store.write_folder(tmp_path / "ahead", config=CONFIG, tensors=tensors())
    assert_same(store.read_folder(tmp_path / "disk" / "to come").tensors, tensors())
    assert_same(store.read_folder(tmp_path / "disk" / "model").tensors, tensors())


def test_a_mount_is_filled_from_within(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A move from one disk to another would not be a rename."""
    moves: list[str] = []
    real = os.replace
    monkeypatch.setattr(os.path, "ismount", lambda path: True)
    monkeypatch.setattr(os, "replace", lambda one, two: (moves.append(str(one)), real(one, two))[1])
    folder = one_file(tmp_path / "model")
    store.write_folder(folder, config=CONFIG, tensors=other())
    assert moves and all(move.startswith(f"{folder}/.tmp-model-") for move in moves)
    assert set(os.listdir(folder)) == {"config.json", SINGLE}


def test_links_in_a_folder_are_replaced_not_written_through(tmp_path: Path) -> None:
    blob = one_file(tmp_path / "blobs") / SINGLE
    before = blob.read_bytes()
    folder = tmp_path / "snapshot"
    folder.mkdir()
    (folder / SINGLE).symlink_to(blob)
    store.write_folder(folder, config=CONFIG, tensors=other())
    assert blob.read_bytes() == before
    assert_same(store.read_folder(folder).tensors, other())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"folder": ""}, "is empty"),
        ({"files": {"config.json": b""}}, "'config.json' cannot be saved as an additional file"),
        ({"files": {SINGLE: b""}}, "cannot be saved as an additional file"),
        ({"files": {"../up": b""}}, "'../up' cannot be saved"),
        ({"files": {"/abs": b""}}, "'/abs' cannot be saved"),
        ({"files": {"a//b": b""}}, "'a//b' cannot be saved"),
        ({"config": {"a": {1, 2}}}, "was not saved, and is as it was: Object of type set"),
        ({"tensors": {"a": torch.zeros(2, dtype=torch.complex128)}}, "was not saved, and is as it was"),
        ({"tensors": {"a": torch.zeros(2, device="meta")}}, "was not saved, and is as it was"),
        ({"tensors": {"a": torch.eye(2).to_sparse()}}, "was not saved, and is as it was"),
    ],
)
def test_what_cannot_be_saved_is_one_line(tmp_path: Path, change: dict[str, object], words: str) -> None:
    given = {"folder": one_file(tmp_path / "model"), "config": CONFIG, "tensors": tensors(), **change}
    before = contents(tmp_path)
    with pytest.raises(SaveError) as caught:
        store.write_folder(**given)
    assert words in str(caught.value), str(caught.value)
    assert str(caught.value).isprintable()
    assert contents(tmp_path) == before


def test_a_file_in_the_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "model").write_text("mine")
    with pytest.raises(SaveError, match="is a file; expected a folder"):
        store.write_folder(tmp_path / "model", config=CONFIG, tensors=tensors())
    assert contents(tmp_path) == {"model": b"mine"}


def test_a_folder_in_the_place_of_a_file(tmp_path: Path) -> None:
    (one_file(tmp_path) / "config.json").unlink()
    (tmp_path / "config.json").mkdir()
    before = contents(tmp_path)
    with pytest.raises(SaveError, match="is as it was"):
        store.write_folder(tmp_path, config=CONFIG, tensors=other())
    assert contents(tmp_path) == before


def test_a_file_in_the_place_of_a_subfolder(tmp_path: Path) -> None:
    (one_file(tmp_path) / "sub").write_text("mine")
    before = contents(tmp_path)
    files = {"vocab.txt": b"a", "sub/t.json": b"{}"}
    with pytest.raises(SaveError, match="is as it was"):
        store.write_folder(tmp_path, config=CONFIG, tensors=other(), files=files)
    assert contents(tmp_path) == before


# Everything that touches the disk between the first file written and the last stale one removed.
STEPS = [
    (write_module, "save_file"), (Path, "write_bytes"), (Path, "unlink"),
    (os, "replace"), (os, "fsync"), (shutil, "copymode"),
]  # fmt: skip


class Failing:
    """Lets `count` calls through, then fails once: a disk that is full, a process that was stopped."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, count: int, error: BaseException) -> None:
        self.left, self.error = count, error
        for where, name in STEPS:
            monkeypatch.setattr(where, name, self.wrap(getattr(where, name)))

    def wrap(self, real: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **options: object) -> object:
            self.left -= 1
            if self.left == -1:  # once: what then puts things back works
                raise self.error
            return real(*args, **options)

        return call


def fail_at_each_step(
    home: Path, sizes: tuple[str, str], error: BaseException, config: dict[str, Any] = CONFIG
) -> Iterator[dict[str, bytes | None]]:
    """Save over an old save as often as a save has steps, each time failing at another; yield what was."""
    before, after = sizes
    old, folder, files = home / "old", home / "now" / "model", {"sub/t.json": b"{}"}
    if before != NOTHING:
        before_files = files if config == OLD_CONFIG else None  # else a subfolder has to be made, too
        store.write_folder(
            old, config=OLD_CONFIG, tensors=tensors(), files=before_files, shard_bytes=SIZES[before]
        )
        (old / "README.md").write_bytes(b"mine")
    for count in range(200):
        REMOVE(home / "now", ignore_errors=True)
        (home / "now").mkdir()
        if before != NOTHING:
            shutil.copytree(old, folder)
        was = contents(home / "now")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fsync", lambda descriptor: None)  # counted below, but this disk need not spin
            step = Failing(patch, count, error)
            try:
                store.write_folder(
                    folder, config=config, tensors=other(), files=files, shard_bytes=SIZES[after]
                )
            except BaseException as caught:
                assert caught is error or caught.__cause__ is error
            else:
                assert step.left >= 0
                assert count > 8
                return
        yield was


NOTHING = "nothing"
PAIRS = [(before, after) for before in SIZES for after in SIZES]
FRESH = [(NOTHING, after) for after in SIZES]


@pytest.mark.parametrize("sizes", FRESH + PAIRS, ids=" to ".join)
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=repr)
def test_a_save_that_fails_changes_nothing(
    tmp_path: Path, sizes: tuple[str, str], error: BaseException
) -> None:
    for was in fail_at_each_step(tmp_path, sizes, error):
        assert contents(tmp_path / "now") == was


@pytest.mark.parametrize("config", [OLD_CONFIG, CONFIG], ids=["the same config", "another config"])
@pytest.mark.parametrize("sizes", PAIRS, ids=" to ".join)
def test_a_save_that_is_killed_leaves_the_old_model_or_the_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: tuple[str, str], config: dict[str, Any]
) -> None:
    """Killed: nobody restores or tidies. Old or new, never a mixture of tensors or of tensors and config.
    What cannot change in one instant, shards of the very same names or weights and another config, may leave
    a folder that is refused."""
    monkeypatch.setattr(atomic, "_restore", lambda *_: None)
    monkeypatch.setattr(shutil, "rmtree", lambda path, ignore_errors: None)
    seen = set()
    for _ in fail_at_each_step(tmp_path, sizes, OSError("killed"), config):
        try:
            opened = store.read_folder(tmp_path / "now" / "model")
            found = {name: x.clone() for name, x in opened.tensors.items()}
        except LoadError as error:
            assert re.search(r"but no model\.safetensors\.index\.json|has no config\.json", str(error))
            seen.add("refused")
            continue
        is_old = torch.equal(found["weight"], tensors()["weight"])
        seen.add("old" if is_old else "new")
        assert_same(found, tensors() if is_old else other())
        assert opened.config == (OLD_CONFIG if is_old else config)
    same_names = sizes[0] == sizes[1] != "one file"
    assert seen == {"old", "new"} | ({"refused"} if same_names or config is CONFIG else set())


def test_a_disk_without_second_names_keeps_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    for was in fail_at_each_step(tmp_path, ("two shards", "two shards"), OSError(5, "Input/output error")):
        assert contents(tmp_path / "now") == was
    assert_same(store.read_folder(tmp_path / "now" / "model").tensors, other())
