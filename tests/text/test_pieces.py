"""Laws of pieces: nothing is lost, nothing is invented, nothing is half a character."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Engine
from tokenizers import decoders, models, normalizers
from trained import KINDS, SAMPLES, SPECIAL, trained

from clearhead.text import Piece, Tokenizer

FAMILY = "👨‍👩‍👧"


def fallback() -> Engine:
    """A SentencePiece-like BPE, as LLaMA has: what it does not know, it spells in bytes."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256)), "▁", "h", "i", "▁h", "▁hi"]
    bpe = models.BPE(
        vocab={token: i for i, token in enumerate(tokens)},
        merges=[("▁", "h"), ("▁h", "i")],
        unk_token="<unk>",
        byte_fallback=True,
        fuse_unk=True,
    )
    engine = Engine(bpe)
    engine.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    engine.decoder = decoders.Sequence(steps)
    return engine


def opened(engine: Engine) -> Tokenizer:
    return Tokenizer({"tokenizer.json": engine.to_str().encode()})


TOKENIZERS = {kind: opened(trained(kind)) for kind in KINDS} | {"fallback": opened(fallback())}
BYTES = TOKENIZERS["bytes"]
anything = st.text(st.characters(exclude_categories=["Cs"]), max_size=40) | st.lists(
    st.sampled_from([*"你好世界 aB. \n", FAMILY, "é", "e\u0301", "🏳️‍🌈", "  ", "hello"]), max_size=12
).map("".join)


def whole(pieces: list[Piece], side: int = 0) -> str:
    return "".join(p.text for p in pieces if p.side == side and p.part == 1)


@given(anything)
def test_byte_level_text_comes_back(text: str) -> None:
    encoding = BYTES.encode(text, specials=False)
    # A special token typed into the text is a special token; it comes back when asked for.
    assert BYTES.decode(encoding.ids, specials=True) == text


@given(anything, anything)
def test_byte_level_pieces_rebuild_the_input(text: str, pair: str) -> None:
    pieces = BYTES.encode(text, pair).tokens
    assert (whole(pieces, 0), whole(pieces, 1)) == (text, pair)


@given(anything)
def test_fallback_pieces_rebuild_the_input(text: str) -> None:
    encoding = TOKENIZERS["fallback"].encode(text)
    assert whole(encoding.tokens) == text
    # The sign for a space is a space ever after.
    assert TOKENIZERS["fallback"].decode(encoding.ids, specials=True) == text.replace("▁", " ")


@pytest.mark.parametrize("kind", TOKENIZERS)
@given(anything)
def test_pieces_are_stretches_of_the_input_in_order(kind: str, text: str) -> None:
    tokenizer = TOKENIZERS[kind]
    encoding = tokenizer.encode(text)
    assert [p.id for p in encoding.tokens] == encoding.ids
    position = 0
    for piece in encoding.tokens:
        if piece.side is None:
            assert piece.special and piece.text in SPECIAL[kind].values()
            continue
        assert piece.text == text[piece.start : piece.end]
        if piece.part == 1:
            assert piece.start >= position
            position = piece.end
        assert 1 <= piece.part <= piece.parts
        assert "\N{REPLACEMENT CHARACTER}" not in piece.text or "\N{REPLACEMENT CHARACTER}" in text


@pytest.mark.parametrize("kind", TOKENIZERS)
@given(anything)
def test_pieces_that_share_are_numbered(kind: str, text: str) -> None:
    pieces = TOKENIZERS[kind].encode(text).tokens
    while pieces:
        run, pieces = pieces[: pieces[0].parts], pieces[pieces[0].parts :]
        assert [p.part for p in run] == list(range(1, len(run) + 1))
        assert len({(p.start, p.end, p.parts, p.side) for p in run}) == 1


@pytest.mark.parametrize("text", SAMPLES)
def test_words_leave_out_only_what_cannot_be_seen(text: str) -> None:
    pieces = TOKENIZERS["words"].encode(text).tokens
    covered = {i for p in pieces for i in range(p.start, p.end) if p.side == 0}
    rest = "".join(c for i, c in enumerate(text) if i not in covered)
    # A combining accent is taken off its letter by the normaliser.
    assert all(not c.isprintable() or c.isspace() or c == "\u0301" for c in rest), repr(rest)


def test_a_split_character_is_shared_and_numbered() -> None:
    pieces = BYTES.encode("a鱻", specials=False).tokens
    assert [(p.text, p.start, p.end, p.part, p.parts) for p in pieces] == [
        ("a", 0, 1, 1, 1),
        ("鱻", 1, 2, 1, 3),
        ("鱻", 1, 2, 2, 3),
        ("鱻", 1, 2, 3, 3),
    ]


def test_a_token_across_two_characters_joins_them() -> None:
    # One merge takes the last byte of the first character and the first of the second.
    engine = Engine.from_str(trained("bytes").to_str())
    vocab = engine.get_vocab()
    spell = {c: trained("bytes").encode(c, add_special_tokens=False).tokens for c in "鱻龘"}
    left, right = spell["鱻"][-1], spell["龘"][0]
    engine.model = models.BPE(vocab={**vocab, left + right: len(vocab)}, merges=[(left, right)])
    pieces = opened(engine).encode("鱻龘!", specials=False).tokens
    assert len(pieces) == 6
    assert {(p.text, p.start, p.end, p.parts) for p in pieces[:5]} == {("鱻龘", 0, 2, 5)}
    assert (pieces[5].text, pieces[5].parts) == ("!", 1)


def test_an_emoji_of_many_characters_keeps_its_joiners() -> None:
    for kind in ("bytes", "fallback"):
        pieces = TOKENIZERS[kind].encode(f"{FAMILY}!", specials=False).tokens
        seen = whole([p for p in pieces if p.start < p.end or p.part == 1])
        assert seen == f"{FAMILY}!"
        assert all(p.text in FAMILY or p.text == "!" for p in pieces)


def test_a_space_the_tokenizer_put_there_has_no_width() -> None:
    pieces = TOKENIZERS["fallback"].encode("你 hi").tokens
    assert [(p.text, p.part, p.parts) for p in pieces] == [
        ("", 1, 1),
        ("你", 1, 3),
        ("你", 2, 3),
        ("你", 3, 3),
        (" hi", 1, 1),
    ]


def test_an_unknown_word_is_shown_as_it_was_typed() -> None:
    words = opened(trained("words"))
    piece = words.encode("龘", specials=False).tokens[0]
    assert piece.id == trained("words").token_to_id("[UNK]")
    assert piece.text == "龘"


def test_an_unknown_word_is_no_special_token() -> None:
    config = b'{"unk_token": "[UNK]"}'
    words = Tokenizer({"tokenizer.json": trained("words").to_str().encode(), "tokenizer_config.json": config})
    typed, unknown = (words.encode(text, specials=False).tokens[0] for text in ("[UNK]", "龘"))
    assert typed.id == unknown.id == words.unk.id
    assert typed.special and not unknown.special


def test_a_pair_has_two_sides() -> None:
    pieces = BYTES.encode("ab", "cd").tokens
    assert [(p.text, p.side) for p in pieces if p.special] == [("<s>", None), ("</s>", None), ("</s>", None)]
    assert {p.side for p in pieces if not p.special} == {0, 1}
    assert next(p.start for p in pieces if p.side == 1) == 0


def test_an_encoding_shows_itself() -> None:
    assert repr(BYTES.encode("a")) == "Encoding('<s>' 'a' '</s>')"
