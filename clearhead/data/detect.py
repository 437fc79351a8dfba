"""Detection: the columns and a sample of rows in; what a model can learn from them out, most likely first.

A mapping that the user gives (`prompt=question`) takes precedence over every guess.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Any

from ..errors import DataError, InputError, nearest
from .cells import as_number
from .schema import (
    LABEL_SEPARATORS,
    ROLE_NAMES,
    ROW_KINDS,
    is_language_code,
    normalised_name,
)
from .source import Row, Source

SchemaGuess = tuple[str, dict[str, str], str]  # kind, role -> column, why
LABEL_WORD = re.compile(r"[\w+-]{1,30}")


@dataclass(frozen=True)
class Schema:
    """The kind of the rows, and which column has which role."""

    kind: str  # one of ROW_KINDS
    columns: Mapping[str, str]
    reason: str

    def __str__(self) -> str:
        roles = ", ".join(r if r == c else f"{r}={c}" for r, c in self.columns.items())
        return f"{self.kind} ({roles})"

    @property
    def form(self) -> str:
        """The canonical form of its rows: alpaca rows become prompts, sharegpt rows become messages."""
        return ROW_KINDS[self.kind].form

    def read(self, row: Row) -> Row:
        """The canonical form of a raw row. Raises `BlankError` if it is empty, `DataError` if it is wrong."""
        return ROW_KINDS[self.kind].read(row, self.columns)

    def problem(self, row: Row) -> str | None:
        """What is wrong with a row, if anything."""
        try:
            self.read(row)
        except DataError as error:
            return str(error)
        return None


def detect_schemas(source: Source, mapping: Mapping[str, str] | None = None) -> tuple[Schema, ...]:
    """Every schema that fits, most likely first; at least one, or an error that says what to do."""
    # Rows from the whole source, not its first: a file may be sorted by label.
    count = min(len(source), 500)
    sample = [source[i * len(source) // count] for i in range(count)]
    columns = source.columns
    if not columns:
        raise DataError('the rows have no columns; expected some such as {"text": "a film", "label": "good"}')
    if mapping:
        return tuple(_schemas_from_mapping(columns, mapping, sample))
    _refuse_preferences(columns)
    schemas = [Schema(*guess) for guess in guess_schemas(columns, sample, source.note)]
    if not schemas:
        raise InputError(
            f"cannot tell what the columns {', '.join(columns)[:120]} are for; name them, such as "
            f"{_suggest_mappings(columns, sample)}"
        )
    seen: dict[tuple[str, str], Schema] = {}
    for schema in schemas:
        seen.setdefault((schema.kind, str(schema)), schema)
    return tuple(seen.values())


def _refuse_preferences(columns: Sequence[str]) -> None:
    """Rows with a chosen and a rejected answer: learning both as answers would teach the rejected one."""
    by_name = {normalised_name(column): column for column in columns}
    if not {"chosen", "rejected"} <= by_name.keys():
        return
    chosen, prompt = by_name["chosen"], _column_for_role("prompt", columns)
    if "instruction" in by_name:
        roles = {"instruction": by_name["instruction"], "output": chosen}
    else:
        roles = {"prompt": prompt, "completion": chosen} if prompt else {"text": chosen}
    option = " ".join(quote(f"{role}={column}") for role, column in roles.items())
    raise DataError(
        f"these are preference rows ({', '.join(columns)[:80]}), which no task here learns from yet; "
        f"to learn the chosen answers alone: --map {option}"
    )


def _suggest_mappings(columns: Sequence[str], rows: Sequence[Row]) -> str:
    """Options to try, by what the columns hold: text first, few different values as labels."""
    texts = [c for c in columns if _is_free_text([row.get(c) for row in rows])] or list(columns)
    texts.sort(key=lambda c: -sum(len(str(row.get(c))) for row in rows))  # ids are shorter than texts
    labels = [c for c in columns if c not in texts[:1] and _has_few_values([row.get(c) for row in rows])]
    options = [{"text": texts[0], "label": label} for label in labels[:1]]
    options += [{"src": texts[0], "tgt": texts[1]}] if len(texts) > 1 else [{"text": texts[0]}]
    return " or ".join(
        "--map " + " ".join(quote(f"{role}={column}") for role, column in option.items())
        for option in options
    )


def parse_map(words: Sequence[str]) -> dict[str, str]:
    """`prompt=question completion=answer` as the user typed it."""
    mapping = {}
    for word in words:
        role, sign, column = word.partition("=")
        if not (role and sign and column):
            raise InputError(f"--map {word}: expected role=column, such as prompt=question")
        mapping[role] = column
    return mapping


def _schemas_from_mapping(
    columns: Sequence[str], mapping: Mapping[str, str], sample: Sequence[Row]
) -> list[Schema]:
    """Every kind that has the given roles and whose other roles are found by name, simplest first."""
    schemas = []
    for role, column in mapping.items():
        if role not in ROLE_NAMES:
            raise InputError(f"--map {role}={column}: there is no role {role!r}; {nearest(role, ROLE_NAMES)}")
        begin_alike = column.endswith("*") and any(name.startswith(column[:-1]) for name in columns)
        if column not in columns and column.partition(".")[0] not in columns and not begin_alike:
            raise InputError(
                f"--map {role}={column}: there is no column {column!r}; {nearest(column, columns)}"
            )
    for kind in sorted(ROW_KINDS.values(), key=lambda kind: len(kind.roles)):
        if not mapping.keys() <= {*kind.roles, *kind.optional}:
            continue
        filled, free = dict(mapping), [c for c in columns if c not in mapping.values()]
        for role in (*kind.roles, *kind.optional):
            by_name = _column_for_role(role, free)
            only = free[0] if len(free) == 1 and role in kind.roles else None
            column_of_role = by_name or only
            if role not in filled and column_of_role:
                filled[role] = column_of_role
                free.remove(column_of_role)
        if kind.name in ("prompt", "prompt-chat"):  # the same columns: texts, or lists of messages
            sides = [filled[role] for role in kind.roles if role in filled]
            if _has_messages(sides, sample) != (kind.name == "prompt-chat"):
                continue
        if all(role in filled for role in kind.roles):
            typed = " ".join(f"{role}={column}" for role, column in mapping.items())
            schemas.append(Schema(kind.name, filled, f"you gave {typed}"))
    if schemas:
        return schemas
    given, missing = ", ".join(mapping), _completions(mapping)
    raise InputError(f"--map gives {given}; {missing} as well, from the columns {', '.join(columns)[:100]}")


def _completions(mapping: Mapping[str, str]) -> str:
    """The roles that are missing for each kind that has the given ones."""
    options = [
        " and ".join(role for role in kind.roles if role not in mapping)
        for kind in ROW_KINDS.values()
        if mapping.keys() <= {*kind.roles, *kind.optional}
    ]
    return (
        f"name {' or '.join(options)}"
        if options
        else "these do not go together; name text and label, or src and tgt"
    )


def guess_schemas(columns: Sequence[str], rows: Sequence[Row], note: str) -> Iterator[SchemaGuess]:
    """Possible schemas, from nearly certain to merely possible."""
    if (chat := _prompt_chat(columns, rows)) is not None:
        yield chat
        return
    yield from _by_structure(columns, rows)
    yield from _by_role_names(columns)
    texts = [c for c in columns if _is_free_text([row.get(c) for row in rows])]
    if "no header" in note:
        yield from _by_content(columns, texts, rows)
        return
    yield from _by_language(columns, texts, rows)
    if note == "parallel files":
        yield "pair", {"src": columns[0], "tgt": columns[1]}, "two files side by side"
    for kind, roles in (("prompt", ("prompt", "completion")), ("pair", ("src", "tgt"))):
        by_role = {role: _column_for_role(role, columns) for role in roles}
        named = {role: column for role, column in by_role.items() if column}
        if len(set(named.values())) == 2 and set(named.values()) <= set(texts):
            yield kind, named, f"the columns are called {' and '.join(named.values())}"
    yield from _by_label(columns, texts, rows)
    yield from _by_score(columns, texts, rows)
    text = _column_for_role("text", columns)
    if text and text in texts:
        yield from _by_few_values(columns, text, rows)
    if text or len(columns) == 1:
        yield "text", {"text": text or columns[0]}, "there is one column of text"


def _prompt_chat(columns: Sequence[str], rows: Sequence[Row]) -> SchemaGuess | None:
    """A prompt and a completion of which at least one is a list of messages."""
    prompt, completion = (_column_for_role(role, columns) for role in ("prompt", "completion"))
    if not prompt or not completion or not _has_messages((prompt, completion), rows):
        return None
    roles = {"prompt": prompt, "completion": completion, **_chat_options(columns)}
    return "prompt-chat", roles, f"{prompt} and {completion}, as lists of role and content"


def _has_messages(columns: Sequence[str], rows: Sequence[Row]) -> bool:
    return any(
        isinstance(message := _first_message(column, rows), dict) and {"role", "content"} <= message.keys()
        for column in columns
    )


def _first_message(column: str, rows: Sequence[Row]) -> Any:
    """The first element of the first list in a column, if there are lists in it."""
    first = next((row[column] for row in rows if row.get(column)), None)
    return first[0] if isinstance(first, list) and first else None


def _chat_options(columns: Sequence[str]) -> dict[str, str]:
    """The columns of the system prompt and of the tools that chats may have."""
    found = {role: _column_for_role(role, columns) for role in ("system", "tools")}
    return {role: column for role, column in found.items() if column}


def _by_structure(columns: Sequence[str], rows: Sequence[Row]) -> Iterator[SchemaGuess]:
    """Lists of messages are recognised by their structure, whatever the column's name."""
    for column in columns:
        message, options = _first_message(column, rows), _chat_options(columns)
        if isinstance(message, dict) and {"role", "content"} <= message.keys():
            yield "messages", {"messages": column, **options}, f"{column} is a list of role and content"
        if isinstance(message, dict) and {"from", "value"} <= message.keys():
            yield "sharegpt", {"conversations": column, **options}, f"{column} is a list of from and value"
    tokens, tags = _column_for_role("tokens", columns), _column_for_role("tags", columns)
    if tokens and tags and all(isinstance(row.get(tokens), list | str) for row in rows):
        yield "tags", {"tokens": tokens, "tags": tags}, f"{tokens} and {tags}, one tag for each token"


def _by_role_names(columns: Sequence[str]) -> Iterator[SchemaGuess]:
    """Columns that carry the names of the roles themselves."""
    yield from _by_choices(columns)
    anchor, positive, negative = (
        _column_for_role(role, columns) for role in ("anchor", "positive", "negative")
    )
    if anchor and positive:
        roles = {"anchor": anchor, "positive": positive} | ({"negative": negative} if negative else {})
        yield "similar", roles, f"{positive} belongs to {anchor}"
    question, context, answers = (
        _column_for_role(role, columns) for role in ("question", "context", "answers")
    )
    if question and context and answers:
        roles = {"question": question, "context": context, "answers": answers}
        yield "answer", roles, f"{answers} to {question} in {context}"
    own = {normalised_name(column): column for column in columns}
    if {"instruction", "output"} <= own.keys():
        roles = {role: own[role] for role in ("instruction", "input", "output") if role in own}
        chat = {role: own[role] for role in ("system", "history") if role in own}
        if chat:
            yield "alpaca-chat", roles | chat, f"instruction and output with {' and '.join(chat)}"
        yield "alpaca", roles, "instruction and output, as Alpaca has them"
    for kind, names in (("prompt", ("prompt", "completion")), ("pair", ("src", "tgt"))):
        if set(names) <= own.keys():
            yield kind, {role: own[role] for role in names}, f"the columns are called {' and '.join(names)}"


def _by_choices(columns: Sequence[str]) -> Iterator[SchemaGuess]:
    """A question with a list of choices, or with columns that begin alike: ending0, ending1, ..."""
    answer = _column_for_role("answer", columns)
    choices = _column_for_role("choices", columns)
    if choices is None:
        alike = defaultdict(list)
        for column in columns:
            if match := re.fullmatch(r"(ending|choice|option|answer)(_?)([0-9A-Za-z])", column):
                alike[match[1] + match[2]].append(column)
        choices = next((f"{start}*" for start, group in alike.items() if len(group) > 1), None)
        answer = next((c for c in columns if c != choices and c == answer), None)
    question = next((c for word in ("question", "sent1", "startphrase", "context", "prompt", "问题")
                     for c in columns if normalised_name(c) == word), None)  # fmt: skip
    if not (answer and choices and question):
        return
    by_name = {normalised_name(c): c for c in columns}
    if {"sent1", "sent2"} <= by_name.keys():  # SWAG: the endings continue the second sentence
        roles = {"context": by_name["sent1"], "question": by_name["sent2"]}
        yield "choice", {**roles, "choices": choices, "answer": answer}, f"{answer} is one of {choices}"
    context = next(
        (c for c in columns if normalised_name(c) in ("context", "article", "passage") and c != question),
        None,
    )
    roles = {"question": question, "choices": choices, "answer": answer}
    yield "choice", roles | ({"context": context} if context else {}), f"{answer} is one of {choices}"


def _by_score(columns: Sequence[str], texts: Sequence[str], rows: Sequence[Row]) -> Iterator[SchemaGuess]:
    """One text or two, and a column of numbers that are no class numbers."""
    text = _column_for_role("text", texts) or (texts[0] if texts else None)
    second = _column_for_role("second", texts)
    for word in ROLE_NAMES["score"]:
        for column in columns:
            numbers = [as_number(row.get(column)) for row in rows]
            # Most must be numbers; reading then names the line of one that is none.
            if normalised_name(column) != word or not text or 2 * numbers.count(None) > len(numbers):
                continue
            if word in ROLE_NAMES["label"] and not _has_fractions(numbers):
                continue
            roles = {"text": text} | ({"second": second} if second else {}) | {"score": column}
            yield "score", roles, f"{column} is a number"


def _has_fractions(numbers: Sequence[float | None]) -> bool:
    return any(number is not None and not number.is_integer() for number in numbers)


def _by_language(columns: Sequence[str], texts: Sequence[str], rows: Sequence[Row]) -> Iterator[SchemaGuess]:
    """en and zh, as columns, as parallel files, or inside one column called translation."""
    for column in columns:
        first = rows[0].get(column)
        if isinstance(first, dict) and len(first) > 1 and all(map(is_language_code, first)):
            one, two, *_ = (f"{column}.{name}" for name in first)
            yield "pair", {"src": one, "tgt": two}, f"{column} holds the languages {', '.join(first)}"
    languages = [column for column in texts if is_language_code(column)]
    for other in languages[1:]:
        why = f"the languages {', '.join(languages)}" + (
            "; the first two are used" if len(languages) > 2 else ""
        )
        yield "pair", {"src": languages[0], "tgt": other}, why


def _by_label(columns: Sequence[str], texts: Sequence[str], rows: Sequence[Row]) -> Iterator[SchemaGuess]:
    # A column called text is text, even if most of its rows are alike.
    text = _column_for_role("text", texts) or (texts[0] if texts else _column_for_role("text", columns))
    second = _column_for_role("second", texts)
    names = (*ROLE_NAMES["label"], *ROLE_NAMES["labels"])
    named = [column for column in columns if normalised_name(column) in names]
    for label in sorted(named, key=lambda column: names.index(normalised_name(column))):
        values = [row.get(label) for row in rows]
        if text and text != label and _are_several_labels(label, values):
            roles = {"text": text} | ({"second": second} if second else {}) | {"labels": label}
            yield "labels", roles, f"{label} holds several labels"
            continue
        if (
            text
            and text != label
            and not any(isinstance(v, list | dict) for v in values)
            and (_has_few_values(values) or _are_many_classes(values))
        ):
            roles = (
                {"text": text, "second": second, "label": label} if second else {"text": text, "label": label}
            )
            yield "label", roles, f"{label} has {len(set(map(str, values)))} values"


def _by_few_values(columns: Sequence[str], text: str, rows: Sequence[Row]) -> Iterator[SchemaGuess]:
    """Beside a column called text, one of a few different words, whatever its name."""
    for column in columns:
        values = [row.get(column) for row in rows]
        words = all(isinstance(v, str) and LABEL_WORD.fullmatch(v.strip()) for v in values)
        if column not in (text, "split") and words and len(set(values)) > 1 and _has_few_values(values):
            yield "label", {"text": text, "label": column}, f"{column} has {len(set(values))} values"


def _are_several_labels(column: str, values: Sequence[Any]) -> bool:
    """Lists of words, or a column with a plural name whose texts have separators."""
    lists = [value for value in values if isinstance(value, list)]
    if lists:
        return all(isinstance(label, str | int) for each in lists for label in each)
    plural = normalised_name(column) in ROLE_NAMES["labels"][:4]
    return plural and any(isinstance(value, str) and LABEL_SEPARATORS.search(value) for value in values)


def _by_content(columns: Sequence[str], texts: Sequence[str], rows: Sequence[Row]) -> Iterator[SchemaGuess]:
    """Without a header, by content: text and a column of few distinct words is a label, else a pair."""
    texts = [c for c in texts if not _all_begin_alike([row[c] for row in rows])] or texts
    labelled = False
    for column in columns:
        values = [row[column] for row in rows]
        if (
            texts
            and column not in texts[:1]
            and _has_few_values(values)
            and all(LABEL_WORD.fullmatch(v.strip()) for v in values)
        ):
            labelled = True
            why = f"no header; {column} has {len(set(values))} values"
            yield "label", {"text": texts[0], "label": column}, why
    scores = [c for c in columns if _has_fractions(numbers := [as_number(row[c]) for row in rows])
              and None not in numbers]  # fmt: skip
    if texts and scores:
        second = {"second": texts[1]} if len(texts) > 1 else {}
        yield "score", {"text": texts[0], **second, "score": scores[0]}, f"no header; {scores[0]} is a number"
    if len(texts) > 1:
        yield "pair", {"src": texts[0], "tgt": texts[1]}, "no header; two columns of text"
    elif len(columns) == 2 and not labelled:
        yield "pair", {"src": columns[0], "tgt": columns[1]}, "no header; two columns"
    if texts or len(columns) == 1:
        yield "text", {"text": (texts or columns)[0]}, "no header; a column of text"


def _column_for_role(role: str, columns: Sequence[str]) -> str | None:
    """The column whose name is this role's or one of its synonyms, in that order."""
    by_name = {normalised_name(column): column for column in columns}
    return next((by_name[word] for word in ROLE_NAMES[role] if word in by_name), None)


def _is_free_text(values: Sequence[Any]) -> bool:
    """Free text: contains letters, and differs from row to row. A list of sentences is one, too."""
    values = [
        " ".join(v) if isinstance(v, list) and all(isinstance(x, str) for x in v) else v for v in values
    ]
    texts = [value for value in values if isinstance(value, str) and value.strip()]
    with_letters = sum(any(letter.isalpha() for letter in text) for text in texts)
    different = len(texts) < 3 or len(set(texts)) > len(texts) / 2
    return bool(texts) and different and with_letters > len(texts) / 2


def _all_begin_alike(texts: Sequence[str]) -> bool:
    """Whether all texts share their first eight characters, as links and ids do."""
    start = texts[0][:8]
    return len(texts) > 2 and len(start) == 8 and all(text.startswith(start) for text in texts)


def _are_many_classes(values: Sequence[Any]) -> bool:
    """In a column that is called label: words or whole numbers of which some come again."""
    words = [str(value).strip() for value in values]
    return len(set(words)) < 0.8 * len(words) and all(LABEL_WORD.fullmatch(word) for word in words)


def _has_few_values(values: Sequence[Any]) -> bool:
    """Whether there are few enough distinct values to be classes."""
    different = len(set(map(str, values)))
    return different <= 2 if len(values) < 8 else different <= max(2, len(values) / 4)
