"""Tokenizers from before `tokenizer.json`: a vocabulary file in, a tokenizer of the library out.

What a file does not specify follows the convention of its family: `vocab.txt` is BERT's WordPiece,
`vocab.json` with `merges.txt` is the byte-level BPE of GPT-2, or of RoBERTa and BART where the vocabulary has
`<s>`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from tokenizers import Tokenizer as Engine
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from ..errors import LoadError
from .settings import Files, Settings

SpecialNames = dict[str, str]  # pad, bos, eos, unk, mask, cls, sep -> how the vocabulary spells them
TokenWithId = tuple[str, int]  # a token and its id

BERT = {"unk": "[UNK]", "sep": "[SEP]", "pad": "[PAD]", "cls": "[CLS]", "mask": "[MASK]"}
GPT2 = {"unk": "<|endoftext|>", "bos": "<|endoftext|>", "eos": "<|endoftext|>"}
ROBERTA = {"bos": "<s>", "eos": "</s>", "sep": "</s>", "cls": "<s>", "unk": "<unk>", "pad": "<pad>"}
ROBERTA |= {"mask": "<mask>"}
SENTENCEPIECE = ("tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "source.spm")


def unsupported_reason(files: Files) -> str | None:
    """Why these files, which hold a vocabulary, cannot be read here; None if they can."""
    if "vocab.txt" not in files and "merges.txt" not in files:
        return next(f"{name} is a SentencePiece file" for name in SENTENCEPIECE if name in files)
    if b'</w>"' in files.get(
        "vocab.json", b""
    ):  # GPT-1 and CLIP split text in ways these files do not specify
        return "the words of vocab.json end in </w>"
    return None


def build_engine(files: Files, settings: Settings) -> tuple[Engine, SpecialNames]:
    """The tokenizer, and its special tokens by role."""
    named = {role: token.content for role, token in settings.named.items()}
    if "vocab.txt" in files:
        vocab, names = _lines(files["vocab.txt"]), BERT | named
        engine = _wordpiece(vocab, settings, names)
    else:
        vocab = json.loads(files["vocab.json"])
        engine = _byte_level_bpe(vocab, files["merges.txt"], settings)
        add_bos = settings.flag("add_bos_token")  # a setting that RoBERTa does not have
        if {"<s>", "</s>"} <= vocab.keys() and add_bos is None:
            names = ROBERTA | named
            sep, cls = _token_with_id(names["sep"], vocab), _token_with_id(names["cls"], vocab)
            engine.post_processor = processors.RobertaProcessing(sep, cls, trim_offsets=False)
        else:
            names = GPT2 | named
            engine.post_processor = bos_eos_template(
                _token_with_id(names["bos"], vocab) if add_bos else None, None
            )
    # The tokens that the files name, and the usual ones of the family that this vocabulary has.
    return engine, {role: name for role, name in names.items() if role in named or name in vocab}


def bos_eos_template(bos: TokenWithId | None, eos: TokenWithId | None) -> processors.TemplateProcessing:
    """The optional beginning and end tokens that decoder models put around a text and its pair."""
    before, after = ([end] if end else [] for end in (bos, eos))
    one, two = (
        [f"{name}:{i}" for name in (*dict(before), text, *dict(after))] for i, text in enumerate(("$A", "$B"))
    )
    return processors.TemplateProcessing(single=one, pair=one + two, special_tokens=before + after)


def _wordpiece(vocab: Mapping[str, int], settings: Settings, names: SpecialNames) -> Engine:
    _token_with_id(names["unk"], vocab)
    engine = Engine(models.WordPiece(dict(vocab), unk_token=names["unk"]))
    engine.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=settings.flag("tokenize_chinese_chars") is not False,
        strip_accents=settings.flag("strip_accents"),
        lowercase=settings.flag("do_lower_case") is not False,
    )
    engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    engine.decoder = decoders.WordPiece(prefix="##")
    cls, sep = _token_with_id(names["cls"], vocab), _token_with_id(names["sep"], vocab)
    engine.post_processor = processors.TemplateProcessing(
        single=[f"{cls[0]}:0", "$A:0", f"{sep[0]}:0"],
        pair=[f"{cls[0]}:0", "$A:0", f"{sep[0]}:0", "$B:1", f"{sep[0]}:1"],
        special_tokens=[cls, sep],
    )
    return engine


def _byte_level_bpe(vocab: dict[str, int], merges_txt: bytes, settings: Settings) -> Engine:
    lines = [line for line in _lines(merges_txt) if line and not line.startswith("#version")]
    engine = Engine(models.BPE(vocab=vocab, merges=list(map(_pair, lines))))
    spaced = settings.flag("add_prefix_space") is True
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=spaced)
    engine.decoder = decoders.ByteLevel()
    return engine


def _lines(raw: bytes) -> dict[str, int]:
    """One token per line, with its line number. Not `splitlines`: tokens may contain unusual line ends."""
    lines = raw.decode("utf-8").removesuffix("\n").split("\n")
    return {line.removesuffix("\r"): i for i, line in enumerate(lines)}


def _pair(line: str) -> tuple[str, str]:
    left, right = line.split(" ")
    return left, right


def _token_with_id(token: str, vocab: Mapping[str, int]) -> TokenWithId:
    if token not in vocab:
        raise LoadError(f"the special token {token} is not in the vocabulary")
    return token, vocab[token]
