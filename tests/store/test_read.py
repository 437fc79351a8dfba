"""Reading folders: the same tensors as the library that wrote them, and nothing but what the files say."""

import json
from pathlib import Path

import pytest
import torch
from checkpoints import SINGLE, assert_same, bert, block_sockets, gpt2, one_file, tensors, two_files
from safetensors.torch import load_file
from transformers import AutoModelForMaskedLM

from clearhead import store


def test_a_plain_folder_of_transformers(tmp_path: Path) -> None:
    model = gpt2()
    model.save_pretrained(tmp_path)
    found = store.read_folder(tmp_path)
    assert_same(found.tensors, load_file(tmp_path / SINGLE))
    state = model.state_dict()
    assert all(torch.equal(found.tensors[name], state[name]) for name in found.tensors)
    assert set(state) - set(found.tensors) == {"lm_head.weight"}  # tied: stored once
    assert found.config["model_type"] == "gpt2"
    assert found.generation["transformers_version"]
    assert found.folder == tmp_path
    assert found.pooling is None


def test_a_sharded_folder_of_transformers(tmp_path: Path) -> None:
    bert().save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 2
    again = AutoModelForMaskedLM.from_pretrained(tmp_path).state_dict()
    found = store.read_folder(str(tmp_path)).tensors
    assert all(torch.equal(found[name], again[name]) for name in found)
    assert len(found) > 30


@pytest.mark.parametrize("make", [one_file, two_files])
def test_headers_tell_shapes_dtypes_and_bytes(tmp_path: Path, make) -> None:
    found, want = store.read_folder(make(tmp_path)).tensors, tensors()
    assert_same(found, want)
    assert {name: found.shape(name) for name in found} == {name: tuple(x.shape) for name, x in want.items()}
    assert {name: found.dtype(name) for name in found} == {name: x.dtype for name, x in want.items()}
    assert found.bytes == sum(x.nbytes for x in want.values())
    assert len(found) == len(want)
    assert "weight" in found
    assert "wieght" not in found
    assert found.get("wieght") is None


def test_one_file_wins_over_an_index(tmp_path: Path) -> None:
    one_file(two_files(tmp_path))
    (tmp_path / "model-00001-of-00002.safetensors").unlink()
    assert_same(store.read_folder(tmp_path).tensors, tensors())


def test_writing_into_a_tensor_leaves_the_file_alone(tmp_path: Path) -> None:
    before = (one_file(tmp_path) / SINGLE).read_bytes()
    found = store.read_folder(tmp_path).tensors
    found["weight"].zero_()
    assert found["weight"].abs().sum() == 0  # the same memory on every look
    assert (tmp_path / SINGLE).read_bytes() == before


def test_a_local_folder_opens_no_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two_files(tmp_path)
    block_sockets(monkeypatch)
    assert_same(store.read_folder(store.resolve(str(tmp_path))).tensors, tensors())


def test_links_may_leave_the_folder_as_those_of_the_hub_cache_do(tmp_path: Path) -> None:
    blobs, snapshot = two_files(tmp_path / "blobs"), tmp_path / "snapshot"
    snapshot.mkdir()
    for number, file in enumerate(sorted(blobs.iterdir())):
        blob = file.rename(blobs / f"{number:064x}")
        (snapshot / file.name).symlink_to(Path("..") / "blobs" / blob.name)
    assert_same(store.read_folder(snapshot).tensors, tensors())


def sentences(folder: Path, pooling: dict[str, object], *kinds: str) -> Path:
    modules = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
    for i, kind in enumerate(kinds, start=1):
        modules.append({"idx": i, "name": str(i), "path": f"{i}_{kind}", "type": f"sentence.models.{kind}"})
    (one_file(folder) / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    return folder


FLAGS = {"word_embedding_dimension": 384, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}


@pytest.mark.parametrize(
    ("pooling", "modes"),
    [
        (FLAGS, ["mean"]),
        ({**FLAGS, "pooling_mode_max_tokens": True}, ["max", "mean"]),
        ({"pooling_mode_lasttoken": True}, ["lasttoken"]),
        ({"embedding_dimension": 384, "pooling_mode": "cls"}, ["cls"]),
        ({"pooling_mode": ["mean", "max"]}, ["mean", "max"]),
        ({}, ["mean"]),
    ],
)
def test_pooling_in_both_spellings(tmp_path: Path, pooling: dict[str, object], modes: list[str]) -> None:
    found = store.read_folder(sentences(tmp_path, pooling, "Pooling", "Normalize")).pooling
    assert found == {
        "modules": ["Transformer", "Pooling", "Normalize"],
        "modes": modes,
        "normalize": True,
        "include_prompt": True,
        "max_seq_length": None,
    }


def test_pooling_without_normalising_and_with_a_length(tmp_path: Path) -> None:
    sentences(tmp_path, {**FLAGS, "include_prompt": False}, "Pooling", "Dense")
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 256, "do_lower_case": false}')
    found = store.read_folder(tmp_path).pooling
    assert found["modules"] == ["Transformer", "Pooling", "Dense"]
    assert (found["normalize"], found["include_prompt"], found["max_seq_length"]) == (False, False, 256)


def test_modules_without_pooling_say_nothing_about_it(tmp_path: Path) -> None:
    assert store.read_folder(sentences(tmp_path, {})).pooling is None
