"""Guesses: columns and a sample of rows in; what they may be, most likely first, each with why, out."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from .cells import as_number
from .schema import LABEL_SEPARATORS, ROLE_NAMES, is_language_code, normalised_name
from .source import Row

SchemaGuess = tuple[str, dict[str, str], str]  # kind, role -> column, why
LABEL_WORD = re.compile(r"[\w+-]{1,30}")


def guess_schemas(columns: Sequence[str], rows: Sequence[Row], note: str) -> Iterator[SchemaGuess]:
    """Possible schemas, from nearly certain to merely possible."""
    if (chat := _prompt_chat(columns, rows)) is not None:
        yield chat
        return
    yield from _by_structure(columns, rows)
    yield from _by_role_names(columns)
    texts = [c for c in columns if is_free_text([row.get(c) for row in rows])]
    if "no header" in note:
        yield from _by_content(columns, texts, rows)
        return
    yield from _by_language(columns, texts, rows)
    if note == "parallel files":
        yield "pair", {"src": columns[0], "tgt": columns[1]}, "two files side by side"
    for kind, roles in (("prompt", ("prompt", "completion")), ("pair", ("src", "tgt"))):
        by_role = {role: column_for_role(role, columns) for role in roles}
        named = {role: column for role, column in by_role.items() if column}
        if len(set(named.values())) == 2 and set(named.values()) <= set(texts):
            yield kind, named, f"the columns are called {' and '.join(named.values())}"
    yield from _by_label(columns, texts, rows)
    yield from _by_score(columns, texts, rows)
    text = column_for_role("text", columns)
    if text and text in texts:
        yield from _by_few_values(columns, text, rows)
    if text or len(columns) == 1:
        yield "text", {"text": text or columns[0]}, "there is one column of text"


def _prompt_chat(columns: Sequence[str], rows: Sequence[Row]) -> SchemaGuess | None:
    """A prompt and a completion of which at least one is a list of messages."""
    prompt, completion = (column_for_role(role, columns) for role in ("prompt", "completion"))
    if not prompt or not completion or not has_messages((prompt, completion), rows):
        return None
    roles = {"prompt": prompt, "completion": completion, **_chat_options(columns)}
    return "prompt-chat", roles, f"{prompt} and {completion}, as lists of role and content"


def has_messages(columns: Sequence[str], rows: Sequence[Row]) -> bool:
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
    found = {role: column_for_role(role, columns) for role in ("system", "tools")}
    return {role: column for role, column in found.items() if column}


def _by_structure(columns: Sequence[str], rows: Sequence[Row]) -> Iterator[SchemaGuess]:
    """Lists of messages are recognised by their structure, whatever the column's name."""
    for column in columns:
        message, options = _first_message(column, rows), _chat_options(columns)
        if isinstance(message, dict) and {"role", "content"} <= message.keys():
            yield "messages", {"messages": column, **options}, f"{column} is a list of role and content"
        if isinstance(message, dict) and {"from", "value"} <= message.keys():
            yield "sharegpt", {"conversations": column, **options}, f"{column} is a list of from and value"
    tokens, tags = column_for_role("tokens", columns), column_for_role("tags", columns)
    if tokens and tags and all(isinstance(row.get(tokens), list | str) for row in rows):
        yield "tags", {"tokens": tokens, "tags": tags}, f"{tokens} and {tags}, one tag for each token"


def _by_role_names(columns: Sequence[str]) -> Iterator[SchemaGuess]:
    """Columns that carry the names of the roles themselves."""
    yield from _by_choices(columns)
    anchor, positive, negative = (
        column_for_role(role, columns) for role in ("anchor", "positive", "negative")
    )
    if anchor and positive:
        roles = {"anchor": anchor, "positive": positive} | ({"negative": negative} if negative else {})
        yield "similar", roles, f"{positive} belongs to {anchor}"
    question, context, answers = (
        column_for_role(role, columns) for role in ("question", "context", "answers")
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
    answer = column_for_role("answer", columns)
    choices = column_for_role("choices", columns)
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
    text = column_for_role("text", texts) or (texts[0] if texts else None)
    second = column_for_role("second", texts)
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
    text = column_for_role("text", texts) or (texts[0] if texts else column_for_role("text", columns))
    second = column_for_role("second", texts)
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
            and (has_few_values(values) or _are_many_classes(values))
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
        if column not in (text, "split") and words and len(set(values)) > 1 and has_few_values(values):
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
            and has_few_values(values)
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


def column_for_role(role: str, columns: Sequence[str]) -> str | None:
    """The column whose name is this role's or one of its synonyms, in that order."""
    by_name = {normalised_name(column): column for column in columns}
    return next((by_name[word] for word in ROLE_NAMES[role] if word in by_name), None)


def is_free_text(values: Sequence[Any]) -> bool:
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


def has_few_values(values: Sequence[Any]) -> bool:
    """Whether there are few enough distinct values to be classes."""
    different = len(set(map(str, values)))
    return different <= 2 if len(values) < 8 else different <= max(2, len(values) / 4)
