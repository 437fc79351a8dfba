"""Folders of a few bytes that ask for gigabytes or hours: refused in a line, or answered all the same."""

import json
import resource
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from trained import trained, write

import clearhead as ch
from clearhead.errors import ClearheadError, LoadError

SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
MEGABYTES = 200


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("greedy") / "llama"
    ch.save(ch.build("llama", vocab_size=trained("bytes").get_vocab_size(), **SIZES), folder)
    return write(folder, "bytes")


def spoiled(base: Path, to: Path, file: str, change: dict[str, Any]) -> Path:
    to.mkdir()
    for path in base.iterdir():
        (to / path.name).write_bytes(path.read_bytes())
    (to / file).write_text(json.dumps(json.loads((to / file).read_text()) | change))
    return to


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


EDITS = {
    "Tower.positions": [
        "Learned(length=999999999)", "Learned(length=20000000)", "Learned(length=8, offset=20000000)",
        "Learned(length=999999999999)",
    ],
    "Tokens.types": ["20000000"],
    "Attention.kernel": [
        "Linformer(rank=64, length=20000000)", "Linformer(rank=20000000)", "Performer(features=20000000)",
        "LSH(rounds=20000000)", "LSH(buckets=(20000000,))", "LSH(multiple=20000000)",
        "Summary(block=20000000)", "Nystrom(iterations=20000000)", "Chunks(chunk=20000000)",
        "BigBird(block=20000000)", "BigBird(random=20000000)",
    ],
}  # fmt: skip


@pytest.mark.parametrize(("field", "value"), [(f, v) for f, values in EDITS.items() for v in values])
def test_an_edit_that_asks_for_gigabytes_is_refused(
    base: Path, tmp_path: Path, field: str, value: str
) -> None:
    folder = spoiled(base, tmp_path / "model", "config.json", {"clearhead": {"edit": {field: value}}})
    before = peak()
    with pytest.raises(ClearheadError):
        ch.load(folder)
    with pytest.raises(ClearheadError):
        ch.load(base, edit={field: value})
    assert peak() - before < MEGABYTES


@pytest.mark.parametrize("words", ["window=20000000", "window=4, dilation=20000000"])
@torch.no_grad()
def test_a_window_wider_than_the_text_costs_no_more_than_the_text(base: Path, words: str) -> None:
    before = peak()
    model = ch.load(base, edit={"Attention.kernel": f"Longformer({words})"}).model
    fits = ch.load(base, edit={"Attention.kernel": f"Longformer({words.replace('20000000', '9')})"}).model
    ids = torch.tensor([[3, 4, 5, 6, 7, 8, 9]])
    torch.testing.assert_close(model(ids), fits(ids), atol=1e-5, rtol=1e-5)
    assert peak() - before < MEGABYTES


def test_a_file_of_very_many_tensors_is_refused_by_their_number(base: Path, tmp_path: Path) -> None:
    folder = spoiled(base, tmp_path / "model", "config.json", {})
    state = load_file(folder / "model.safetensors")
    save_file(state | {f"x{i}": torch.zeros(1) for i in range(200_001)}, folder / "model.safetensors")
    with pytest.raises(LoadError, match=r"tensors; no model has more than 200,000"):
        ch.load(folder)


SEQUENCE = {"Sequence": {"id": "A", "type_id": 0}}
GROWING = {"type": "Replace", "pattern": {"String": "o"}, "content": "oooooooooo"}
ENDLESS = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
TEMPLATE = {
    "type": "TemplateProcessing", "single": [SEQUENCE] * 10**5, "pair": [SEQUENCE], "special_tokens": {},
}  # fmt: skip
TOKENIZERS: dict[str, dict[str, Any]] = {
    "regular expression without end": {"pre_tokenizer": ENDLESS},
    "broken character map": {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA" * 1000}},
    "growing text": {"normalizer": {"type": "Sequence", "normalizers": [GROWING] * 9}},
    "long prefix": {"normalizer": {"type": "Prepend", "prepend": "x" * 10**6}},
    "template": {"post_processor": TEMPLATE},
    "growing answer": {"decoder": {"type": "Sequence", "decoders": [GROWING] * 9}},
}


@pytest.mark.parametrize("name", TOKENIZERS)
def test_a_tokenizer_that_panics_or_never_ends_is_one_line(base: Path, tmp_path: Path, name: str) -> None:
    folder = spoiled(base, tmp_path / "model", "tokenizer.json", TOKENIZERS[name])
    before = peak()
    with pytest.raises(ClearheadError) as caught:
        ch.load(folder).generate("good movie " + "a" * 40 + "b", max_new_tokens=2)
    assert str(caught.value).isprintable() and len(str(caught.value)) <= 300
    assert peak() - before < MEGABYTES


@pytest.mark.parametrize("given", [None, 5, [3]])
def test_what_is_no_name_and_no_text_is_one_line(base: Path, given: object) -> None:
    bundle = ch.load(base)
    for call in (ch.load, ch.build, bundle.generate, lambda x: ch.save(bundle, x)):
        with pytest.raises(ClearheadError):
            call(given)
