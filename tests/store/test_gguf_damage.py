"""GGUF files that do not fit, are cut short or spoiled: one clear line each, and nothing allocated."""

import random
from pathlib import Path

import numpy as np
import pytest
from ggufs import Type, gguf, llama, write
from trained import trained

from clearhead.errors import LoadError
from clearhead.store.gguf import read_gguf
from clearhead.store.gguf_header import Header


def lists(writer: gguf.GGUFWriter, count: int) -> None:
    """The vocabulary with tokens at its end that the model has no vectors for."""
    ids = trained("bytes").get_vocab()
    writer.add_token_list([*sorted(ids, key=ids.get), *(f"[{i}]" for i in range(len(ids), count))])
    writer.add_token_types([1] * count)


REFUSED = {
    "it is a mixture of experts": lambda w: w.add_expert_count(8),
    "llama.rope.scaling.type is 'yarn'; known: none, linear": lambda w: w.add_rope_scaling_type(
        gguf.RopeScalingType.YARN
    ),
    "it is one of several parts": lambda w: w.add_uint16("split.count", 3),
    "llama.attention.key_length is 0": lambda w: w.add_key_length(0),
    "llama.attention.value_length is 8 and a head is 16 wide": lambda w: w.add_value_length(8),
    "blk.0.attn_k.weight is (32, 64); by its metadata it should be (64,": lambda w: w.add_head_count_kv(4),
    "head_count_kv is array(": lambda w: w.add_head_count_kv([2, 2]),
    "llama.block_count is 1000000000; the file has 21 tensors": lambda w: w.add_block_count(10**9),
    "it has, unexpectedly, blk.1.attn_k.weight, blk.1.attn_norm.weight, blk.1.attn_output.weight and others":
        lambda w: w.add_block_count(1),
    "it lacks blk.2.attn_k.weight": lambda w: w.add_block_count(3),
    "llama.rope.freq_base is nan, expected a number above zero": lambda w: w.add_rope_freq_base(float("nan")),
    "it has, unexpectedly, extra.weight": lambda w: w.add_tensor("extra.weight", np.zeros(4, np.float32)),
    "tokenizer.ggml.bos_token_id is 9999; its vocabulary ends at": lambda w: w.add_bos_token_id(9999),
    "its vocabulary has a token twice": lambda w: w.add_token_list(["a", "a"] * 225),
    "its tokenizer has 461 tokens, its embedding table has 450 rows": lambda w: lists(w, 461),
    "its tokenizer is broken: ": lambda w: w.add_token_merges(["no such"]),
    "tokenizer.ggml.token_type is array([1, 1]": lambda w: w.add_token_types([1, 1]),
}  # fmt: skip


@pytest.mark.parametrize("words", REFUSED)
@pytest.mark.filterwarnings("ignore")  # the writer logs that a key is given twice
def test_a_file_that_does_not_fit_is_one_clear_line(tmp_path: Path, words: str) -> None:
    path = write(tmp_path / "m.gguf", llama(), change=REFUSED[words])
    with pytest.raises(LoadError) as caught:
        read_gguf(path)
    assert words in str(caught.value), str(caught.value)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_an_unknown_architecture_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", llama(), architecture="mamba")
    with pytest.raises(
        LoadError, match="its architecture is 'mamba'; of GGUF files, those of llama are read"
    ):
        read_gguf(path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, int]:
    """A file without the padding at its end, and where its tensors begin."""
    path = write(tmp_path_factory.mktemp("gguf") / "m.gguf", llama(), Type.Q4_0)
    stored = Header(path, lambda kind: gguf.GGML_QUANT_SIZES[Type(kind)]).tensors.values()
    return path.read_bytes()[: max(s.start + s.size for s in stored)], min(s.start for s in stored)


def test_a_truncated_file_is_one_clear_line(whole: tuple[bytes, int], tmp_path: Path) -> None:
    content, data = whole
    ends = [0, 1, 3, 4, 7, 8, 23, 24, data, data + 1, len(content) // 2, len(content) - 1]
    for cut in (*ends, *range(30, data, 211)):
        path = tmp_path / "cut.gguf"
        path.write_bytes(content[:cut])
        with pytest.raises(LoadError) as caught:
            read_gguf(path)
        assert "\n" not in str(caught.value) and str(path) in str(caught.value), cut


def test_flipped_bytes_are_refused_or_harmless(whole: tuple[bytes, int], tmp_path: Path) -> None:
    content, data = whole
    chance, path, refused = random.Random(0), tmp_path / "flip.gguf", 0
    # All of what is said before the vocabulary, then a sample of the rest.
    places = [*range(4, 900, 3), *(chance.randrange(900, data) for _ in range(200))]
    for place in places:
        broken = bytearray(content)
        broken[place] ^= 1 << chance.randrange(8)
        path.write_bytes(broken)
        try:
            read_gguf(path)
        except LoadError as error:
            refused += 1
            assert "\n" not in str(error) and len(str(error)) < 600, place
    assert refused > len(places) // 3


@pytest.mark.parametrize("number", [2**63, 2**40, 2**32])
def test_invented_lengths_allocate_nothing(whole: tuple[bytes, int], tmp_path: Path, number: int) -> None:
    content, _ = whole
    path = tmp_path / "bomb.gguf"
    value = number.to_bytes(8, "little")
    bombs = [content[:8] + value + content[16:], content[:16] + value + content[24:]]
    for key in (b"tokenizer.ggml.token_type", b"tokenizer.ggml.tokens"):  # key, type, type of items, count
        at = content.index(key) + len(key) + 8
        bombs.append(content[:at] + value + content[at + 8 :])
    at = content.index(b"token_embd.weight") + len(b"token_embd.weight") + 4
    bombs.append(content[:at] + value + content[at + 8 :])
    for bomb in bombs:
        path.write_bytes(bomb)
        with pytest.raises(LoadError):
            read_gguf(path)


def test_tensors_that_share_bytes_are_refused(whole: tuple[bytes, int], tmp_path: Path) -> None:
    content, _ = whole
    name = b"blk.1.ffn_up.weight"  # name, dimensions, two of them, type, offset
    at = content.index(name) + len(name) + 4 + 16 + 4
    path = tmp_path / "shared.gguf"
    path.write_bytes(content[:at] + bytes(8) + content[at + 8 :])
    with pytest.raises(LoadError, match="overlaps another one"):
        read_gguf(path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "it is empty"),
        (b"PK\x03\x04" + bytes(100), "this is not a GGUF file"),
        (b"GGUF" + (99).to_bytes(4, "little") + bytes(100), "GGUF version 99; known: 2, 3"),
        (b"GGUF" + (3).to_bytes(4, "big") + bytes(100), "big-endian"),
        (None, "No such file"),
    ],
)
def test_what_is_no_gguf_file_is_one_clear_line(tmp_path: Path, content: bytes | None, words: str) -> None:
    path = tmp_path / "m.gguf"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(LoadError, match=words):
        read_gguf(path)
