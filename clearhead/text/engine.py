"""The library's tokenizer: what must be changed in it after reading, and what it gives back, in and out."""

from __future__ import annotations

import json
from collections.abc import Iterable

from tokenizers import AddedToken
from tokenizers import Tokenizer as Engine


def add_missing(engine: Engine, tokens: Iterable[AddedToken]) -> None:
    """Add what the vocabulary lacks and mark what it has. tokenizer.json has priority."""
    known = {token.content: token.special for token in engine.get_added_tokens_decoder().values()}
    missing = []
    for token in tokens:
        if token.content not in known or (token.special and not known[token.content]):
            missing.append(token)
            known[token.content] = token.special
    engine.add_tokens(missing)


def keep_spaces(engine: Engine) -> None:
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


def clean_up_spaces(text: str) -> str:
    """`Hello , world .` as `Hello, world.`: for vocabularies that do not keep spaces."""
    text = text.replace(" .", ".").replace(" ?", "?").replace(" !", "!").replace(" ,", ",")
    text = text.replace(" ' ", "'")
    for short in ("n't", "'m", "'s", "'ve", "'re"):
        text = text.replace(f" {short}", short)
    return text


def reraise_if_not_of_library(error: BaseException) -> None:
    """A panic of the library is not an `Exception`; neither is Ctrl-C, which must not be caught."""
    if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
        raise error
