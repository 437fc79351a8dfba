"""A tokenizer: text in, ids out, and back. A thin wrapper over the `tokenizers` library."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from tokenizers import AddedToken
from tokenizers import Tokenizer as Engine

from ..errors import ClearheadError, InputError, LoadError, reason
from ..readfile import read_file
from . import legacy
from .batch import BatchEncoding, BatchSettings, BatchStyle, longest_first
from .chat import Message, Tools, render_chats
from .engine import add_missing, clean_up_spaces, keep_spaces, reraise_if_not_of_library
from .inputs import IdsLike, as_texts, check_texts, id_list
from .limits import check_limits
from .pieces import Encoding
from .settings import ROLES, Files, Settings

FILES = (
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    *legacy.SENTENCEPIECE,
    "target.spm",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
)
EMPTY_TOKENIZER = '{"version": "1.0", "model": {"type": "WordLevel", "vocab": {}, "unk_token": ""}}'


class Special(NamedTuple):
    """A special token."""

    id: int
    text: str


class Tokenizer:
    """Text <-> ids, as the files of a checkpoint define. `files` are those files, byte for byte.

    Files with a vocabulary that cannot be read here (a lone SentencePiece model) still make a tokenizer: the
    model works on ids, and only using text raises an error that names what is missing.
    """

    pad: Special | None = None
    bos: Special | None = None
    eos: Special | None = None
    unk: Special | None = None
    mask: Special | None = None
    cls: Special | None = None
    sep: Special | None = None

    def __init__(self, files: Files, where: str = "the tokenizer", *, unsupported: str | None = None) -> None:
        self.files = dict(files)
        self._unsupported = unsupported
        if (
            unsupported is None
            and "tokenizer.json" not in files
            and (why := legacy.unsupported_reason(files))
        ):
            self._unsupported = (
                f"{where} has no tokenizer.json, and {why}, which is not read here; convert it with "
                f"transformers: AutoTokenizer.from_pretrained(folder).save_pretrained(folder)"
            )
        self._engine = Engine.from_str(EMPTY_TOKENIZER)
        self.specials: frozenset[int] = frozenset()
        self._bytes: frozenset[int] = frozenset()
        reading = "tokenizer_config.json"
        try:
            settings = Settings(files)
            reading = next((name for name in FILES if name in files), reading)
            if self._unsupported is None:
                self._load(files, settings)
        except ClearheadError as error:
            raise LoadError(f"{where}: {error}") from None
        except BaseException as error:  # the library raises nothing narrower
            reraise_if_not_of_library(error)
            raise LoadError(f"{where}: {reading} is broken: {reason(error)}") from None
        self.batch_style = BatchStyle.of(settings, self._engine, cls_token=self.cls is not None)
        self.chat_template: str | None = settings.chat_template
        self.model_max_length: int | None = settings.model_max_length
        self.cleans_up_spaces = settings.cleans_up_spaces and type(self._engine.model).__name__ != "BPE"

    @classmethod
    def read(cls, folder: str | Path) -> Tokenizer | None:
        """The tokenizer of a checkpoint folder; None if there is none."""
        folder = Path(folder)
        paths = [folder / name for name in FILES] + sorted(folder.glob("additional_chat_templates/*.jinja"))
        files = {path.relative_to(folder).as_posix(): read_file(path) for path in paths if path.exists()}
        whole = {"tokenizer.json", "vocab.txt", *legacy.SENTENCEPIECE} & files.keys()
        return cls(files, str(folder)) if whole or {"vocab.json", "merges.txt"} <= files.keys() else None

    @property
    def vocab(self) -> int:
        """How many ids there are, added tokens included."""
        return self._engine.get_vocab_size(with_added_tokens=True)

    @cached_property
    def fingerprint(self) -> str:
        """Equal where two tokenizers have the same words under the same ids, so that ids of one mean the same
        to the other."""
        words = sorted((i, word) for word, i in self._engine.get_vocab(with_added_tokens=True).items())
        return hashlib.sha256(repr(words).encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def encode(
        self, text: str, pair: str | None = None, *, specials: bool = True, max_length: int | None = None
    ) -> Encoding:
        """One text, or two that belong together, as ids; with the special tokens its model expects.

        `max_length` cuts the end off a longer text, and of two texts off the longer one.
        """
        return self.encode_batch(
            [text], None if pair is None else [pair], specials=specials, max_length=max_length
        )[0]

    def encode_batch(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None = None,
        *,
        specials: bool = True,
        max_length: int | None = None,
    ) -> list[Encoding]:
        """Many at once, on all cores. Nothing is padded; only what is longer than `max_length` is cut."""
        self._check_usable()
        if isinstance(texts, str):
            raise InputError("encode_batch takes a list of texts; for one text there is encode")
        if pairs is not None and len(texts) != len(pairs):
            raise InputError(f"{len(texts)} texts and {len(pairs)} pairs; expected as many of each")
        rows: list[tuple[str, ...]] = list(zip(texts) if pairs is None else zip(texts, pairs, strict=True))
        for row in rows:
            check_texts(row)
        with self._library_errors():
            if len(rows) == 1:  # without threads, which the library forbids a forked process
                text, pair = (*rows[0], None)[:2]
                raws = [self._engine.encode(text, pair, add_special_tokens=specials)]
            else:
                given = [row[0] for row in rows] if pairs is None else rows
                raws = self._engine.encode_batch(given, add_special_tokens=specials)
            encodings = [Encoding(raw, row, self._is_special) for raw, row in zip(raws, rows, strict=True)]
            if max_length is not None:
                encodings = [self._truncated(each, max_length, specials=specials) for each in encodings]
        return encodings

    def encode_windows(self, text: str, pair: str, *, max_length: int, stride: int) -> list[Encoding]:
        """A text beside each part of a long one; neighbouring parts have `stride` tokens in common."""
        self._check_usable()
        check_texts((text, pair))
        with self._library_errors():
            first, second = (self._engine.encode(each, add_special_tokens=False) for each in (text, pair))
            room = max_length - len(first) - self._engine.num_special_tokens_to_add(is_pair=True)
            if room < 1:
                raise InputError(
                    f"the first text is {len(first)} tokens; {max_length} leave no room for more"
                )
            second.truncate(room, stride=min(stride, room // 2))
            parts = [self._engine.post_process(first, part) for part in (second, *second.overflowing)]
        return [Encoding(part, (text, pair), self._is_special) for part in parts]

    def __call__(
        self,
        texts: str | Sequence[str],
        pair: str | Sequence[str] | None = None,
        *,
        text_pair: str | Sequence[str] | None = None,
        padding: bool | str = False,
        truncation: bool | str = False,
        max_length: int | None = None,
        return_tensors: str | None = None,
        add_special_tokens: bool = True,
    ) -> BatchEncoding:
        """The inputs of a model by name, as the tokenizers of transformers give them: `model(**batch)`.

        input_ids, attention_mask and, if the model has segment types, token_type_ids. `padding` is True (to
        the longest text) or "max_length"; `truncation=True` cuts at `max_length`, or at the limit of the
        checkpoint; `return_tensors` is "pt" or "np".
        """
        pair = text_pair if pair is None else pair  # the name that transformers has for it
        single = isinstance(texts, str)
        if single != isinstance(pair, str) and pair is not None:
            raise InputError("texts and pair must both be one text, or both a list of texts")
        settings = BatchSettings.read(
            self.batch_style,
            padding=padding,
            truncation=truncation,
            max_length=max_length,
            tensors=return_tensors,
            pad=self.pad and self.pad.id,
        )
        encodings = self.encode_batch(
            as_texts(texts),
            None if pair is None else as_texts(pair),
            specials=add_special_tokens,
            max_length=settings.truncate_to,
        )
        return settings.batch(
            [each.ids for each in encodings], [each.types for each in encodings], single=single
        )

    def decode(self, ids: IdsLike, *, specials: bool = False, skip_special_tokens: bool | None = None) -> str:
        """Ids as text: an `Encoding`, a list, a tensor or an array; special tokens are left out by default.

        `skip_special_tokens` is the name transformers has for the opposite of `specials`.
        """
        self._check_usable()
        numbers = id_list(ids)
        for i in numbers:
            if not 0 <= i < 2**32:
                raise InputError(f"{i} is not a token id; this tokenizer has 0 to {self.vocab - 1}")
        skip = not specials if skip_special_tokens is None else skip_special_tokens
        with self._library_errors("decode these tokens"):
            text = self._engine.decode(numbers, skip_special_tokens=skip)
        return clean_up_spaces(text) if self.cleans_up_spaces else text

    def batch_decode(
        self, rows: Iterable[IdsLike], *, specials: bool = False, skip_special_tokens: bool | None = None
    ) -> list[str]:
        """The text of every row: a list of `Encoding`s or lists, or a tensor or array of two dimensions."""
        return [self.decode(row, specials=specials, skip_special_tokens=skip_special_tokens) for row in rows]

    def chat(self, messages: Sequence[Message], *, reply: bool = True, tools: Tools | None = None) -> str:
        """Messages as the checkpoint's template writes them; with `reply`, up to where the answer begins.

        `tools` are the functions that the model may call. The template writes special tokens itself: encode
        the text with `specials=False`.
        """
        return self.chats([(messages, reply)], [tools])[0]

    def chats(
        self,
        chats: Sequence[tuple[Sequence[Message], bool]],
        tools: Sequence[Tools | None] | None = None,
    ) -> list[str]:
        """Many at once, each with whether a reply is to follow; `tools` are those of each chat."""
        if self.chat_template is None:
            raise InputError(
                "this checkpoint has no chat template; it is not a chat model: generate from text"
            )
        roles = {f"{role}_token": getattr(self, role) for role in ROLES}
        # Templates ask whether tools and documents are None: they are always there, as in transformers.
        named = {name: special.text for name, special in roles.items() if special is not None}
        shared = {**named, "documents": None}
        inputs = [
            (messages, {**shared, "add_generation_prompt": reply, "tools": each})
            for (messages, reply), each in zip(chats, tools or [None] * len(chats), strict=True)
        ]
        return render_chats(self.chat_template, inputs)

    def set_chat_template(self, template: str) -> None:
        """Use this template, and save it with the files."""
        self.chat_template = template
        self.files["chat_template.jinja"] = template.encode()

    def copy(self) -> Tokenizer:
        """The same tokenizer; what is set on the copy (template, padding) leaves this one as it is."""
        twin = copy(self)
        twin.files = dict(self.files)
        return twin

    def set_pad(self, token: int) -> None:
        """Pad with this token, and say so in the files."""
        text = self._engine.id_to_token(token)
        if text is None:
            raise InputError(f"{token} is not a token id; this tokenizer has 0 to {self.vocab - 1}")
        self.pad = Special(token, text)
        config = json.loads(self.files.get("tokenizer_config.json", b"{}"))
        named = json.dumps({**config, "pad_token": text}, ensure_ascii=False, indent=2)
        self.files["tokenizer_config.json"] = (named + "\n").encode()

    def id_of(self, token: str) -> int | None:
        """The id of a token as the vocabulary spells it; None if it has none."""
        return self._engine.token_to_id(token)

    def text_of(self, token: int) -> str:
        """A token as the vocabulary spells it; empty if there is no such id."""
        return self._engine.id_to_token(token) or ""

    def is_byte(self, token: int) -> bool:
        """Whether an id is one byte of a character the vocabulary lacks (`<0xE4>`, SentencePiece)."""
        return token in self._bytes

    def _load(self, files: Files, settings: Settings) -> None:
        names = {role: token.content for role, token in settings.named.items()}
        if "tokenizer.json" in files:
            self._engine = Engine.from_str(files["tokenizer.json"].decode("utf-8"))
        else:
            self._engine, names = legacy.build_engine(files, settings)
        check_limits(self._engine)
        # A file may contain padding settings from when it was saved: 13 tokens came back as 128.
        self._engine.no_padding()
        self._engine.no_truncation()
        conventional = [AddedToken(name, special=True, normalized=False) for name in names.values()]
        add_missing(self._engine, [*settings.added, *settings.named.values(), *conventional, *settings.extra])
        keep_spaces(self._engine)
        added = self._engine.get_added_tokens_decoder().items()
        ids = {token.content: i for i, token in added if token.special}
        self.specials = frozenset(ids.values())
        if self._engine.decoder is not None and b"ByteFallback" in self._engine.decoder.__getstate__():
            numbers = (self._engine.token_to_id(f"<0x{byte:02X}>") for byte in range(256))
            self._bytes = frozenset(number for number in numbers if number is not None)
        for role, name in names.items():
            setattr(self, role, Special(ids[name], name))

    def _truncated(self, whole: Encoding, max_length: int, *, specials: bool) -> Encoding:
        """The encoding cut as transformers does it with "longest_first"; special tokens stay."""
        if len(whole) <= max_length:
            return whole
        # The library can cut while encoding, but only as a setting that every thread would see.
        parts = [self._engine.encode(text, add_special_tokens=False) for text in whole.texts]
        added = self._engine.num_special_tokens_to_add(is_pair=len(parts) == 2) if specials else 0
        for part, length in zip(parts, longest_first([*map(len, parts)], max_length - added), strict=True):
            part.truncate(length, direction=self.batch_style.truncation_side)
        first, second = parts if len(parts) == 2 else (parts[0], None)
        raw = self._engine.post_process(first, second, add_special_tokens=specials)
        return Encoding(raw, whole.texts, self._is_special, cut=len(whole) - len(raw))

    @contextmanager
    def _library_errors(self, what: str = "encode the text") -> Iterator[None]:
        """The file opened and still does not work: its vocabulary lacks the `unk` that its own settings name,
        or its regular expression never finishes."""
        try:
            yield
        except ClearheadError:
            raise
        except BaseException as error:
            reraise_if_not_of_library(error)
            raise LoadError(f"this tokenizer cannot {what}: {reason(error)}") from None

    def _check_usable(self) -> None:
        if self._unsupported is not None:
            raise LoadError(self._unsupported)

    def _is_special(self, token: int, text: str) -> bool:
        """A word the vocabulary does not know is still a word, although its id is that of `unk`."""
        if self.unk is not None and token == self.unk.id and text != self.unk.text:
            return False
        return token in self.specials
