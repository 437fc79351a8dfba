"""Trained tokenizers: fixed special ids, the same bytes every time, and the same ids in `transformers`."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from clearhead.errors import InputError
from clearhead.text import Tokenizer, train_tokenizer

KINDS = ["bpe", "byte-bpe", "unigram", "wordpiece", "chars"]
ENGLISH = [
    "we",
    "find",
    "old",
    "apples",
    "in",
    "the",
    "park",
    "today,",
    "and",
    "she",
    "wants",
    "new",
    "books",
    "at",
    "school",
    "tomorrow",
    ".",
]
CHINESE = "今天我们在公园里找到旧的苹果，明天她在学校想要新的书。"
TEXTS = [
    *(" ".join(ENGLISH[i:] + ENGLISH[:i]) for i in range(15)),
    *(CHINESE[i:] + CHINESE[:i] for i in range(15)),
]


@pytest.mark.parametrize("kind", KINDS)
def test_special_ids_are_the_promised_ones(kind: str) -> None:
    tokenizer = train_tokenizer(TEXTS, kind, vocab=400)
    names = (tokenizer.pad, tokenizer.bos, tokenizer.eos, tokenizer.unk, tokenizer.mask)
    assert [special.id for special in names] == [0, 1, 2, 3, 4]
    assert (tokenizer.cls, tokenizer.sep) == (None, None)
    assert tokenizer.vocab <= 400
    assert len(tokenizer.encode("we find old apples")) < (25 if kind == "chars" else 16)


@pytest.mark.parametrize("kind", KINDS)
def test_text_comes_back(kind: str) -> None:
    tokenizer = train_tokenizer(TEXTS, kind, vocab=400, frame="bos-eos")
    for text in ("we find old apples, today .", "今天我们找到旧的苹果。", "we find 旧的苹果 today"):
        ids = tokenizer.encode(text).ids
        assert ids[0] == 1 and ids[-1] == 2 and 3 not in ids
        back = tokenizer.decode(ids)
        if kind == "wordpiece":  # forgets spaces, as BERT does
            text, back = text.replace(" ", ""), back.replace(" ", "")
        assert back == text


def test_chinese_is_characters_or_words() -> None:
    one = train_tokenizer(TEXTS * 3, "bpe", vocab=400)
    assert [p.text for p in one.encode("找到苹果").tokens] == list("找到苹果")
    many = train_tokenizer(TEXTS * 3, "bpe", vocab=400, chinese="words")
    assert len(many.encode("找到旧的苹果")) < 6


def test_unknown_letters_lower_case_and_frames() -> None:
    tokenizer = train_tokenizer(TEXTS, "wordpiece", vocab=300, frame="cls-sep", lower=True)
    assert (tokenizer.cls.id, tokenizer.sep.id) == (5, 6)
    encoding = tokenizer.encode("We", "TODAY")
    assert encoding.ids[0] == 5 and encoding.ids.count(6) == 2 and encoding.types[-1] == 1
    assert encoding.ids == tokenizer.encode("we", "today").ids
    assert 3 in tokenizer.encode("Ж").ids
    assert train_tokenizer(TEXTS, frame="eos", vocab=300).encode("we").ids[-1] == 2
    assert train_tokenizer(TEXTS, vocab=300, max_length=77).model_max_length == 77


def test_every_character_of_a_small_alphabet_has_its_id() -> None:
    text = "a " * 20_000 + "$\n"
    assert 3 not in train_tokenizer([text], "chars", vocab=50).encode("a$\na").ids
    assert 3 not in train_tokenizer([text], "bpe", vocab=50).encode("a$").ids


def test_the_same_texts_give_the_same_bytes_in_every_process() -> None:
    code = (
        "import hashlib, sys; sys.path.insert(0, sys.argv[1]); from clearhead.data import read_corpus\n"
        "from clearhead.text import train_tokenizer\n"
        "texts = [t for row in list(read_corpus('grammar-en-zh')['valid']) for t in row.values()]\n"
        "docs = [row['text'] for row in list(read_corpus('python-docs')['valid'])]\n"
        f"for kind in {KINDS!r}:\n"
        "    files = train_tokenizer(texts + docs, kind, vocab=1500).files\n"
        "    print(kind, *(hashlib.sha256(files[name]).hexdigest() for name in sorted(files)))"
    )
    root = str(Path(__file__).parents[2])
    run = [sys.executable, "-c", code, root]
    outputs = {subprocess.run(run, capture_output=True, check=True, text=True).stdout for _ in range(3)}
    assert len(outputs) == 1, outputs


@pytest.mark.parametrize("kind", KINDS)
def test_transformers_opens_the_files_with_the_same_ids(kind: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    frame = "cls-sep" if kind == "wordpiece" else "bos-eos"
    tokenizer = train_tokenizer(TEXTS, kind, vocab=400, frame=frame)
    assert set(tokenizer.files) == {"tokenizer.json", "tokenizer_config.json"}
    for name, data in tokenizer.files.items():
        (tmp_path / name).write_bytes(data)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in ("we find old apples, today .", CHINESE, "<mask> books ж\nend"):
        ids = tokenizer.encode(text).ids
        assert theirs(text)["input_ids"] == ids
        assert theirs.decode(ids, skip_special_tokens=True) == tokenizer.decode(ids)
    for role in ("pad", "bos", "eos", "unk", "mask", "cls", "sep"):
        ours = getattr(tokenizer, role)
        assert getattr(theirs, f"{role}_token_id", None) == (ours.id if ours else None)
    again = Tokenizer.read(tmp_path)
    assert again.files == tokenizer.files and again.encode(CHINESE).ids == tokenizer.encode(CHINESE).ids


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: train_tokenizer("one text"), "takes many texts; given one string"),
        (lambda: train_tokenizer([]), "there is no text to train"),
        (lambda: train_tokenizer(["  ", "\n"]), "there is no text to train"),
        (lambda: train_tokenizer(["a", 3]), "texts must be strings; given int"),
        (lambda: train_tokenizer(TEXTS, "bep"), "no kind of tokenizer 'bep'; did you mean 'bpe'"),
        (lambda: train_tokenizer(TEXTS, frame="cls"), "no frame 'cls'"),
        (
            lambda: train_tokenizer(TEXTS, vocab=20),
            r"room for 15 tokens and the texts have \d+ different characters",
        ),
        (
            lambda: train_tokenizer(TEXTS, "byte-bpe", vocab=200),
            "room for 195 tokens and the texts have 256 bytes",
        ),
        (lambda: train_tokenizer(TEXTS, "chars", vocab=5), "room for 0 tokens"),
    ],
)
def test_bad_input_is_one_line(call, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_the_config_is_plain_data() -> None:
    files = train_tokenizer(TEXTS, vocab=300).files
    config = json.loads(files["tokenizer_config.json"])
    assert config["pad_token"] == "<pad>" and "auto_map" not in config
    assert hashlib.sha256(files["tokenizer.json"]).hexdigest()
