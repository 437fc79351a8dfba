"""Training a tokenizer: texts in, a tokenizer out, with files that any Hugging Face tool loads.

The first ids are PAD 0, BOS 1, EOS 2, UNK 3, MASK 4. The same texts give the same files, byte for byte.
"""

from __future__ import annotations

import json
import math
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

from tokenizers import AddedToken, Regex, decoders, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Engine

from ..errors import InputError, nearest
from . import learners
from .tokenizer import Tokenizer

TokenizerKind = Literal["bpe", "byte-bpe", "unigram", "wordpiece", "chars"]
SpecialTokenFrame = Literal["none", "eos", "bos-eos", "cls-sep"]

TOKENIZER_KINDS = ("bpe", "byte-bpe", "unigram", "wordpiece", "chars")
SPECIALS = {"pad": "<pad>", "bos": "<bos>", "eos": "<eos>", "unk": "<unk>", "mask": "<mask>"}
CLS_SEP = {"cls": "<cls>", "sep": "<sep>"}
FRAMES = {
    "none": ("$A", "$A $B:1"),
    "eos": ("$A <eos>", "$A <eos> $B:1 <eos>:1"),
    "bos-eos": ("<bos> $A <eos>", "<bos> $A <eos> $B:1 <eos>:1"),
    "cls-sep": ("<cls> $A <sep>", "<cls> $A <sep> $B:1 <sep>:1"),
}
PUNCTUATION = r"[\p{P}&&[^'’]]|[\r\n\t]"
CHARACTER_COVERAGE = (
    0.9995  # where letters take up much of the vocabulary: the rarest share UNK, as in SentencePiece
)


def train_tokenizer(
    texts: Iterable[str],
    kind: TokenizerKind = "bpe",
    *,
    vocab: int = 8000,
    frame: SpecialTokenFrame = "none",
    lower: bool = False,
    chinese: Literal["characters", "words"] = "characters",
    max_length: int | None = None,
) -> Tokenizer:
    """`vocab` counts all ids, special ones too; fewer result if the texts are too small.

    `frame` is the special tokens around an encoded text. With `chinese="characters"` every Chinese
    character is a token of its own, which suits small corpora; "words" allows them to be merged.
    """
    _check(texts, kind, frame)
    rows = [_normalize(text, lower=lower) for text in texts]
    names = SPECIALS | (CLS_SEP if frame == "cls-sep" else {})
    alphabet = _alphabet(rows, kind, vocab - len(names))
    engine = Engine(learners.EMPTY)
    engine.normalizer, engine.pre_tokenizer, engine.decoder = _pipeline(kind, chinese, lower=lower)
    engine.model = learners.learn_vocabulary(kind, engine, rows, [*names.values()], alphabet, vocab)
    engine.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in names.values()])
    engine.post_processor = processors.TemplateProcessing(
        single=FRAMES[frame][0],
        pair=FRAMES[frame][1],
        special_tokens=[(name, i) for i, name in enumerate(names.values())],
    )
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **{f"{role}_token": name for role, name in names.items()},
        "clean_up_tokenization_spaces": False,
    }
    if max_length is not None:
        config["model_max_length"] = max_length
    return Tokenizer({"tokenizer.json": _pretty(engine.to_str()), "tokenizer_config.json": _pretty(config)})


def _pipeline(
    kind: TokenizerKind, chinese: str, *, lower: bool
) -> tuple[normalizers.Normalizer, pre_tokenizers.PreTokenizer, decoders.Decoder]:
    """The normalizer, the pre-tokenizer and the decoder."""
    steps: list[normalizers.Normalizer] = [normalizers.NFC()]
    if lower:
        steps.append(normalizers.Lowercase())
    clean = normalizers.Sequence(steps)
    if kind == "byte-bpe":
        return clean, pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    if kind == "chars":
        return clean, pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated"), decoders.Fuse()
    split_chinese = chinese == "characters"
    if kind == "wordpiece":
        bert = normalizers.BertNormalizer(
            clean_text=True, handle_chinese_chars=split_chinese, strip_accents=False, lowercase=lower
        )
        return bert, pre_tokenizers.BertPreTokenizer(), decoders.WordPiece(prefix="##", cleanup=False)
    # The space before a word belongs to it, for the first word too; Chinese characters stand alone, as do
    # marks and line breaks.
    splits: list[pre_tokenizers.PreTokenizer] = [
        pre_tokenizers.Metaspace(prepend_scheme="always", split=False)
    ]
    if split_chinese:
        splits.append(pre_tokenizers.Split(Regex(r"^▁(?=\p{Han})"), "removed"))
        splits.append(pre_tokenizers.Split(Regex(r"\p{Han}"), "isolated"))
    splits.append(pre_tokenizers.Split(Regex(PUNCTUATION), "isolated"))
    splits.append(pre_tokenizers.Split("▁", "merged_with_next"))
    return clean, pre_tokenizers.Sequence(splits), decoders.Metaspace(prepend_scheme="always")


def _alphabet(rows: Sequence[str], kind: TokenizerKind, space: int) -> list[str]:
    """The letters that get an id, most frequent first; all bytes have one, so byte-level BPE needs none."""
    letters = Counter(letter for row in rows for letter in row)
    if kind == "wordpiece":
        letters = Counter({letter: count for letter, count in letters.items() if not letter.isspace()})
    elif kind != "chars":
        del letters[" "]  # the vocabulary spells it ▁
    if all(map(str.isspace, letters)):
        raise InputError("there is no text to train a tokenizer on; expected at least one word")
    if kind == "byte-bpe":
        alphabet, needs = [], 256
    else:
        ranked = sorted(letters, key=lambda letter: (-letters[letter], letter))
        alphabet = (
            ranked if kind == "unigram" or 2 * len(ranked) <= space else _most_frequent(ranked, letters)
        )
        alphabet = ranked[: max(space, 1)] if kind == "chars" else alphabet
        needs = len(alphabet) + (kind != "chars")
    if space < needs:
        what = "bytes" if kind == "byte-bpe" else "different characters"
        raise InputError(
            f"vocab leaves room for {max(space, 0)} tokens and the texts have {needs} {what}; raise vocab"
        )
    return alphabet


def _most_frequent(ranked: list[str], letters: Counter[str]) -> list[str]:
    """The most frequent letters, until nearly everything is covered."""
    target, covered = math.ceil(letters.total() * CHARACTER_COVERAGE), 0
    for i, letter in enumerate(ranked, 1):
        covered += letters[letter]
        if covered >= target:
            return ranked[:i]
    return ranked


def _normalize(text: str, *, lower: bool) -> str:
    if not isinstance(text, str):
        raise InputError(f"texts must be strings; given {type(text).__name__}")
    text = unicodedata.normalize("NFC", text)
    return text.lower() if lower else text


def _check(texts: Iterable[str], kind: str, frame: str) -> None:
    if isinstance(texts, str):
        raise InputError("train_tokenizer takes many texts; given one string")
    for word, known, what in ((kind, TOKENIZER_KINDS, "kind of tokenizer"), (frame, tuple(FRAMES), "frame")):
        if word not in known:
            raise InputError(f"there is no {what} {word!r}; {nearest(word, known)}")


def _pretty(value: object) -> bytes:
    plain = json.loads(value) if isinstance(value, str) else value
    return (json.dumps(plain, ensure_ascii=False, indent=2) + "\n").encode()
