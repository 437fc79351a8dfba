"""Where identical bits are promised: the memory a model came from, and what it did before, change nothing.

docs/exactness.md says what bits do depend on: the machine, the number of threads, the shape of the batch.
"""

import struct
from pathlib import Path

import pytest
import torch
from references import KNOWN, REFERENCES, TINY, Reference, tiny_sizes
from torch import Tensor
from zoo import EVERY, ids, run

import clearhead as ch
from clearhead import nn as cn
from clearhead.bundle import Bundle
from clearhead.engine import layout
from clearhead.families import Family
from clearhead.nn.model import Model

LENGTHS = (1, 3, 18)  # products of one row, of few and of many take different loops of the math library
families = pytest.mark.parametrize("family", KNOWN.values(), ids=KNOWN)
generative = pytest.mark.parametrize(
    "family", [f for f in KNOWN.values() if f.mode != "bidirectional"], ids=lambda f: f.name
)


def tiny(family: Family) -> Bundle:
    return ch.build(family.name, **tiny_sizes(family))


def answers(bundle: Bundle) -> list[Tensor]:
    with torch.no_grad():
        return [
            run(bundle.model, ids(rows, length, 1), ids(rows, length))
            for rows in (1, 3)
            for length in LENGTHS
        ]


def same(one: list[Tensor], two: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


def shift(file: Path, offset: int) -> None:
    """Rewrite a safetensors file with its tensors at `offset` modulo 64: spaces may follow the header."""
    data = file.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    spaces = (offset - (8 + size)) % 64
    file.unlink()  # it may be mapped
    file.write_bytes(struct.pack("<Q", size + spaces) + data[8 : 8 + size] + b" " * spaces + data[8 + size :])


@families
def test_what_is_built_is_what_is_loaded_wherever_the_file_puts_it(family: Family, tmp_path: Path) -> None:
    built = tiny(family)
    wanted = answers(built)
    ch.save(built, tmp_path)
    for offset in (0, 4, 8, 17, 36, 60):
        shift(tmp_path / "model.safetensors", offset)
        assert same(answers(ch.load(tmp_path)), wanted), offset


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
def test_no_offset_of_a_file_changes_a_bit(dtype: str, tmp_path: Path) -> None:
    ch.save(ch.build("llama", **{k: v for k, v in TINY.items() if k in KNOWN["llama"].defaults}), tmp_path)
    ch.save(ch.load(tmp_path, dtype=dtype), tmp_path)
    wanted = answers(ch.load(tmp_path))
    for offset in range(64):
        shift(tmp_path / "model.safetensors", offset)
        bundle = ch.load(tmp_path)
        assert same(answers(bundle), wanted), offset
        assert all(p.data_ptr() % 64 == 0 for p in bundle.model.parameters())


@pytest.mark.parametrize("reference", REFERENCES.values(), ids=REFERENCES)
def test_load_save_load_answers_with_the_same_bits(reference: Reference, tmp_path: Path) -> None:
    """Their folders, with fused, transposed and tied tensors of all kinds."""
    reference.files(tmp_path / "one")
    one = ch.load(tmp_path / "one")
    ch.save(one, tmp_path / "two")
    assert same(answers(one), answers(ch.load(tmp_path / "two")))


@generative
def test_generating_leaves_the_weights_and_their_answers_as_they_were(family: Family) -> None:
    """Decoding many rows once changed the layout of all matrices, and with it the last digit ever after."""
    bundle = tiny(family)
    before, places = answers(bundle), [p.data_ptr() for p in bundle.model.parameters()]
    prompt = ids(8, 4, 2).clamp(min=3)
    bundle.generate_ids(prompt, max_new_tokens=3, eos_token_id=2, decoder_start_token_id=0)
    bundle.generate_ids(prompt, max_new_tokens=3, num_beams=3, eos_token_id=2, decoder_start_token_id=0)
    assert same(answers(bundle), before)
    assert [p.data_ptr() for p in bundle.model.parameters()] == places


@pytest.mark.parametrize("spec", EVERY.values(), ids=EVERY)
def test_laying_out_changes_memory_and_no_number(spec: Model) -> None:
    """A second call copies nothing; training's layout is contiguous, in memory of its own."""
    model, other = spec.build(), spec.build()
    layout.for_inference(model)
    places = {name: p.data_ptr() for name, p in model.named_parameters()}
    layout.for_inference(model)
    assert places == {name: p.data_ptr() for name, p in model.named_parameters()}
    assert all(place % layout.ALIGNMENT == 0 for place in places.values())
    for name, p in other.named_parameters():
        assert torch.equal(model.get_parameter(name), p)
    linear = [m.weight for m in model.modules() if isinstance(m, torch.nn.Linear)]
    assert all(weight.t().is_contiguous() for weight in linear)
    held = [p.data for p in model.parameters()]  # so that no freed memory is given out again
    layout.for_training(model)
    assert len(held) and all(p.is_contiguous() for p in model.parameters())
    assert not set(places.values()) & {p.data_ptr() for p in model.parameters()}
    with torch.no_grad():
        assert torch.equal(*(run(m, ids(2, 5), ids(2, 5)) for m in (model, other)))


def test_half_precision_is_never_laid_out_by_inputs() -> None:
    """There torch's products of such a matrix are twenty times slower."""
    model = cn.SingleStack(tower=EVERY["encoder/Learned"].tower).build(dtype=torch.float16)
    layout.for_inference(model)
    assert all(p.is_contiguous() for p in model.parameters())
