"""Preview: one canonical row in; its text in segments out, each with whether the loss counts it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

from ..text import Tokenizer
from .completions import encode_completions
from .source import Row

Segment = tuple[str, bool]  # a piece of text, and whether the loss counts it


def preview(form: str, row: Row, tokenizer: Tokenizer | None = None) -> list[Segment]:
    """Without a tokenizer the texts themselves; with one, its tokens as a model is trained on them."""
    segments = RENDERERS[form](row) if tokenizer is None else _tokenized(form, row, tokenizer)
    return [segment for segment in segments if segment[0]]


def _tokenized(form: str, row: Row, tokenizer: Tokenizer) -> list[Segment]:
    end = tokenizer.eos.id if tokenizer.eos else None
    if form in ("text", "prompt", "messages"):
        ids, flags = encode_completions(form, [row], tokenizer, end if end is not None else 0)[0]
        runs = groupby(zip(ids, flags, strict=True), key=lambda pair: pair[1])
        return [(_shown(tokenizer, [i for i, _ in run]), flag == 1) for flag, run in runs]
    if form == "pair":
        last = [] if end is None else [end]
        sides = [[*tokenizer.encode(row[role], specials=False).ids, *last] for role in ("src", "tgt")]
        return [(_shown(tokenizer, sides[0]), False), (" → ", False), (_shown(tokenizer, sides[1]), True)]
    if form == "choice":
        question = "\n".join(row_texts(form, row).values())
        rows = [_shown(tokenizer, tokenizer.encode(question, choice).ids) for choice in row["choices"]]
        return [(f"{text}\n", number == row["answer"]) for number, text in enumerate(rows)]
    if form == "answer":
        return _tokenized_answer(row, tokenizer)
    if form == "tags":
        ends = [
            ("", False) if each is None else (each.text, False) for each in (tokenizer.cls, tokenizer.sep)
        ]
        return [ends[0], (" ", False), *_tags(row), ends[1]]
    texts = row_texts(form, row)
    whole = _shown(tokenizer, tokenizer.encode(texts["text"], texts.get("second")).ids)
    return [(f"{whole} → ", False), RENDERERS[form](row)[-1]]


def _tokenized_answer(row: Row, tokenizer: Tokenizer) -> list[Segment]:
    encoding = tokenizer.encode(row["question"], row["context"])
    if not row["answers"]:
        return [(_shown(tokenizer, encoding.ids), False), (" (no answer)", True)]
    first = row["answers"][0]
    start, end = first["start"], first["start"] + len(first["text"])
    inside = [piece.side == 1 and piece.start < end and piece.end > start for piece in encoding.tokens]
    runs = groupby(zip(encoding.ids, inside, strict=True), key=lambda pair: pair[1])
    return [(_shown(tokenizer, [i for i, _ in run]) + " ", flag) for flag, run in runs]


def _shown(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    return tokenizer.decode(ids, specials=True)


def row_texts(form: str, row: Row) -> dict[str, str]:
    """The texts of a row by role, as far as their lengths matter."""
    if form == "messages":
        return {"messages": "\n".join(message["content"] for message in row["messages"])}
    if form == "tags":
        return {"tokens": " ".join(row["tokens"])}
    return {role: row[role] for role in TEXT_ROLES[form] if role in row}


TEXT_ROLES = {
    "text": ("text",),
    "pair": ("src", "tgt"),
    "prompt": ("prompt", "completion"),
    "label": ("text", "second"),
    "labels": ("text", "second"),
    "score": ("text", "second"),
    "choice": ("context", "question"),
    "answer": ("question", "context"),
}


def _answer(row: Row) -> list[Segment]:
    question, context = (row["question"] + "\n", False), row["context"]
    if not row["answers"]:
        return [question, (context, False), ("\n(no answer)", True)]
    first = row["answers"][0]
    start, end = first["start"], first["start"] + len(first["text"])
    return [question, (context[:start], False), (context[start:end], True), (context[end:], False)]


def _messages(row: Row) -> list[Segment]:
    return [
        segment
        for message in row["messages"]
        for segment in (
            (f"{message['role']}: ", False),
            (message["content"], message["role"] == "assistant"),
            ("\n", False),
        )
    ]


def _tags(row: Row) -> list[Segment]:
    pairs = zip(row["tokens"], row["tags"], strict=True)
    return [part for token, tag in pairs for part in ((f"{token}/", False), (tag, True), (" ", False))]


def _with_arrow(form: str, row: Row) -> list[Segment]:
    return [(" | ".join(row_texts(form, row).values()) + " → ", False)]


RENDERERS: dict[str, Callable[[Row], list[Segment]]] = {
    "text": lambda row: [(row["text"], True)],
    "pair": lambda row: [(row["src"], False), (" → ", False), (row["tgt"], True)],
    "prompt": lambda row: [(row["prompt"], False), ("\n", False), (row["completion"], True)],
    "messages": _messages,
    "label": lambda row: [*_with_arrow("label", row), (row["label"], True)],
    "labels": lambda row: [*_with_arrow("labels", row), (", ".join(row["labels"]) or "(none)", True)],
    "score": lambda row: [*_with_arrow("score", row), (f"{row['score']:g}", True)],
    "choice": lambda row: [
        *_with_arrow("choice", row),
        *((f"{text}  ", number == row["answer"]) for number, text in enumerate(row["choices"])),
    ],
    "tags": _tags,
    "answer": _answer,
}
