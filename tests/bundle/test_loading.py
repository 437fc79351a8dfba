"""Loading and saving: no network, no copies, every tensor accounted for, one line for whatever is wrong."""

import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import clearhead as ch
from clearhead.errors import ClearheadError, LoadError

TINY = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32, "vocab_size": 40}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    ch.save(ch.build("gpt2", **TINY), tmp_path / "model")
    return tmp_path / "model"


def change_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def change_tensors(folder: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    state = load_file(folder / "model.safetensors")
    change(state)
    save_file(state, folder / "model.safetensors")


def test_what_is_built_is_what_is_loaded(folder: Path) -> None:
    """Bit for bit: a law over all families in tests/conform/test_exactness.py."""
    built, loaded = ch.build("gpt2", **TINY), ch.load(folder)
    assert loaded.spec == built.spec and loaded.family is built.family
    ids = torch.tensor([[1, 2, 3]])
    assert torch.equal(built.model(ids), loaded.model(ids))
    assert str(loaded.report) == "28 of 28 tensors used · 0 missing"
    assert all(p.requires_grad for p in loaded.model.parameters())


def test_a_local_path_opens_no_socket(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    ch.save(ch.load(folder), folder.parent / "again")
    ch.load(folder.parent / "again")


def test_precision_and_edits(folder: Path) -> None:
    assert next(ch.load(folder).model.parameters()).dtype == torch.float32
    assert next(ch.load(folder, dtype="bfloat16").model.parameters()).dtype == torch.bfloat16
    near = ch.load(folder, edit={"Attention.window": (2, 0)})
    far, ids = ch.load(folder), torch.arange(9)[None]
    assert torch.equal(near.model(ids)[:, :3], far.model(ids)[:, :3])
    assert not torch.equal(near.model(ids)[:, 3:], far.model(ids)[:, 3:])


def test_missing_head_weights_only_by_name(folder: Path) -> None:
    change_config(folder, architectures=["GPT2ForSequenceClassification"], num_labels=3)
    with pytest.raises(LoadError, match=r"1 missing: head.project.weight.*allow_missing="):
        ch.load(folder)
    bundle = ch.load(folder, allow_missing=["head.*"])
    assert bundle.report.fresh == ("head.project.weight",)
    assert "1 missing, made new" in str(bundle.report)
    assert bundle.model(torch.tensor([[1, 2]])).shape == (1, 3)
    again = ch.load(folder, allow_missing=["head.*"])
    assert torch.equal(bundle.model.head.project.weight, again.model.head.project.weight)
    stored = load_file(folder / "model.safetensors")["transformer.wte.weight"]
    assert torch.equal(bundle.model.tower.embed.table.weight, stored)


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "unknown type": (
        lambda f: change_config(f, model_type="gpt22"),
        "'gpt22' is not supported; nearest: GPT-2 ('gpt2'), which has the same keys",
    ),
    "another kin": (
        lambda f: change_config(f, model_type="zebra", stripes=7),
        "'zebra' is not supported; nearest: GPT-2 ('gpt2'), which does not know stripes",
    ),
    "no type": (lambda f: change_config(f, model_type=None), "no model_type"),
    "another width": (
        lambda f: change_config(f, n_embd=32),
        "of another shape: tower.embed.table.weight (40, 16), config",
    ),
    "more layers": (lambda f: change_config(f, n_layer=3), "16 missing: tower.blocks.2."),
    "fewer layers": (lambda f: change_config(f, n_layer=1), "unknown: tower.blocks.1."),
    "absurd layers": (
        lambda f: change_config(f, n_layer=10**9),
        "n_layer is 1,000,000,000, but the weights hold 28",
    ),
    "absurd width": (lambda f: change_config(f, n_embd=2**62), "n_embd is 4611686018427387904, expected a"),
    "huge width": (lambda f: change_config(f, n_embd=2**31 - 2), "does not describe a GPT-2 model"),
    "a number without end": (lambda f: change_config(f, n_embd=10**4000), "is a whole number of 13288 bits"),
    "edited depth": (
        lambda f: change_config(f, clearhead={"edit": {"Tower.depth": "99999999"}}),
        "99,999,999 layers are requested, but the weights hold 28 tensors",
    ),
    "a list for a word": (lambda f: change_config(f, activation_function=["gelu"]), "expected a string"),
    "architectures": (lambda f: change_config(f, architectures=3), "architectures is 3, expected a list of"),
    "dropout": (lambda f: change_config(f, attn_pdrop=-0.5), "attn_pdrop is -0.5, expected a number from 0"),
    "labels": (lambda f: change_config(f, id2label=[1]), "id2label is [1], expected an object"),
    "heads": (lambda f: change_config(f, n_head=3), "width 16 is not divisible by heads 3"),
    "a word for a number": (lambda f: change_config(f, n_layer="two"), "n_layer is 'two', expected a whole"),
    "activation": (lambda f: change_config(f, activation_function="gelo"), "did you mean 'gelu'?"),
    "head": (
        lambda f: change_config(f, architectures=["GPT2ForMultipleChoice"]),
        "has no head for 'choice'",
    ),
    "unknown tensor": (
        lambda f: change_tensors(f, lambda s: s.update({"extra.weight": torch.zeros(2)})),
        "1 unknown: extra.weight",
    ),
    "missing tensor": (
        lambda f: change_tensors(f, lambda s: s.pop("transformer.ln_f.bias")),
        "1 missing: tower.norm.bias",
    ),
    "untied": (
        lambda f: change_tensors(f, lambda s: s.update({"lm_head.weight": torch.zeros(40, 16)})),
        "the checkpoint is untied",
    ),
    "truncated": (
        lambda f: (f / "model.safetensors").write_bytes((f / "model.safetensors").read_bytes()[:-9]),
        "model.safetensors",
    ),
    "pickle only": (lambda f: (f / "model.safetensors").rename(f / "pytorch_model.bin"), "pickle"),
    "no config": (lambda f: (f / "config.json").unlink(), "has no config.json"),
    "no folder": (lambda f: shutil.rmtree(f), "neither a folder nor a hub id"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_folder_is_one_line(name: str, folder: Path) -> None:
    damage, words = BROKEN[name]
    damage(folder)
    with pytest.raises(ClearheadError) as caught:
        ch.load(folder)
    assert words in str(caught.value), str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda f: ch.load(f, dtype="float3"), "did you mean 'float32'?"),
        (lambda f: ch.load(f, edit={"Atention.window": (1, 0)}), "did you mean 'Attention'"),
        (lambda f: ch.load(f, edit={"Rope.theta": 2.0}), "there is no Rope to edit"),
        (lambda f: ch.load(f, edit=["Rope"]), "edit is ['Rope'], expected a dict"),
        (lambda f: ch.build("gpt2", n_layer=[1]), "n_layer is [1], expected a whole number"),
        (lambda f: ch.load(f).embed(["text"]), "came without one (tokenizer.json); pass ids"),
        (lambda f: ch.load(f).embed("text"), "came without one (tokenizer.json); pass ids"),
        (lambda f: ch.build("gpt2", n_emd=3), "did you mean 'n_embd'?"),
        (lambda f: ch.build("gtp2"), "no family or size is called 'gtp2'; did you mean 'gpt2'?"),
        (lambda f: ch.build("gpt2", task="choice"), "it has tokens, labels, tags, span, hidden"),
        (lambda f: ch.build(ch.load(f).spec, n_embd=3), "edit the spec instead"),
        (lambda f: ch.save(ch.build(ch.load(f).spec), f / "new"), "belongs to no family"),
    ],
)
def test_a_wrong_call_is_one_line(call: Callable[[Path], object], words: str, folder: Path) -> None:
    with pytest.raises(ClearheadError) as caught:
        call(folder)
    assert words in str(caught.value), str(caught.value)
    assert "\n" not in str(caught.value) and not (folder / "new").exists()


def test_old_spellings_are_read_and_new_ones_written(tmp_path: Path) -> None:
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
    ch.save(ch.build("llama", vocab_size=30, **sizes), tmp_path / "new")
    said = json.loads((tmp_path / "new" / "config.json").read_text())
    parameters = said.pop("rope_parameters")
    scaling = {"type": "linear", "factor": 2.0}
    said |= {"rope_theta": 500.0, "rope_scaling": scaling, "torch_dtype": said.pop("dtype")}
    assert parameters["rope_type"] == "default"
    (tmp_path / "new" / "config.json").write_text(json.dumps(said))
    bundle = ch.load(tmp_path / "new")
    assert bundle.spec.tower.positions == ch.nn.Rope(theta=500.0, stretch=ch.nn.LinearStretch(factor=2.0))
    ch.save(bundle, tmp_path / "again")
    again = json.loads((tmp_path / "again" / "config.json").read_text())
    assert again["rope_parameters"] == {"rope_theta": 500.0, "rope_type": "linear", "factor": 2.0}
    assert again["dtype"] == "float32" and not {"rope_theta", "rope_scaling", "torch_dtype"} & set(again)
    assert ch.load(tmp_path / "again").spec == bundle.spec


def test_unknown_keys_of_a_config_are_kept_and_steer_nothing(folder: Path) -> None:
    change_config(folder, auto_map={"AutoModel": "evil.Model"}, somebody="else")
    bundle = ch.load(folder)
    ch.save(bundle, folder.parent / "again")
    again = json.loads((folder.parent / "again" / "config.json").read_text())
    assert again["somebody"] == "else" and again["auto_map"] == {"AutoModel": "evil.Model"}


def test_a_large_folder_is_mapped_to_look_at_and_copied_once_to_compute_with(tmp_path: Path) -> None:
    """200 MB of weights: looking adds a small part of that to the process, loading the weights once."""
    sizes = {"n_embd": 1024, "n_layer": 4, "n_head": 8, "n_positions": 64, "vocab_size": 500}
    ch.save(ch.build("gpt2", **sizes), tmp_path / "large")
    stored = (tmp_path / "large" / "model.safetensors").stat().st_size
    assert stored > 190e6
    code = (
        "import sys, clearhead as ch\n"
        "from clearhead.bundle.loading import open_mapped\n"
        "def resident(): return int(open('/proc/self/statm').read().split()[1]) * 4096\n"
        "ch.load(sys.argv[1])\n"  # imports and caches first
        "before = resident()\n"
        "seen = open_mapped(sys.argv[1])\n"
        "mapped = resident()\n"
        "model = ch.load(sys.argv[1])\n"
        "print(mapped - before, resident() - mapped)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "large")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    looking, loading = map(int, done.stdout.split())
    assert looking < 0.2 * stored
    assert 0.8 * stored < loading < 1.3 * stored
