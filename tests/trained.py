"""Tokenizers trained here, small and real: byte-level BPE, WordPiece and Unigram over English and Chinese."""

import json
from functools import cache
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

TEXTS = [
    "The quick brown fox jumps over the lazy dog.",
    "She sells sea shells by the sea shore, doesn't she?",
    "A tokenizer cuts text into pieces and gives every piece a number.",
    "Attention is all you need; the rest is bookkeeping.",
    "In 2017 eight people wrote a paper. It was about translation!",
    "今天天气很好,我们去公园散步。",
    "注意力就是你所需要的一切。",
    "我喜欢在晚上读书,特别是小说。",
    "机器学习模型把文字变成数字,再把数字变成文字。",
    "快速的棕色狐狸跳过懒惰的狗。",
]
SAMPLES = [
    *TEXTS,
    "",
    " ",
    "\n\n  two  spaces\t and tabs\r\n",
    "Unseen words: zygote, Äpfel, naïve café e\u0301",
    "龘龘 unseen 汉字 鱻",
    "👨‍👩‍👧 family, 🏳️‍🌈 flag, 👍🏽 thumb",
    "mixed 你好 and hello世界!",
    "ﬁ ㎏ Ⅷ ½ ①",
    "\u0000 control \u200b zero width",
]
SPECIAL = {
    "bytes": {"bos": "<s>", "eos": "</s>", "pad": "<pad>", "unk": "<unk>"},
    "words": {"cls": "[CLS]", "sep": "[SEP]", "pad": "[PAD]", "unk": "[UNK]", "mask": "[MASK]"},
    "unigram": {"eos": "</s>", "pad": "<pad>", "unk": "<unk>"},
}
KINDS = tuple(SPECIAL)


@cache
def trained(kind: str) -> Tokenizer:
    return {"bytes": _bytes, "words": _words, "unigram": _unigram}[kind](list(SPECIAL[kind].values()))


def write(folder: Path, kind: str, **config: object) -> Path:
    """A folder as the Hub has them: tokenizer.json and tokenizer_config.json."""
    folder.mkdir(exist_ok=True)
    trained(kind).save(str(folder / "tokenizer.json"))
    named = {f"{role}_token": token for role, token in SPECIAL[kind].items()}
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **named, **config}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def _bytes(specials: list[str]) -> Tokenizer:
    engine = Tokenizer(models.BPE())
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    engine.decoder = decoders.ByteLevel()
    engine.train_from_iterator(
        TEXTS,
        trainers.BpeTrainer(
            vocab_size=450,
            special_tokens=specials,
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        ),
    )
    # The trimming of offsets that RoBERTa's files ask for; pieces must keep their spaces all the same.
    template = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> $B:1 </s>:1",
        special_tokens=[(token, engine.token_to_id(token)) for token in ("<s>", "</s>")],
    )
    engine.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=True), template])
    return engine


def _words(specials: list[str]) -> Tokenizer:
    engine = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    engine.normalizer = normalizers.BertNormalizer(lowercase=True)
    engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    engine.decoder = decoders.WordPiece(prefix="##")
    engine.train_from_iterator(
        TEXTS, trainers.WordPieceTrainer(vocab_size=300, special_tokens=specials, show_progress=False)
    )
    engine.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(token, engine.token_to_id(token)) for token in ("[CLS]", "[SEP]")],
    )
    return engine


def _unigram(specials: list[str]) -> Tokenizer:
    engine = Tokenizer(models.Unigram())
    engine.normalizer = normalizers.NFKC()
    engine.pre_tokenizer = pre_tokenizers.Metaspace()
    engine.decoder = decoders.Metaspace()
    engine.train_from_iterator(
        TEXTS,
        trainers.UnigramTrainer(
            vocab_size=220, special_tokens=specials, unk_token="<unk>", show_progress=False
        ),
    )
    engine.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", engine.token_to_id("</s>"))]
    )
    return engine
