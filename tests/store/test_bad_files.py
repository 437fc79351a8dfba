"""Files that are wrong: one hand-made folder per rule, each refused in exactly one line."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from checkpoints import INDEX, SHARDS, SINGLE, entry, index, one_file, raw, two_files
from safetensors.torch import save_file

from clearhead import store
from clearhead.errors import LoadError

Break = Callable[[Path], object]
GOOD = entry("F32", [2], 0, 8)
RULES: dict[str, tuple[Callable[[Path], Path], Break, str]] = {}


def rule(words: str, make: Callable[[Path], Path] = one_file) -> Callable[[Break], Break]:
    def add(change: Break) -> Break:
        RULES[change.__name__.replace("_", " ")] = make, change, words
        return change

    return add


def config(text: bytes) -> Break:
    return lambda folder: (folder / "config.json").write_bytes(text)


def weights(header: object, data: bytes = b"", length: int | None = None) -> Break:
    return lambda folder: raw(folder / SINGLE, header, data, length)


def places(change: dict[str, object]) -> Break:
    """Edit the weight_map of an index."""

    def edit(folder: Path) -> None:
        now = json.loads((folder / INDEX).read_text())["weight_map"]
        index(folder, {**now, **change})

    return edit


def only(name: str) -> Break:
    return lambda folder: (folder / SINGLE).rename(folder / name)


def sentences(modules: object, pooling: object = None, length: object = None) -> Break:
    def change(folder: Path) -> None:
        (folder / "modules.json").write_text(json.dumps(modules))
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
        (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": length}))

    return change


POOLED = [{"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}]


@rule("has no config.json")
def no_config(folder: Path) -> None:
    (folder / "config.json").unlink()


@rule("its subfolder 'inner' has one")
def config_one_floor_down(folder: Path) -> None:
    (folder / "inner").mkdir()
    (folder / "config.json").rename(folder / "inner" / "config.json")


@rule("config.json is not a file that can be read")
def config_is_a_pipe(folder: Path) -> None:
    (folder / "config.json").unlink()
    os.mkfifo(folder / "config.json")


@rule("config.json is not a file that can be read")
def config_is_a_dead_link(folder: Path) -> None:
    (folder / "config.json").unlink()
    (folder / "config.json").symlink_to("nowhere")


@rule("config.json is larger than 4 MB")
def config_is_huge(folder: Path) -> None:
    os.truncate(folder / "config.json", 65 * 2**20)


@rule("no weights; expected model.safetensors, or shards with model.safetensors.index.json")
def no_weights(folder: Path) -> None:
    (folder / SINGLE).unlink()


@rule("model.safetensors is not a file that can be read")
def weights_are_a_pipe(folder: Path) -> None:
    (folder / SINGLE).unlink()
    os.mkfifo(folder / SINGLE)


@rule("model.safetensors is not a file that can be read")
def weights_are_a_folder(folder: Path) -> None:
    (folder / SINGLE).unlink()
    (folder / SINGLE).mkdir()


@rule("is not a whole safetensors file")
def truncated(folder: Path) -> None:
    os.truncate(folder / SINGLE, (folder / SINGLE).stat().st_size - 1)


@rule("is not a whole safetensors file")
def longer_than_the_header_says(folder: Path) -> None:
    with (folder / SINGLE).open("ab") as file:
        file.write(b"0")


@rule("lacks 1 of the 2 files its index names, the first is 'model-00002-of-00002.safetensors'", two_files)
def missing_shard(folder: Path) -> None:
    (folder / SHARDS[1]).unlink()


@rule("has 2 shards such as model-00001-of-00002.safetensors but no model.safetensors.index", two_files)
def shards_without_an_index(folder: Path) -> None:
    (folder / INDEX).unlink()


@rule("model-00002-of-00002.safetensors is not a whole safetensors file", two_files)
def broken_shard(folder: Path) -> None:
    os.truncate(folder / SHARDS[1], 20)


@rule("holds 'weight' twice: in model-00001-of-00002.safetensors and model-00002", two_files)
def tensor_in_two_shards(folder: Path) -> None:
    save_file({"weight": torch.ones(1), "count": torch.ones(1)}, folder / SHARDS[1])


@rule("index.json is not valid JSON", two_files)
def index_is_not_json(folder: Path) -> None:
    (folder / INDEX).write_text("{")


@rule("has no weight_map", two_files)
def index_without_a_map(folder: Path) -> None:
    (folder / INDEX).write_text("{}")


@rule("generation_config.json is not valid JSON")
def broken_generation_config(folder: Path) -> None:
    (folder / "generation_config.json").write_text("nope")


TABLE: list[tuple[str, Callable[[Path], Path], Break, str]] = [
    ("config: not JSON", one_file, config(b'{"a": 1,'), "config.json is not valid JSON"),
    ("config: empty", one_file, config(b""), "config.json is not valid JSON"),
    ("config: a list", one_file, config(b"[1]"), "config.json holds [1]; expected an object"),
    ("config: null", one_file, config(b"null"), "config.json holds None; expected an object"),
    ("config: a number", one_file, config(b"7"), "config.json holds 7; expected an object"),
    ("config: not UTF-8", one_file, config(b'{"a": "\xff"}'), "config.json is not UTF-8 text"),
    ("config: deep", one_file, config(b'{"a":' + b"[" * 10**5), "config.json is not valid JSON"),
    ("config: long number", one_file, config(b'{"a":' + b"9" * 5000 + b"}"), "is not valid JSON"),
    ("pickle: bin", one_file, only("pytorch_model.bin"), "a pickle, which can run code and is not read here"),
    ("pickle: how", one_file, only("model.pt"), "save_pretrained(folder, safe_serialization=True)"),
    ("pickle: ckpt", one_file, only("epoch.ckpt"), "has its weights in 'epoch.ckpt', a pickle"),
    ("weights: only optimiser", one_file, only("optimizer.pt"), "has no weights; expected model.safetensors"),
    ("weights: other name", one_file, only("adapter_model.safetensors"), "; it has 'adapter_model"),
    ("weights: another format", one_file, only("tf_model.h5"), "it has 'tf_model.h5'"),
    ("header: empty file", one_file, lambda f: os.truncate(f / SINGLE, 0), "header too small"),
    ("header: huge", one_file, weights(b"{}", length=2**63), "is not a whole safetensors file"),
    ("header: past the end", one_file, weights(b"{}", length=1000), "is not a whole safetensors file"),
    ("header: not JSON", one_file, weights(b"{"), "is not a whole safetensors file"),
    ("header: a list", one_file, weights(b"[]"), "is not a whole safetensors file"),
    ("header: not UTF-8", one_file, weights(b'{"\xff": 1}'), "is not a whole safetensors file"),
    ("header: no offsets", one_file, weights({"a": {"dtype": "F32"}}), "is not a whole safetensors file"),
    ("offsets: past the end", one_file, weights({"a": GOOD}, b"0" * 4), "is not a whole safetensors file"),
    ("offsets: a hole", one_file, weights({"a": entry("F32", [1], 4, 8)}, b"0" * 8), "not a whole safe"),
    ("offsets: overlap", one_file, weights({"a": GOOD, "b": GOOD}, b"0" * 8), "not a whole safetensors"),
    ("offsets: negative", one_file, weights({"a": entry("F32", [2], -8, 0)}), "not a whole safetensors"),
    ("offsets: backwards", one_file, weights({"a": entry("F32", [2], 8, 0)}, b"0" * 8), "not a whole safe"),
    ("shape: not the bytes", one_file, weights({"a": entry("F32", [3], 0, 8)}, b"0" * 8), "not a whole safe"),
    ("shape: overflow", one_file, weights({"a": entry("F32", [2**62, 8], 0, 8)}, b"0" * 8), "not a whole"),
    ("shape: absurd", one_file, weights({"a": entry("F32", [0, 2**63], 0, 0)}), "which no tensor can have"),
    ("shape: deep", one_file, weights({"a": entry("U8", [1] * 99, 0, 1)}, b"0"), "which no tensor can have"),
    ("dtype: unknown", one_file, weights({"a": entry("F\n3", [2], 0, 8)}, b"0" * 8), "not a whole safe"),
    ("dtype: six bits", one_file, weights({"a": entry("F6_E2M3", [4], 0, 3)}, b"0" * 3), "has dtype F6_E2M3"),
    ("dtype: four bits", one_file, weights({"a\n": entry("F4", [2], 0, 1)}, b"0"), "'a\\n' in "),
    ("index: up and out", two_files, places({"weight": "../" + SHARDS[0]}), "expected the bare name"),
    ("index: absolute", two_files, places({"weight": "/etc/passwd"}), "expected the bare name"),
    ("index: backslash", two_files, places({"weight": "..\\a.safetensors"}), "expected the bare name"),
    ("index: subfolder", two_files, places({"weight": "a/b.safetensors"}), "expected the bare name"),
    ("index: drive", two_files, places({"weight": "C:a.safetensors"}), "expected the bare name"),
    ("index: NUL", two_files, places({"weight": "a\0.safetensors"}), "expected the bare name"),
    ("index: dots", two_files, places({"weight": ".."}), "expected the bare name"),
    ("index: empty name", two_files, places({"weight": ""}), "expected the bare name"),
    ("index: a number", two_files, places({"weight": 3}), "expected the bare name"),
    ("index: a list", two_files, places({"weight": [SHARDS[0]]}), "expected the bare name"),
    ("index: a pickle", two_files, places({"weight": "pytorch_model.bin"}), "expected the bare name"),
    ("index: absent", two_files, places({"ghost": SHARDS[0]}), "says 'ghost' is in 'model-00001"),
    ("index: elsewhere", two_files, places({"weight": SHARDS[1]}), "and it is not"),
    ("index: empty map", two_files, lambda f: index(f, {}), "has no weight_map"),
    ("index: list map", two_files, lambda f: index(f, ["weight"]), "has no weight_map"),
    ("modules: an object", one_file, sentences({}), "is not a list of modules"),
    ("modules: no type", one_file, sentences([{"path": ""}]), "is not a list of modules"),
    ("modules: way out", one_file, sentences([{**POOLED[0], "path": "../x"}]), "a bare folder name"),
    ("pooling: a list", one_file, sentences(POOLED, []), "holds []; expected an object"),
    ("pooling: unknown", one_file, sentences(POOLED, {"pooling_mode": "men"}), "did you mean 'mean'?"),
    ("pooling: none", one_file, sentences(POOLED, {"pooling_mode": []}), "pools by []; known: cls"),
    ("pooling: odd", one_file, sentences(POOLED, {"pooling_mode": {"a": 1}}), "pools by {'a': 1}"),
    ("length: a word", one_file, sentences(POOLED, {}, "many"), "max_seq_length 'many'; expected a whole"),
    ("length: truth", one_file, sentences(POOLED, {}, True), "max_seq_length True; expected a whole"),
    *((name, make, change, words) for name, (make, change, words) in RULES.items()),
]  # fmt: skip


def refused(folder: str | Path) -> str:
    with pytest.raises(LoadError) as caught:
        store.read_folder(folder)
    message = str(caught.value)
    assert message.isprintable(), repr(message)
    assert len(message) < 700
    return message


@pytest.mark.parametrize(("make", "change", "words"), [case[1:] for case in TABLE], ids=[c[0] for c in TABLE])
def test_a_wrong_file_is_one_line(tmp_path: Path, make, change: Break, words: str) -> None:
    folder = make(tmp_path / "model")
    store.read_folder(folder)  # it was right before
    change(folder)
    message = refused(folder)
    assert words in message, message
    assert str(folder) in message


@pytest.mark.parametrize("given", ["", "nowhere", "no\nwhere", "a\0b", "x" * 5000])
def test_a_folder_that_is_not_there(given: str) -> None:
    assert refused(given).startswith("no folder '")


def test_a_file_instead_of_a_folder(tmp_path: Path) -> None:
    assert "is not a folder" in refused(one_file(tmp_path) / SINGLE)


def test_names_that_would_paint_on_a_terminal(tmp_path: Path) -> None:
    folder = one_file(tmp_path / "red\x1b[31m\nblue")
    raw(folder / SINGLE, {"\x1b[2J": entry("F4", [2], 0, 1)}, b"0")
    assert "'\\x1b[2J' in" in refused(folder)


@pytest.mark.parametrize("call", ["os.open", "os.listdir"])
def test_what_we_may_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    def deny(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    (one_file(tmp_path) / SINGLE).unlink()  # so that the folder is listed to see what there is instead
    monkeypatch.setattr(call, deny)
    assert "cannot be read: [Errno 13] Permission denied" in refused(tmp_path)
