"""Preview: one canonical row in; its text in segments out, each with whether the loss counts it."""

from __future__ import annotations

from collections.abc import Callable

from .chat_rows import is_trained, message_text
from .source import Row

Segment = tuple[str, bool]  # a piece of text, and whether the loss counts it


def preview(form: str, row: Row) -> list[Segment]:
    """The texts of a row as they are; `recipes.preview_batch` shows the tokens of a training batch."""
    return [segment for segment in RENDERERS[form](row) if segment[0]]


def row_texts(form: str, row: Row) -> dict[str, str]:
    """The texts of a row by role, as far as their lengths matter."""
    if form == "messages":
        return {"messages": "\n".join(map(message_text, row["messages"]))}
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
            (message_text(message), is_trained(message)),
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
