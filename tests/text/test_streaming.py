"""Streaming: pieces that are whole characters and add up to the whole text, whatever the tokenizer."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Engine
from tokenizers import decoders, models, pre_tokenizers
from trained import KINDS, SAMPLES, write

from clearhead.text import Tokenizer
from clearhead.text.streaming import WINDOW, Cutter, Detokenizer

LETTERS = ["▁", "▁the", "▁cat", "s", "▁你", "好", ".", "▁'", "t"]


def fallback(folder: Path) -> Tokenizer:
    """LLaMA's kind: what the vocabulary lacks is spelled in bytes, `<0xE4><0xBD><0xA0>`."""
    names = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *LETTERS]
    engine = Engine(
        models.BPE(
            vocab={n: i for i, n in enumerate(names)}, merges=[], byte_fallback=True, unk_token="<unk>"
        )
    )
    engine.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    engine.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    engine.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>", "bos_token": "<s>"}))
    found = Tokenizer.read(folder)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tokenizer]:
    made = {"fallback": fallback(tmp_path_factory.mktemp("fallback"))}
    for kind in KINDS:
        for tidy in (False, True):
            folder = write(tmp_path_factory.mktemp("t") / "t", kind, clean_up_tokenization_spaces=tidy)
            found = Tokenizer.read(folder)
            assert found is not None
            made[f"{kind}{' tidied' if tidy else ''}"] = found
    return made


def stream(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    spoken = Detokenizer(tokenizer)
    return [*(spoken.feed(i) for i in ids), spoken.end()]


NAMES = ["fallback", *KINDS, *(f"{kind} tidied" for kind in KINDS)]


@pytest.mark.parametrize("name", NAMES)
@given(seed=st.randoms(use_true_random=False), length=st.integers(0, 3 * WINDOW))
def test_any_ids_add_up(name: str, tokenizers: dict[str, Tokenizer], seed: object, length: int) -> None:
    """Random ids: half characters, bytes that are none, special tokens, spaces; ids beyond the vocabulary,
    which a model may say whose table was rounded up."""
    tokenizer = tokenizers[name]
    ids = [seed.randrange(tokenizer.vocab + 3) for _ in range(length)]  # type: ignore[attr-defined]
    pieces = stream(tokenizer, ids)
    assert "".join(pieces) == tokenizer.decode(ids)


@pytest.mark.parametrize("between", [[], ["</s>"], ["<s>", "</s>"], ["▁"]], ids=str)
@pytest.mark.parametrize("first", [0x00, 0x41, 0xE4], ids=hex)
def test_bytes_are_judged_together_whatever_unseen_tokens_stand_between(
    first: int, between: list[str], tokenizers: dict[str, Tokenizer]
) -> None:
    """A special token is left out before bytes are joined: what is whole before it may be part of a bad run
    with what follows. A token with a text of its own ends the run."""
    tokenizer = tokenizers["fallback"]
    id_of = {name: i for i, name in enumerate(["<unk>", "<s>", "</s>"])} | {"▁": 259}
    ids = [first + 3, *(id_of[name] for name in between), 0x80 + 3, 260]
    assert "".join(stream(tokenizer, ids)) == tokenizer.decode(ids)


@pytest.mark.parametrize("name", NAMES)
def test_texts_add_up_and_no_half_character_shows(name: str, tokenizers: dict[str, Tokenizer]) -> None:
    tokenizer = tokenizers[name]
    for text in [*SAMPLES, " ".join(SAMPLES), "don ' t do that , she ' ll say . " * 20, "🏳️‍🌈你好👨‍👩‍👧" * 30]:
        ids = tokenizer.encode(text, specials=False).ids
        pieces = stream(tokenizer, list(ids))
        whole = tokenizer.decode(ids)
        assert "".join(pieces) == whole
        if "\ufffd" not in whole:
            assert not any("\ufffd" in piece for piece in pieces)
        for piece in pieces:
            piece.encode("utf-8")


def test_text_comes_while_it_is_said(tokenizers: dict[str, Tokenizer]) -> None:
    """Not all at the end: after each of many tokens nearly everything so far is out."""
    for name in ("bytes", "unigram", "words", "fallback"):
        tokenizer = tokenizers[name]
        ids = list(tokenizer.encode("the cats the cat 你好 the cats. " * 20, specials=False).ids)
        spoken, out = Detokenizer(tokenizer), ""
        for n, token in enumerate(ids, 1):
            out += spoken.feed(token)
            assert len(out) >= len(tokenizer.decode(ids[:n])) - 8


def test_only_a_window_is_decoded(tokenizers: dict[str, Tokenizer], monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = tokenizers["bytes"]
    sizes: list[int] = []
    decode = Tokenizer.decode
    monkeypatch.setattr(
        Tokenizer, "decode", lambda self, ids, **k: (sizes.append(len(ids)), decode(self, ids, **k))[1]
    )
    stream(tokenizer, list(tokenizer.encode(SAMPLES[0] * 50, specials=False).ids))
    assert len(sizes) > 500 and max(sizes) <= WINDOW


@pytest.mark.parametrize("size", [1, 2, 3, 50])
@given(
    text=st.text(alphabet="ab", max_size=30),
    stops=st.lists(st.text(alphabet="ab", min_size=1, max_size=5), min_size=1, max_size=3),
)
def test_a_cut_text_ends_before_its_stop_and_shows_no_part_of_it(
    size: int, text: str, stops: list[str]
) -> None:
    """In pieces of any size: a stop string that comes in two of them is found all the same."""
    cutter, out = Cutter(tuple(stops)), ""
    whole = [(text.find(stop) + len(stop), text.find(stop)) for stop in stops if stop in text]
    wanted = text[: min(whole)[1]] if whole else text
    for at in range(0, len(text), size):
        out += cutter.feed(text[at : at + size])
        assert wanted.startswith(out)
    assert out + cutter.end() == wanted and cutter.cut == any(stop in text for stop in stops)
