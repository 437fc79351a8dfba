"""Kept weights: the bits of fresh ones, never those of other weights, and no error whatever happens."""

import errno
import json
import os
import shutil
import struct
import subprocess
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from matrix import combinations
from packed import SMALL_GPT2, SMALL_LLAMA, folder_of, matrices
from references import KNOWN, REFERENCES
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

import clearhead as ch
from clearhead.bundle import Bundle, keeping
from clearhead.bundle.saving import saved_tensors
from clearhead.engine import preparation, preparing
from clearhead.errors import InputError
from clearhead.store import write_folder
from clearhead.store.hub import IGNORE_PATTERNS

KEPT = ["int8", "int8-fine", "int4"]
FILE = {"int8": "int8.safetensors", "int8-fine": "int8.safetensors", "int4": "int4.safetensors"}
precisions = pytest.mark.parametrize("precision", KEPT)
IDS = torch.randint(3, 90, (2, 7), generator=torch.Generator().manual_seed(0))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    ch.build("llama", **SMALL_LLAMA).save(tmp_path / "model")
    return tmp_path / "model"


def outputs(bundle: Bundle) -> Tensor:
    with torch.inference_mode():
        return bundle(IDS, IDS) if bundle.spec.is_encoder_decoder else bundle(IDS)


class Counter:
    """How many matrices were quantized; the others were read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count, quantize = 0, preparing._quantized

        def counting(*args: Any) -> Any:
            self.count += 1
            return quantize(*args)

        monkeypatch.setattr(preparing, "_quantized", counting)

    def during(self, run: Callable[[], Bundle]) -> int:
        before = self.count
        bundle = run()
        assert preparation(bundle.model) is not None
        return self.count - before


@pytest.fixture
def quantized(monkeypatch: pytest.MonkeyPatch) -> Counter:
    return Counter(monkeypatch)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    lines = [record.getMessage() for record in caplog.records]
    caplog.clear()
    return lines


@pytest.mark.parametrize(
    "family", combinations(zip(KNOWN), str, lambda name: list(KNOWN).index(name) % 3 == 0)
)
def test_kept_weights_have_the_bits_of_fresh_ones(family: str, tmp_path: Path, quantized: Counter) -> None:
    """Of every family; int8 and int8-fine share a file."""
    REFERENCES[f"{family}/tokens/plain"].files(tmp_path)
    fresh = {precision: ch.load(tmp_path, precision=precision) for precision in KEPT}
    for precision in ("int8", "int4"):
        kept = ch.load(tmp_path, precision=precision, keep=True)
        assert torch.equal(outputs(kept), outputs(fresh[precision]))
    for precision in KEPT:
        assert quantized.during(lambda precision=precision: ch.load(tmp_path, precision=precision)) == 0
        again = ch.load(tmp_path, precision=precision)
        assert torch.equal(outputs(again), outputs(fresh[precision]))
        pairs = zip(matrices(again.model), matrices(fresh[precision].model), strict=True)
        assert all(torch.equal(one.dequantized(), two.dequantized()) for one, two in pairs)


@precisions
def test_it_can_be_kept_later(precision: str, folder: Path, quantized: Counter) -> None:
    fresh = outputs(ch.load(folder, precision=precision))
    assert not (folder / "clearhead").exists()
    bundle = ch.load(folder).prepare(precision, keep=True)
    assert os.listdir(folder / "clearhead") == [FILE[precision]]
    assert torch.equal(outputs(bundle), fresh)
    assert quantized.during(lambda: bundle.prepare(precision)) == 0
    assert quantized.during(lambda: ch.load(folder).prepare(precision)) == 0
    assert torch.equal(outputs(bundle), fresh)


def test_shards_are_one_model(tmp_path: Path, quantized: Counter, caplog: pytest.LogCaptureFixture) -> None:
    bundle = ch.build("llama", **SMALL_LLAMA)
    tensors = saved_tensors(bundle)
    write_folder(tmp_path / "model", config=bundle.config, tensors=tensors, shard_bytes=40_000)
    shards = sorted((tmp_path / "model").glob("model-*.safetensors"))
    assert len(shards) > 2
    fresh = outputs(ch.load(tmp_path / "model", precision="int8", keep=True))
    again: list[Bundle] = []
    assert (
        quantized.during(lambda: again.append(ch.load(tmp_path / "model", precision="int8")) or again[0]) == 0
    )
    assert torch.equal(outputs(again[0]), fresh)
    again[0].save(tmp_path / "saved")
    assert all(torch.equal(x, tensors[n]) for n, x in load_file(tmp_path / "saved/model.safetensors").items())
    changed = load_file(shards[1])
    save_file({name: x * 2 for name, x in changed.items()}, shards[1], {"format": "pt"})
    assert quantized.during(lambda: ch.load(tmp_path / "model", precision="int8")) > 0
    assert len(said(caplog)) == 1


def test_other_programs_do_not_see_it(tmp_path: Path) -> None:
    """transformers opens the folder, and no program that reads all safetensors files of it finds another."""
    REFERENCES["gpt2/tokens/plain"].files(tmp_path)
    before = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)(IDS).logits
    ch.load(tmp_path, precision="int8", keep=True)
    after = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)(IDS).logits
    assert torch.equal(before, after)
    assert [path.name for path in tmp_path.glob("*.safetensors")] == ["model.safetensors"]
    assert len(ch.load(tmp_path).report.used) == len(load_file(tmp_path / "model.safetensors"))
    assert any(fnmatchcase("clearhead/int8.safetensors", pattern) for pattern in IGNORE_PATTERNS)


def test_the_file_is_plain_safetensors(folder: Path) -> None:
    """Codes and scales under the names of the parameters: readable by anyone, here by hand."""
    ch.load(folder, precision="int8", keep=True)
    found, stored = load_file(folder / "clearhead/int8.safetensors"), load_file(folder / "model.safetensors")
    name, theirs = "tower.blocks.0.ff.down.weight", "model.layers.0.mlp.down_proj.weight"
    codes, scale = found[f"{name}:codes"], found[f"{name}:scale"]
    assert codes.dtype == torch.int8 and scale.dtype == torch.float32
    half = stored[theirs].abs().amax(1, keepdim=True) / 254
    assert bool(((codes * scale[:, None] - stored[theirs]).abs() <= half * 1.001).all())
    fused = found[
        "tower.blocks.0.attn.q.weight,tower.blocks.0.attn.k.weight,tower.blocks.0.attn.v.weight:codes"
    ]
    assert fused.shape == (64 + 32 + 32, 64)
    with safe_open(folder / "clearhead/int8.safetensors", "pt") as file:
        note = json.loads(file.metadata()["clearhead"])
    (source,) = note["sources"]
    assert source["name"] == "model.safetensors"
    assert source["size"] == (folder / "model.safetensors").stat().st_size


def test_what_a_killed_writer_left_is_removed(folder: Path) -> None:
    (folder / "clearhead").mkdir()
    ended = subprocess.Popen(["true"])
    ended.wait()
    left, in_use = (
        folder / "clearhead" / f".tmp-int8.safetensors-{pid}" for pid in (ended.pid, os.getppid())
    )
    left.touch()
    in_use.touch()
    ch.load(folder, precision="int8", keep=True)
    assert not left.exists() and in_use.exists() and (folder / "clearhead/int8.safetensors").is_file()


def test_a_folder_in_its_place_is_said_and_left_alone(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    (folder / "clearhead/int8.safetensors").mkdir(parents=True)
    ch.load(folder, precision="int8")
    (line,) = said(caplog)
    assert line.endswith("int8.safetensors is not used: it is not a regular file; remove it")
    assert list((folder / "clearhead").iterdir()) == [folder / "clearhead/int8.safetensors"]


# --- other weights ---


def test_a_touched_file_is_known_by_its_hash(
    folder: Path, quantized: Counter, caplog: pytest.LogCaptureFixture
) -> None:
    """A copy has another time. Its content is compared, and `keep` notes the new time."""
    ch.load(folder, precision="int8", keep=True)
    os.utime(folder / "model.safetensors", ns=(1, 1))
    assert quantized.during(lambda: ch.load(folder, precision="int8")) == 0
    assert quantized.during(lambda: ch.load(folder, precision="int8", keep=True)) == 0
    with safe_open(folder / "clearhead/int8.safetensors", "pt") as file:
        assert json.loads(file.metadata()["clearhead"])["sources"][0]["mtime_ns"] == 1
    assert quantized.during(lambda: ch.load(folder, precision="int8")) == 0
    assert said(caplog) == []


@pytest.mark.parametrize("same_time", ["same time", "other time"])
def test_other_weights_of_the_same_size_are_noticed(
    same_time: str, folder: Path, quantized: Counter, caplog: pytest.LogCaptureFixture
) -> None:
    """By their hash; and if even time and size are the same, by the row that is compared."""
    ch.load(folder, precision="int8", keep=True)
    time = (folder / "model.safetensors").stat().st_mtime_ns
    ch.build("llama", seed=1, **SMALL_LLAMA).save(folder)
    if same_time == "same time":
        os.utime(folder / "model.safetensors", ns=(time, time))
    fresh = folder.parent / "fresh"
    ch.load(folder).save(fresh)
    wanted = outputs(ch.load(fresh, precision="int8"))
    assert torch.equal(outputs(ch.load(folder, precision="int8")), wanted)
    (line,) = said(caplog)
    assert "clearhead/int8.safetensors is not used: " in line and line.endswith(
        "; preparing with keep (--keep) makes it anew"
    )
    assert "other weights" in line
    assert torch.equal(outputs(ch.load(folder, precision="int8", keep=True)), wanted)
    assert said(caplog)[0].endswith("; it is made anew")
    assert quantized.during(lambda: ch.load(folder, precision="int8")) == 0 and said(caplog) == []


def test_changed_weights_are_neither_read_nor_kept(
    folder: Path, quantized: Counter, caplog: pytest.LogCaptureFixture
) -> None:
    """A single number, written behind torch's back."""
    ch.load(folder, precision="int8", keep=True)
    content = (folder / "clearhead/int8.safetensors").read_bytes()
    for precision in (None, "int8"):
        bundle = ch.load(folder, precision=precision)
        bundle.model.tower.blocks[1].ff.down.weight.data[3, 5] = 1.0
        assert quantized.during(lambda bundle=bundle: bundle.prepare("int8", keep=True)) >= 1
        weight = bundle.model.tower.blocks[1].ff.down.product.fused.product.dequantized()
        assert weight[3, 5] == 1.0
    assert (folder / "clearhead/int8.safetensors").read_bytes() == content
    assert torch.equal(outputs(ch.load(folder, precision="int8")), outputs(ch.load(folder).prepare("int8")))


@pytest.mark.parametrize("how", ["dtype", "built", "replaced", "removed"])
def test_weights_that_are_not_those_of_the_files_are_not_kept(
    how: str, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    if how == "dtype":
        bundle = ch.load(folder, dtype="bfloat16")
    elif how == "built":
        bundle = ch.build("llama", **SMALL_LLAMA)
    else:
        bundle = ch.load(folder)
        (folder / "model.safetensors").unlink()
        if how == "replaced":
            ch.build("llama", seed=1, **SMALL_LLAMA).save(folder)
    bundle.prepare("int8", keep=True)
    (line,) = said(caplog)
    assert line == (
        "nothing is kept: these weights are not, or not any more, those of a safetensors folder; "
        "save the model as one, ch.save(bundle, folder), and keep them there"
    )
    assert not (folder / "clearhead").exists() and preparation(bundle.model) is not None


def test_another_head_uses_what_it_has_in_common(tmp_path: Path, quantized: Counter) -> None:
    folder = folder_of("gpt2", tmp_path)
    kept = quantized.during(lambda: ch.load(folder, precision="int8", keep=True))
    assert kept == 4 * SMALL_GPT2["n_layer"] + 1
    bundle = ch.load(folder, head="labels", labels=["a", "b"], precision="int8")
    assert preparation(bundle.model) is not None
    assert quantized.during(lambda: ch.load(folder, head="labels", labels=["a", "b"], precision="int8")) == 0
    edited = {"Attention.kernel": "Window(4)"}
    assert quantized.during(lambda: ch.load(folder, edit=edited, precision="int8")) == 0


# --- damaged files ---


def header(data: bytes) -> dict[str, Any]:
    return json.loads(data[8 : 8 + struct.unpack("<Q", data[:8])[0]])


def with_header(data: bytes, found: dict[str, Any]) -> bytes:
    size = struct.unpack("<Q", data[:8])[0]
    text = json.dumps(found).encode()
    return struct.pack("<Q", len(text)) + text + data[8 + size :]


def with_note(data: bytes, change: Callable[[dict[str, Any]], None]) -> bytes:
    found = header(data)
    note = json.loads(found["__metadata__"]["clearhead"])
    change(note)
    found["__metadata__"]["clearhead"] = json.dumps(note)
    return with_header(data, found)


def with_tensors(data: bytes, change: Callable[[dict[str, Tensor]], None]) -> bytes:
    """Other tensors, with checksums that are right for them: a file that somebody made."""
    from safetensors.torch import load, save

    tensors = load(data)
    change(tensors)
    note = json.loads(header(data)["__metadata__"]["clearhead"])
    from clearhead.engine.kept import _checksum

    note["checksums"] = {name: _checksum(x) for name, x in tensors.items()}
    return save(tensors, {"clearhead": json.dumps(note)})


def set_scale(value: float, rows: slice) -> Callable[[dict[str, Tensor]], None]:
    def change(tensors: dict[str, Tensor]) -> None:
        for name, x in tensors.items():
            if name.endswith("scale"):
                x[rows] = value

    return change


LAST, ALL = slice(-1, None), slice(None)


def shrink(tensors: dict[str, Tensor]) -> None:
    name = next(name for name in tensors if name.endswith("codes"))
    tensors[name] = tensors[name][:, 1:].contiguous()


def without_scale(tensors: dict[str, Tensor]) -> None:
    del tensors[next(name for name in tensors if name.endswith("scale"))]


def as_floats(tensors: dict[str, Tensor]) -> None:
    name = next(name for name in tensors if name.endswith("codes"))
    tensors[name] = tensors[name].float()


def negated(tensors: dict[str, Tensor]) -> None:
    for name, x in tensors.items():
        if name.endswith("codes"):
            tensors[name] = ~x


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "a byte": lambda data: b"\0",
    "cut in the header": lambda data: data[:100],
    "cut in the data": lambda data: data[:-1],
    "longer": lambda data: data + b"\0",
    "a huge header": lambda data: struct.pack("<Q", 2**62) + data[8:],
    "no JSON": lambda data: data[:8] + b"x" + data[9:],
    "no note": lambda data: with_header(data, {k: v for k, v in header(data).items() if k != "__metadata__"}),
    "another format": lambda data: with_note(data, lambda note: note.update(format=2)),
    "another kind": lambda data: with_note(data, lambda note: note.update(kind="int5")),
    "no sources": lambda data: with_note(data, lambda note: note.update(sources=[])),
    "strange sources": lambda data: with_note(data, lambda note: note.update(sources=[{"path": "/etc"}])),
    "sources of another type": lambda data: with_note(data, lambda note: note.update(sources=7)),
    "no checksums": lambda data: with_note(data, lambda note: note.update(checksums={})),
    "checksums of another type": lambda data: with_note(data, lambda note: note.update(checksums=[[1, 2]])),
    "a list as note": lambda data: with_header(
        data, header(data) | {"__metadata__": {"clearhead": "[1, 2]"}}
    ),
    "a flipped bit of the data": lambda data: data[:-9] + bytes([data[-9] ^ 16]) + data[-8:],
    "scales that are no numbers": lambda data: with_tensors(data, set_scale(float("nan"), LAST)),
    "infinite scales": lambda data: with_tensors(data, set_scale(float("inf"), LAST)),
    "other scales": lambda data: with_tensors(data, set_scale(0.7, ALL)),
    "a narrower matrix": lambda data: with_tensors(data, shrink),
    "codes without scales": lambda data: with_tensors(data, without_scale),
    "codes in floats": lambda data: with_tensors(data, as_floats),
    "codes of another model": lambda data: with_tensors(data, negated),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("precision", ["int8", "int4"])
def test_a_damaged_file_is_not_used(
    damage: str, precision: str, folder: Path, quantized: Counter, caplog: pytest.LogCaptureFixture
) -> None:
    wanted = outputs(ch.load(folder, precision=precision, keep=True))
    path = folder / "clearhead" / FILE[precision]
    intact = path.read_bytes()
    path.unlink()
    path.write_bytes(DAMAGES[damage](intact))
    assert torch.equal(outputs(ch.load(folder, precision=precision)), wanted)
    (line,) = said(caplog)
    assert f"{path.name} is not used: " in line and "\n" not in line
    found = ch.load(folder, precision=precision, keep=True)
    assert torch.equal(outputs(found), wanted) and len(said(caplog)) == 1
    assert path.read_bytes() == intact
    assert quantized.during(lambda: ch.load(folder, precision=precision)) == 0 and said(caplog) == []


def test_every_byte_counts(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Wherever a bit is flipped: the result is the same, used or not, and there is no error."""
    wanted = outputs(ch.load(folder, precision="int8", keep=True))
    path = folder / "clearhead/int8.safetensors"
    intact = path.read_bytes()
    places = torch.randint(len(intact), (40,), generator=torch.Generator().manual_seed(0)).tolist()
    for place in [*places, *range(0, 400, 37)]:
        path.unlink()
        path.write_bytes(intact[:place] + bytes([intact[place] ^ 1]) + intact[place + 1 :])
        assert torch.equal(outputs(ch.load(folder, precision="int8")), wanted), place
        assert len(said(caplog)) <= 1


@pytest.mark.parametrize("kind", ["a folder", "a pipe", "a link to nothing", "a link to a device"])
def test_what_is_no_file_is_not_opened(kind: str, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = folder / "clearhead/int8.safetensors"
    path.parent.mkdir()
    if kind == "a folder":
        path.mkdir()
    elif kind == "a pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero" if kind == "a link to a device" else folder / "nothing")
    ch.load(folder, precision="int8")
    lines = said(caplog)
    assert len(lines) == (0 if kind == "a link to nothing" else 1)
    assert all("it is not a regular file" in line for line in lines)


# --- folders that cannot be written to ---


def test_a_folder_that_cannot_be_written_to_is_no_error(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "clearhead").write_text("a file where the folder should be")
    wanted = outputs(ch.load(folder, precision="int8"))
    assert said(caplog) == []
    assert torch.equal(outputs(ch.load(folder, precision="int8", keep=True)), wanted)
    (line,) = said(caplog)
    assert line.startswith("the int8 weights are not kept: ") and "clearhead" in line


@pytest.mark.parametrize("step", ["write", "finish"])
def test_a_full_disk_is_no_error(
    step: str, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    wanted = outputs(ch.load(folder, precision="int8"))
    monkeypatch.setattr(keeping.KeptWriter, step, full)
    assert torch.equal(outputs(ch.load(folder, precision="int8", keep=True)), wanted)
    assert said(caplog) == ["the quantized weights are not kept: [Errno 28] No space left on device"]
    assert os.listdir(folder / "clearhead") == []


def test_an_interruption_leaves_no_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle, packed = ch.load(folder), preparing._product

    def interrupted(group: Any, *more: Any) -> Any:
        if "blocks.1" in group.name:
            raise KeyboardInterrupt
        return packed(group, *more)

    monkeypatch.setattr(preparing, "_product", interrupted)
    with pytest.raises(KeyboardInterrupt):
        bundle.prepare("int8", keep=True)
    assert os.listdir(folder / "clearhead") == [] and preparation(bundle.model) is None


def test_keep_needs_a_precision_that_is_kept(folder: Path) -> None:
    with pytest.raises(InputError, match="keep=True keeps quantized weights: give a precision as well"):
        ch.load(folder, keep=True)
    with pytest.raises(
        InputError, match="keep=True is for int8, int8-fine, int4; float32 is packed in a moment"
    ):
        ch.load(folder).prepare("float32", keep=True)


def test_a_moved_folder_takes_it_along(folder: Path, tmp_path: Path, quantized: Counter) -> None:
    ch.load(folder, precision="int8", keep=True)
    shutil.copytree(folder, tmp_path / "copy")
    assert quantized.during(lambda: ch.load(tmp_path / "copy", precision="int8")) == 0
