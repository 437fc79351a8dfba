"""Small checkpoints for tests: some saved by `transformers`, some made by hand, byte by byte."""

import json
import socket
import struct
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel, PreTrainedModel

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
SHARDS = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]


def gpt2() -> PreTrainedModel:
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(vocab_size=50, n_embd=16, n_layer=2, n_head=2, n_positions=12))


def bert() -> PreTrainedModel:
    torch.manual_seed(1)
    config = BertConfig(
        vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64
    )
    return BertForMaskedLM(config)


def tensors() -> dict[str, Tensor]:
    torch.manual_seed(2)
    return {
        "weight": torch.randn(4, 3),
        "half": torch.randn(5).bfloat16(),
        "count": torch.tensor(7),
        "flags": torch.tensor([True, False]),
        "none": torch.zeros(0, 4),
    }


def one_file(folder: Path) -> Path:
    """A folder with one weight file, small enough to be read by eye."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text('{"model_type": "gpt2"}')
    save_file(tensors(), folder / SINGLE, {"format": "pt"})
    return folder


def two_files(folder: Path) -> Path:
    """The same tensors in two shards with an index."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text('{"model_type": "gpt2"}')
    names = list(tensors())
    parts = [names[:2], names[2:]]
    for shard, part in zip(SHARDS, parts, strict=True):
        save_file({name: tensors()[name] for name in part}, folder / shard, {"format": "pt"})
    index(folder, {name: shard for shard, part in zip(SHARDS, parts, strict=True) for name in part})
    return folder


def index(folder: Path, places: object) -> None:
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": places}))


def raw(path: Path, header: object, data: bytes = b"", length: int | None = None) -> None:
    """A safetensors file with exactly this header, right or wrong."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)


def entry(dtype: str, shape: list[int], start: int, stop: int) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, stop]}


def assert_same(one: object, two: object) -> None:
    """The same names, and the same tensors bit for bit."""
    assert set(one) == set(two)
    for name in two:
        assert one[name].dtype == two[name].dtype, name
        assert torch.equal(one[name], two[name]), name


def block_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
