"""A tokenizer: text in, ids out, and back. A thin wrapper over the `tokenizers` library."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from tokenizers import AddedToken
from tokenizers import Tokenizer as Engine

from ..errors import ClearheadError, InputError, LoadError, reason
from ..readfile import read_file
from . import legacy
from .chat import Message, render_chats
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
            _reraise_if_not_of_library(error)
            raise LoadError(f"{where}: {reading} is broken: {reason(error)}") from None
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

    def encode(self, text: str, pair: str | None = None, *, specials: bool = True) -> Encoding:
        """One text, or two that belong together, as ids; with the special tokens its model expects."""
        self._check_usable()
        texts = (text,) if pair is None else (text, pair)
        _check(texts)
        try:
            raw = self._engine.encode(text, pair, add_special_tokens=specials)
        except BaseException as error:
            raise _library_error(error) from None
        return Encoding(raw, texts, self._is_special)

    def encode_batch(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None, *, specials: bool = True
    ) -> list[Encoding]:
        """Many at once, on all cores. Nothing is padded and nothing is cut."""
        self._check_usable()
        if isinstance(texts, str):
            raise InputError("encode_batch takes a list of texts; for one text there is encode")
        if pairs is not None and len(texts) != len(pairs):
            raise InputError(f"{len(texts)} texts and {len(pairs)} pairs; expected as many of each")
        rows = list(zip(texts) if pairs is None else zip(texts, pairs, strict=True))
        for row in rows:
            _check(row)
        try:
            raws = self._engine.encode_batch(texts if pairs is None else rows, add_special_tokens=specials)
        except BaseException as error:
            raise _library_error(error) from None
        return [Encoding(raw, row, self._is_special) for raw, row in zip(raws, rows, strict=True)]

    def decode(self, ids: Sequence[int], *, specials: bool = False) -> str:
        """Ids as text; special tokens are left out by default."""
        self._check_usable()
        for i in ids:
            if not 0 <= i < 2**32:
                raise InputError(f"{i} is not a token id; this tokenizer has 0 to {self.vocab - 1}")
        try:
            text = self._engine.decode(list(ids), skip_special_tokens=not specials)
        except BaseException as error:
            raise _library_error(error, "decode these tokens") from None
        return _clean_up_spaces(text) if self.cleans_up_spaces else text

    def chat(self, messages: Sequence[Message], *, reply: bool = True) -> str:
        """Messages as the checkpoint's template writes them; with `reply`, up to where the answer begins.

        The template writes special tokens itself: encode the text with `specials=False`.
        """
        return self.chats([(messages, reply)])[0]

    def chats(self, chats: Sequence[tuple[Sequence[Message], bool]]) -> list[str]:
        """Many at once, each with whether a reply is to follow."""
        if self.chat_template is None:
            raise InputError(
                "this checkpoint has no chat template; it is not a chat model: generate from text"
            )
        roles = {f"{role}_token": getattr(self, role) for role in ROLES}
        named = {name: special.text for name, special in roles.items() if special is not None}
        inputs = [(messages, {**named, "add_generation_prompt": reply}) for messages, reply in chats]
        return render_chats(self.chat_template, inputs)

    def set_chat_template(self, template: str) -> None:
        """Use this template, and save it with the files."""
        self.chat_template = template
        self.files["chat_template.jinja"] = template.encode()

    def id_of(self, token: str) -> int | None:
        """The id of a token as the vocabulary spells it; None if it has none."""
        return self._engine.token_to_id(token)

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
        _add(self._engine, [*settings.added, *settings.named.values(), *conventional, *settings.extra])
        _keep_spaces(self._engine)
        added = self._engine.get_added_tokens_decoder().items()
        ids = {token.content: i for i, token in added if token.special}
        self.specials = frozenset(ids.values())
        if self._engine.decoder is not None and b"ByteFallback" in self._engine.decoder.__getstate__():
            numbers = (self._engine.token_to_id(f"<0x{byte:02X}>") for byte in range(256))
            self._bytes = frozenset(number for number in numbers if number is not None)
        for role, name in names.items():
            setattr(self, role, Special(ids[name], name))

    def _check_usable(self) -> None:
        if self._unsupported is not None:
            raise LoadError(self._unsupported)

    def _is_special(self, token: int, text: str) -> bool:
        """A word the vocabulary does not know is still a word, although its id is that of `unk`."""
        if self.unk is not None and token == self.unk.id and text != self.unk.text:
            return False
        return token in self.specials


def _add(engine: Engine, tokens: Iterable[AddedToken]) -> None:
    """Add what the vocabulary lacks and mark what it has. tokenizer.json has priority."""
    known = {token.content: token.special for token in engine.get_added_tokens_decoder().values()}
    missing = []
    for token in tokens:
        if token.content not in known or (token.special and not known[token.content]):
            missing.append(token)
            known[token.content] = token.special
    engine.add_tokens(missing)


def _keep_spaces(engine: Engine) -> None:
    """The space before a word belongs to its token: disable what would remove it from the offsets."""
    post = engine.post_processor
    if post is None:
        return
    state = json.loads(post.__getstate__())
    for processor in state.get("processors", [state]):
        if "trim_offsets" in processor:
            processor["trim_offsets"] = False
    post.__setstate__(json.dumps(state).encode())
    engine.post_processor = post


def _clean_up_spaces(text: str) -> str:
    """`Hello , world .` as `Hello, world.`: for vocabularies that do not keep spaces."""
    text = text.replace(" .", ".").replace(" ?", "?").replace(" !", "!").replace(" ,", ",")
    text = text.replace(" ' ", "'")
    for short in ("n't", "'m", "'s", "'ve", "'re"):
        text = text.replace(f" {short}", short)
    return text


def _library_error(error: BaseException, what: str = "encode the text") -> LoadError:
    """The file opened and still does not work: its vocabulary lacks the `unk` that its own settings name, or
    its regular expression never finishes."""
    _reraise_if_not_of_library(error)
    return LoadError(f"this tokenizer cannot {what}: {reason(error)}")


def _reraise_if_not_of_library(error: BaseException) -> None:
    """A panic of the library is not an `Exception`; neither is Ctrl-C, which must not be caught."""
    if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
        raise error


def _check(texts: Iterable[str]) -> None:
    for text in texts:
        if not isinstance(text, str):
            raise InputError(f"text must be a string; given {type(text).__name__}")
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            half = ord(text[error.start])
            raise InputError(
                f"character {error.start} of the text is U+{half:04X}, half of a pair; it was decoded wrongly"
            ) from None
