"""Folders from before tokenizer.json, against `transformers` on the same files."""

import json
from pathlib import Path

import pytest
from trained import SAMPLES, trained
from transformers import AutoTokenizer, BertTokenizer, GPT2Tokenizer, RobertaTokenizer

from clearhead.errors import LoadError
from clearhead.text import Tokenizer


def words(folder: Path, **config: object) -> Path:
    ids = trained("words").get_vocab()
    (folder / "vocab.txt").write_text("\n".join(sorted(ids, key=ids.get)) + "\n", encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def pairs(folder: Path, specials: list[str], **config: object) -> Path:
    state = json.loads(trained("bytes").to_str())["model"]
    drop = {"<s>", "</s>", "<pad>", "<unk>"}
    tokens = specials + [token for token in state["vocab"] if token not in drop]
    vocab = {token: i for i, token in enumerate(tokens)}
    (folder / "vocab.json").write_text(json.dumps(vocab), encoding="utf-8")
    merges = "\n".join(["#version: 0.2", *map(" ".join, state["merges"])]) + "\n"
    (folder / "merges.txt").write_text(merges, encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def same(ours: Tokenizer, theirs) -> None:
    for text in SAMPLES:
        want = theirs(text, "and 你好", return_token_type_ids=True)
        got = ours.encode(text, "and 你好")
        assert got.ids == want["input_ids"], text
        assert ours.encode(text).ids == theirs(text)["input_ids"]
        assert ours.decode(got.ids) == theirs.decode(got.ids, skip_special_tokens=True)
    for role in ("pad", "bos", "eos", "unk", "mask", "cls", "sep"):
        mine = getattr(ours, role)
        assert (mine and mine.text) == getattr(theirs, f"{role}_token"), role


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("chinese", [True, False])
def test_vocab_txt_is_wordpiece(tmp_path: Path, lower: bool, chinese: bool) -> None:
    config = {"do_lower_case": lower, "tokenize_chinese_chars": chinese, "strip_accents": None}
    folder = words(tmp_path, tokenizer_class="BertTokenizer", **config)
    theirs = AutoTokenizer.from_pretrained(folder)
    assert isinstance(theirs, BertTokenizer)
    same(Tokenizer.read(folder), theirs)


def test_vocab_txt_alone_is_lower_case(tmp_path: Path) -> None:
    (words(tmp_path) / "tokenizer_config.json").unlink()
    ours = Tokenizer.read(tmp_path)
    assert ours.encode("THE").ids == ours.encode("the").ids
    assert ours.pad.text == "[PAD]"
    assert ours.encode("the dog", "今天").types == [0, 0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize("bos", [True, False])
def test_vocab_json_is_gpt2(tmp_path: Path, bos: bool) -> None:
    folder = pairs(tmp_path, ["<|endoftext|>"], tokenizer_class="GPT2Tokenizer", add_bos_token=bos)
    theirs = AutoTokenizer.from_pretrained(folder)
    assert isinstance(theirs, GPT2Tokenizer)
    same(Tokenizer.read(folder), theirs)


@pytest.mark.parametrize("spaced", [True, False])
def test_vocab_json_with_s_is_roberta(tmp_path: Path, spaced: bool) -> None:
    specials = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    folder = pairs(tmp_path, specials, tokenizer_class="RobertaTokenizer", add_prefix_space=spaced)
    theirs = AutoTokenizer.from_pretrained(folder)
    assert isinstance(theirs, RobertaTokenizer)
    same(Tokenizer.read(folder), theirs)


def test_added_tokens_come_after_the_vocabulary(tmp_path: Path) -> None:
    folder = words(tmp_path, tokenizer_class="BertTokenizer", mask_token="<hole>")
    size = trained("words").get_vocab_size()
    (folder / "added_tokens.json").write_text(json.dumps({"<later>": size + 1, "<hole>": size}))
    ours = Tokenizer.read(folder)
    assert (ours.mask.id, ours.encode("<later>", specials=False).ids) == (size, [size + 1])
    assert size + 1 not in ours.specials


def test_a_lone_sentencepiece_file_fails_only_on_text(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").write_bytes(b"\x0a\x0e")
    (tmp_path / "tokenizer_config.json").write_text('{"model_max_length": 77, "bos_token": "<s>"}')
    tokenizer = Tokenizer.read(tmp_path)
    assert (tokenizer.model_max_length, tokenizer.vocab, tokenizer.bos) == (77, 0, None)
    assert tokenizer.files["tokenizer.model"] == b"\x0a\x0e"
    for use in (
        lambda: tokenizer.encode("x"),
        lambda: tokenizer.encode_batch(["x"]),
        lambda: tokenizer.decode([1]),
    ):
        with pytest.raises(LoadError, match=r"tokenizer\.model is a SentencePiece file.*save_pretrained"):
            use()


def test_words_that_end_in_a_mark_fail_only_on_text(tmp_path: Path) -> None:
    folder = pairs(tmp_path, ["<|endoftext|>", "cat</w>"])
    with pytest.raises(LoadError, match="end in </w>"):
        Tokenizer.read(folder).encode("x")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("vocab.txt", b"a\nb\n", r"the special token \[UNK\] is not in the vocabulary"),
        ("vocab.txt", b"\xff", "vocab.txt is broken"),
        ("vocab.json", b"{", "vocab.json is broken"),
        ("vocab.json", b'{"a": "b"}', "vocab.json is broken"),
        ("merges.txt", b"one\n", "is broken"),
        ("merges.txt", b"no such\n", "is broken"),
    ],
)
def test_a_broken_vocabulary_is_one_clear_line(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    folder = words(tmp_path) if name == "vocab.txt" else pairs(tmp_path, ["<|endoftext|>"])
    (folder / name).write_bytes(content)
    with pytest.raises(LoadError, match=message) as caught:
        Tokenizer.read(folder)
    assert "\n" not in str(caught.value)
