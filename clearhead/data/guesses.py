"""Guesses: column names and a sample of rows in, possible meanings out, the likeliest first."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from .names import ROLES, is_language, plain
from .source import Row

Guess = tuple[str, dict[str, str], str]  # kind, role -> column, why
WORD = re.compile(r"[\w+-]{1,30}")


def guesses(columns: Sequence[str], rows: Sequence[Row], note: str) -> Iterator[Guess]:
    """From what can hardly be mistaken to what is merely possible."""
    yield from _by_structure(columns, rows)
    yield from _by_own_names(columns)
    texts = [c for c in columns if is_prose([row.get(c) for row in rows])]
    if "no header" in note:
        yield from _by_place(columns, texts, rows)
        return
    yield from _languages(columns, texts, rows)
    if note == "parallel files":
        yield "pair", {"src": columns[0], "tgt": columns[1]}, "two files side by side"
    for kind, roles in (("prompt", ("prompt", "completion")), ("pair", ("src", "tgt"))):
        found = {role: _named(role, columns) for role in roles}
        named = {role: column for role, column in found.items() if column}
        if len(set(named.values())) == 2 and set(named.values()) <= set(texts):
            yield kind, named, f"the columns are called {' and '.join(named.values())}"
    yield from _labels(columns, texts, rows)
    text = _named("text", columns)
    if text or len(columns) == 1:
        yield "text", {"text": text or columns[0]}, "there is one column of text"


def _by_structure(columns: Sequence[str], rows: Sequence[Row]) -> Iterator[Guess]:
    """Lists of messages say what they are, whatever their column is called."""
    for column in columns:
        first = next((row[column] for row in rows if row.get(column)), None)
        turn = first[0] if isinstance(first, list) and first else None
        if isinstance(turn, dict) and {"role", "content"} <= turn.keys():
            yield "messages", {"messages": column}, f"{column} is a list of role and content"
        if isinstance(turn, dict) and {"from", "value"} <= turn.keys():
            yield "sharegpt", {"conversations": column}, f"{column} is a list of from and value"
    tokens, tags = _named("tokens", columns), _named("tags", columns)
    if tokens and tags and all(isinstance(row.get(tokens), list | str) for row in rows):
        yield "tags", {"tokens": tokens, "tags": tags}, f"{tokens} and {tags}, one tag for each token"


def _by_own_names(columns: Sequence[str]) -> Iterator[Guess]:
    """Columns that carry the names of the roles themselves."""
    question, context, answers = (_named(role, columns) for role in ("question", "context", "answers"))
    if question and context and answers:
        roles = {"question": question, "context": context, "answers": answers}
        yield "answer", roles, f"{answers} to {question} in {context}"
    own = {plain(column): column for column in columns}
    if {"instruction", "output"} <= own.keys():
        roles = {role: own[role] for role in ("instruction", "input", "output") if role in own}
        yield "alpaca", roles, "instruction and output, as Alpaca has them"
    for kind, wanted in (("prompt", ("prompt", "completion")), ("pair", ("src", "tgt"))):
        if set(wanted) <= own.keys():
            yield kind, {role: own[role] for role in wanted}, f"the columns are called {' and '.join(wanted)}"


def _languages(columns: Sequence[str], texts: Sequence[str], rows: Sequence[Row]) -> Iterator[Guess]:
    """en and zh, as columns, as parallel files, or inside one column called translation."""
    for column in columns:
        first = rows[0].get(column)
        if isinstance(first, dict) and len(first) > 1 and all(map(is_language, first)):
            one, two, *_ = (f"{column}.{name}" for name in first)
            yield "pair", {"src": one, "tgt": two}, f"{column} holds the languages {', '.join(first)}"
    spoken = [column for column in texts if is_language(column)]
    for other in spoken[1:]:
        why = f"the languages {', '.join(spoken)}" + ("; the first two are taken" if len(spoken) > 2 else "")
        yield "pair", {"src": spoken[0], "tgt": other}, why


def _labels(columns: Sequence[str], texts: Sequence[str], rows: Sequence[Row]) -> Iterator[Guess]:
    text, second = _named("text", texts) or (texts[0] if texts else None), _named("second", texts)
    named = [column for column in columns if plain(column) in ROLES["label"]]
    for label in sorted(named, key=lambda column: ROLES["label"].index(plain(column))):
        values = [row.get(label) for row in rows]
        if text and text != label and not any(isinstance(v, list | dict) for v in values) and is_few(values):
            roles = (
                {"text": text, "second": second, "label": label} if second else {"text": text, "label": label}
            )
            yield "label", roles, f"{label} has {len(set(map(str, values)))} values"


def _by_place(columns: Sequence[str], texts: Sequence[str], rows: Sequence[Row]) -> Iterator[Guess]:
    """Without names, by what the columns hold: text beside few different words is a label, else a pair."""
    texts = [c for c in texts if not _all_begin_alike([row[c] for row in rows])] or texts
    labelled = False
    for column in columns:
        values = [row[column] for row in rows]
        if (
            texts
            and column not in texts[:1]
            and is_few(values)
            and all(WORD.fullmatch(v.strip()) for v in values)
        ):
            labelled = True
            why = f"no header; {column} has {len(set(values))} values"
            yield "label", {"text": texts[0], "label": column}, why
    if len(texts) > 1:
        yield "pair", {"src": texts[0], "tgt": texts[1]}, "no header; two columns of text"
    elif len(columns) == 2 and not labelled:
        yield "pair", {"src": columns[0], "tgt": columns[1]}, "no header; two columns"
    if texts or len(columns) == 1:
        yield "text", {"text": (texts or columns)[0]}, "no header; a column of text"


def _named(role: str, columns: Sequence[str]) -> str | None:
    """The column that goes by a name of this role; the role's own name before its synonyms."""
    by_name = {plain(column): column for column in columns}
    return next((by_name[word] for word in ROLES[role] if word in by_name), None)


def is_prose(values: Sequence[Any]) -> bool:
    """Free text: made of letters, and mostly different from row to row."""
    texts = [value for value in values if isinstance(value, str) and value.strip()]
    written = sum(any(letter.isalpha() for letter in text) for text in texts)
    different = len(texts) < 3 or len(set(texts)) > len(texts) / 2
    return bool(texts) and different and written > len(texts) / 2


def _all_begin_alike(texts: Sequence[str]) -> bool:
    """As links, ids and attributions do."""
    start = texts[0][:8]
    return len(texts) > 2 and len(start) == 8 and all(text.startswith(start) for text in texts)


def is_few(values: Sequence[Any]) -> bool:
    """Few enough different values to be classes."""
    different = len(set(map(str, values)))
    return different <= 2 if len(values) < 8 else different <= max(2, len(values) / 4)
