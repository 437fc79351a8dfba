"""The language tokens of translators between many languages: a language in, the id of its token out.

M2M-100 writes them `__fr__`, NLLB `fra_Latn`, mBART `fr_XX`. One stands in the source text, one is what the
translation begins with.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..errors import InputError, nearest
from .tokenizer import Tokenizer

LANGUAGE = re.compile(r"__(?P<m2m>[a-z]{2,3})__|(?P<code>[a-z]{2,3})_[A-Z][A-Za-z]{1,3}")


def language_tokens(tokenizer: Tokenizer) -> dict[str, int]:
    """The id of every language token, by its text."""
    texts = {tokenizer.text_of(token): token for token in sorted(tokenizer.specials)}
    return {text: token for text, token in texts.items() if LANGUAGE.fullmatch(text)}


def language_id(tokenizer: Tokenizer, language: str) -> int:
    """The token of a language: `fra_Latn`, or its code alone if that is one token's (`fr` for `fr_XX`)."""
    known = language_tokens(tokenizer)
    if not known:
        raise InputError(f"this tokenizer has no language tokens; leave out the language {language!r}")
    if language in known:
        return known[language]
    of_code = [token for text, token in known.items() if language in LANGUAGE.fullmatch(text).groups()]  # type: ignore[union-attr]
    if len(of_code) == 1:
        return of_code[0]
    raise InputError(
        f"no language of this model is called {language!r}; {nearest(language, known)}; "
        f"it has {len(known)}: {', '.join(sorted(known)[:6])} ..."
    )


def with_language(ids: Sequence[int], tokenizer: Tokenizer, token: int) -> list[int]:
    """The ids of a source text in another language than the one its tokenizer marks it with."""
    known = set(language_tokens(tokenizer).values())
    marked = [token if i in known else i for i in ids]
    return marked if token in marked else [token, *marked]
