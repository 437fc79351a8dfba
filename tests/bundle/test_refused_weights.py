"""Weights that would make another model in silence are refused: wrong tables, quantized numbers, no room."""

import json
from pathlib import Path

import pytest
import torch
from references import REFERENCES, tiny_sizes
from safetensors.torch import load_file, save_file

import clearhead as ch
from clearhead.errors import InputError, LoadError
from clearhead.families import FAMILIES
from clearhead.nn import Attention


@pytest.mark.parametrize("name", ["pegasus", "roformer"])
def test_a_table_that_is_computed_must_hold_what_is_computed(name: str, tmp_path: Path) -> None:
    model = REFERENCES[f"{name}/tokens/plain"].files(tmp_path)
    ch.load(tmp_path)
    model.to(torch.bfloat16).save_pretrained(tmp_path / "rounded")
    ch.load(tmp_path / "rounded")
    tensors = load_file(tmp_path / "model.safetensors")
    table = next(key for key in tensors if "embed_positions" in key)
    tensors[table][3, 1] += 1e-3
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(LoadError, match="does not hold sines and cosines: it was changed"):
        ch.load(tmp_path)


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn])
def test_quantized_numbers_are_refused(dtype: torch.dtype, tmp_path: Path) -> None:
    ch.save(ch.build("llama", **tiny_sizes(FAMILIES["llama"])), tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["lm_head.weight"] = tensors["lm_head.weight"].to(dtype)
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(LoadError, match=r"head.weight is (int8|float8_e4m3fn); expected float32"):
        ch.load(tmp_path)


def test_a_model_that_does_not_fit_is_one_line() -> None:
    with pytest.raises(InputError, match=r"a model of \S+ GB does not fit into the \S+ GB that are free"):
        ch.build("deepseek_v2", vocab_size=50, num_hidden_layers=60, n_routed_experts=160)


def test_another_kernel_drops_what_only_the_old_one_had(tmp_path: Path) -> None:
    """The sinks of gpt-oss belong to its softmax."""
    ch.save(ch.build("gpt_oss", **tiny_sizes(FAMILIES["gpt_oss"])), tmp_path)
    edited = ch.load(tmp_path, edit={"Attention.kernel": "Window(left=4)"})
    assert edited.model(torch.tensor([[5, 6, 7]])).shape == (1, 3, 99)
    assert all(type(a.kernel).__name__ == "Window" for a in edited.spec.nodes() if isinstance(a, Attention))
    assert any("sink" in name for name in edited.report.dropped)


def test_an_encoder_alone_is_read_from_a_file_with_a_decoder(tmp_path: Path) -> None:
    REFERENCES["t5/tokens/plain"].files(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"architectures": ["T5EncoderModel"]}))
    assert ch.load(tmp_path).model(torch.tensor([[5, 6, 7]])).shape == (1, 3, 32)


@pytest.mark.parametrize("name", ["deberta-v2/tokens/v3", "funnel/tokens/plain"])
def test_cost_is_counted_without_gradients_as_well(name: str, tmp_path: Path) -> None:
    REFERENCES[name].files(tmp_path)
    bundle = ch.load(tmp_path)
    wanted = bundle.cost(batch=1, length=16, training=True)
    with torch.inference_mode():
        assert bundle.cost(batch=1, length=16, training=True) == wanted
