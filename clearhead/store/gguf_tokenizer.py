"""The tokenizer inside a GGUF file: its metadata in, a tokenizer out, the same as from a folder."""

from __future__ import annotations

import json
from collections.abc import Callable

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Engine

from ..errors import LoadError
from ..text import Tokenizer, TokenWithId, bos_eos_template
from .gguf_header import Metadata

NORMAL, UNKNOWN, CONTROL, USER = 1, 2, 3, 4  # values of tokenizer.ggml.token_type

SPECIAL_TOKENS = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}

# How text is split before merges apply is code in llama.cpp, and a file only names it.
LLAMA3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _gpt2() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=False)


def _smollm() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _gpt2()])


def _llama3() -> pre_tokenizers.PreTokenizer:
    split = pre_tokenizers.Split(Regex(LLAMA3_SPLIT), "isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([split, byte_level])


PRE_TOKENIZERS: dict[str, Callable[[], pre_tokenizers.PreTokenizer]] = {
    "gpt-2": _gpt2,
    "smollm": _smollm,
    "llama-bpe": _llama3,
    "llama3": _llama3,
    "llama-v3": _llama3,
}


def read_tokenizer(metadata: Metadata, where: str) -> Tokenizer | None:
    """None if the file has no vocabulary. An unsupported kind raises only when text is encoded."""
    model = metadata.string("tokenizer.ggml.model", "none")
    if model in ("none", "no_vocab"):
        return None
    pre_tokenizer = metadata.string("tokenizer.ggml.pre", "unnamed")
    if model not in ("gpt2", "llama"):
        reason = f"a tokenizer of kind {model!r}; known: gpt2, llama"
    elif model == "gpt2" and pre_tokenizer not in PRE_TOKENIZERS:
        reason = f"a tokenizer with the pre-tokenizer {pre_tokenizer!r}; known: {', '.join(PRE_TOKENIZERS)}"
    else:
        return Tokenizer(_Vocabulary(metadata, model, pre_tokenizer).files(), where)
    return Tokenizer({}, where, unsupported=f"{where} has {reason}; give the model ids instead of text")


class _Vocabulary:
    """The tokens of a file, and the tokenizer files they make, so that the model can be saved."""

    def __init__(self, metadata: Metadata, model: str, pre_tokenizer: str) -> None:
        self.metadata, self.model, self.pre_tokenizer = metadata, model, pre_tokenizer
        self.tokens = metadata.strings("tokenizer.ggml.tokens")
        self.ids = {token: i for i, token in enumerate(self.tokens)}
        self.kinds = [NORMAL] * len(self.tokens)
        if "tokenizer.ggml.token_type" in metadata:
            self.kinds = [
                int(kind) for kind in metadata.number_list("tokenizer.ggml.token_type", len(self.tokens))
            ]
        if len(self.ids) != len(self.tokens):
            raise LoadError("its vocabulary has a token twice")

    def files(self) -> dict[str, bytes]:
        try:
            engine = self._byte_level_bpe() if self.model == "gpt2" else self._sentencepiece_bpe()
        except Exception as error:  # the library raises nothing narrower
            raise LoadError(f"its tokenizer is broken: {' '.join(str(error).split())}") from None
        engine.add_tokens(
            [
                AddedToken(token, special=kind != USER, normalized=False)
                for token, kind in zip(self.tokens, self.kinds, strict=True)
                if kind in (UNKNOWN, CONTROL, USER)
            ]
        )
        # The defaults of llama.cpp.
        adds_bos = self.model == "llama" or PRE_TOKENIZERS.get(self.pre_tokenizer) is _llama3
        engine.post_processor = bos_eos_template(
            self._added_token("bos", default=adds_bos), self._added_token("eos", default=False)
        )
        files = {
            "tokenizer.json": engine.to_str(),
            "tokenizer_config.json": json.dumps(self._config(), indent=2),
        }
        if "tokenizer.chat_template" in self.metadata:
            files["chat_template.jinja"] = self.metadata.string("tokenizer.chat_template")
        return {name: text.encode("utf-8") for name, text in files.items()}

    def _byte_level_bpe(self) -> Engine:
        merges = [_pair(merge) for merge in self.metadata.strings("tokenizer.ggml.merges")]
        # LLaMA 3 looks a whole word up before it merges.
        whole_words = PRE_TOKENIZERS[self.pre_tokenizer] is _llama3
        engine = Engine(models.BPE(vocab=self.ids, merges=merges, ignore_merges=whole_words))
        engine.pre_tokenizer = PRE_TOKENIZERS[self.pre_tokenizer]()
        engine.decoder = decoders.ByteLevel()
        return engine

    def _sentencepiece_bpe(self) -> Engine:
        """SentencePiece BPE (LLaMA 1 and 2): spaces are ▁, and what has no token is spelled in bytes."""
        scores = self.metadata.number_list("tokenizer.ggml.scores", len(self.tokens))
        unknown = self._special("unk")
        engine = Engine(
            models.BPE(
                vocab=self.ids,
                merges=self._merges(scores),
                unk_token=unknown[0] if unknown else None,
                byte_fallback=True,
                fuse_unk=True,
            )
        )
        replace: list[normalizers.Normalizer] = [normalizers.Replace(" ", "▁")]
        restore = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
        if self.metadata.boolean("tokenizer.ggml.add_space_prefix", default=True):
            replace.insert(0, normalizers.Prepend("▁"))
            restore.append(decoders.Strip(" ", 1, 0))
        engine.normalizer = normalizers.Sequence(replace)
        engine.decoder = decoders.Sequence(restore)
        return engine

    def _merges(self, scores: list[float]) -> list[tuple[str, str]]:
        """SentencePiece keeps a score per token, not a list of merges: every way to join two tokens into a
        third is one, and the third's score decides when."""
        merges = []
        for token, kind, score in zip(self.tokens, self.kinds, scores, strict=True):
            if kind != NORMAL:
                continue
            for i in range(1, len(token)):
                left, right = self.ids.get(token[:i]), self.ids.get(token[i:])
                if left is not None and right is not None:
                    merges.append((-score, left, right))
        return [(self.tokens[left], self.tokens[right]) for _, left, right in sorted(merges)]

    def _special(self, role: str) -> TokenWithId | None:
        key = f"tokenizer.ggml.{SPECIAL_TOKENS[role]}_token_id"
        if key not in self.metadata:
            return None
        i = self.metadata.integer(key, least=0)
        if i >= len(self.tokens):
            raise LoadError(f"{key} is {i}; its vocabulary ends at {len(self.tokens) - 1}")
        return self.tokens[i], i

    def _added_token(self, role: str, *, default: bool) -> TokenWithId | None:
        """The token added at one end of every text, if any."""
        return (
            self._special(role)
            if self.metadata.boolean(f"tokenizer.ggml.add_{role}_token", default=default)
            else None
        )

    def _config(self) -> dict[str, object]:
        named = {f"{role}_token": special[0] for role in SPECIAL_TOKENS if (special := self._special(role))}
        config = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
        return {**config, **named, "model_max_length": self.metadata.integer("llama.context_length")}


def _pair(merge: str) -> tuple[str, str]:
    left, right = merge.split(" ")
    return left, right
