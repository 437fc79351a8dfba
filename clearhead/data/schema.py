"""The schema of rows: names of columns, kinds of rows, and reading a row into its canonical form.

The canonical forms are ten: {text}, {src, tgt, negative}, {prompt, completion}, {messages, tools},
{text, second, label}, {text, second, labels}, {text, second, score}, {tokens, tags},
{question, context, answers}, {question, context, choices, answer}. Alpaca rows become prompts, ShareGPT rows
and prompts that are chats become messages, and the anchors and positives of retrieval data become pairs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from ..errors import DataError
from .cells import BlankError, Columns, as_number, cell_value, texts_reader
from .chat_rows import messages_reader, read_alpaca, read_alpaca_chat, read_prompt_chat
from .source import Row

# The first word of each list is the role's own name. Lower case; `-` and spaces are read as `_`.
_ROLES = {
    "text": "text content sentence sentence1 sentence_a premise document body review tweet comment paragraph "
    "文本 内容 句子",
    "second": "second sentence2 sentence_b hypothesis text2 text_pair",
    "label": "label labels category class sentiment gold_label entailment_judgment topic intent "
    "标签 类别 分类",
    "labels": "labels categories genres topics label 标签",
    "score": "score similarity relatedness_score similarity_score relatedness rating stars label "
    "分数 得分 评分 相似度",
    "src": "src source source_text article document dialogue input_text 原文",
    "tgt": "tgt target target_text summary highlights abstract translation 译文 摘要",
    "prompt": "prompt question query input intent rewritten_intent problem title text 问题 提问 输入",
    "completion": "completion answer response output reply snippet code solution canonical_solution "
    "答案 回答 回复 输出",
    "messages": "messages conversation dialog chat",
    "conversations": "conversations conversation",
    "instruction": "instruction",
    "input": "input",
    "system": "system system_prompt",
    "history": "history",
    "tools": "tools",
    "output": "output",
    "tokens": "tokens words",
    "tags": "tags ner_tags pos_tags labels ner tag",
    "question": "question query 问题",
    "context": "context passage paragraph 文章",
    "answers": "answers answer 答案",
    "choices": "choices options endings candidates 选项",
    "answer": "answer label answer_key answerkey answer_index correct gold 答案",
    "anchor": "anchor query",
    "positive": "positive pos passage",
    "negative": "negative neg hard_negative",
}
ROLE_NAMES = {role: tuple(words.split()) for role, words in _ROLES.items()}
# Words that make a first line a header. Those that are as often a label are none: "good film", "positive".
_ALSO_LABELS = {"positive", "negative", "pos", "neg", "correct", "gold"}
KNOWN_COLUMNS = frozenset(word for words in ROLE_NAMES.values() for word in words) - _ALSO_LABELS
KNOWN_COLUMNS |= {"id", "idx", "index"}
LANGUAGE_CODE_LIST = """
ar bg bn ca cs cy da de el en es et eu fa fi fr ga gl he hi hr hu hy id is it ja ka kk ko lt lv mk ms mt nb nl
no pl pt ro ru sk sl sq sr sv sw ta te th tl tr uk ur vi zh cmn eng deu fra rus jpn kor spa
"""
LANGUAGE_CODES = frozenset(LANGUAGE_CODE_LIST.split())
SPLIT_WORDS = {
    "train": ("train", "training", "trn"),
    "valid": ("valid", "val", "validation", "dev", "eval", "heldout"),
    "test": ("test", "testing", "tst"),
}


def normalised_name(name: str) -> str:
    """A column name normalised for comparison: `Source Text` becomes `source_text`."""
    return re.sub(r"[\s-]+", "_", name.strip().casefold())


def is_language_code(suffix: str) -> bool:
    """`en`, `zh`, and with a region or a script: `zh_CN`, `zh-Hans`."""
    match = re.fullmatch(r"([a-z]{2,3})([_-]([a-z]{2}|[a-z]{4}))?", suffix.lower())
    return match is not None and match[1] in LANGUAGE_CODES


def split_of(name: str) -> str | None:
    """train, valid or test, recognised by the words of a file name."""
    words = re.split(r"[^a-z]+", name.lower())
    return next((split for split, known in SPLIT_WORDS.items() if any(word in known for word in words)), None)


MAX_SCORE = 1e9  # squares of larger ones overflow
LABEL_SEPARATORS = re.compile(r"[,;|，；、]")


class RowKind(NamedTuple):
    name: str
    form: str  # the canonical form
    roles: tuple[str, ...]
    read: Callable[[Row, Columns], Row]
    optional: tuple[str, ...] = ()


def _label(row: Row, columns: Columns) -> Row:
    read = texts_reader(*(role for role in ("text", "second") if role in columns))(row, columns)
    value = cell_value(row, columns["label"], "label")
    if value is None or value == "":
        raise BlankError("label is empty")
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, str | int):
        raise DataError(f"label is {value!r:.40}; expected a word or a whole number")
    label = str(value).strip()
    if not label:
        raise BlankError("label is empty")
    if re.fullmatch(r"-?\d+\.0+", label):  # a number that a table wrote
        label = label.partition(".")[0]
    return read | {"label": label}


def _several_labels(row: Row, columns: Columns) -> Row:
    """A list of labels, or a text with commas, semicolons or bars between them; it may be empty."""
    read = texts_reader(*(role for role in ("text", "second") if role in columns))(row, columns)
    value = cell_value(row, columns["labels"], "labels")
    if isinstance(value, str):
        value = [label.strip() for label in LABEL_SEPARATORS.split(value)]
    value = [] if value is None else value if isinstance(value, list) else [value]
    if not all(isinstance(label, str | int) and not isinstance(label, bool) for label in value):
        raise DataError(f"labels is {value!r:.40}; expected a list of words")
    return read | {"labels": sorted({str(label) for label in value} - {""})}


def _score(row: Row, columns: Columns) -> Row:
    read = texts_reader(*(role for role in ("text", "second") if role in columns))(row, columns)
    value = cell_value(row, columns["score"], "score")
    if value is None or value == "":
        raise BlankError("score is empty")
    score = as_number(value)
    if score is None or abs(score) > MAX_SCORE:
        raise DataError(f"score is {value!r:.40}; expected a number from -1e9 to 1e9")
    return read | {"score": score}


def _choice(row: Row, columns: Columns) -> Row:
    read = texts_reader(*(role for role in ("question", "context") if role in columns))(row, columns)
    texts, names = _choices(row, columns["choices"])
    value = cell_value(row, columns["answer"], "answer")
    if value is None or value == "":
        raise BlankError("answer is empty")
    return read | {"choices": texts, "answer": _right_choice(value, texts, names)}


def _choices(row: Row, column: str) -> tuple[list[str], list[str]]:
    """The texts to choose from, and their names if they have some: a list, lists of texts and labels side by
    side, or columns that begin alike (`ending*`)."""
    if column.endswith("*"):
        value: Any = [row[name] for name in row if name.startswith(column[:-1]) and row[name] is not None]
    else:
        value = cell_value(row, column, "choices")
    names: list[str] = []
    if isinstance(value, dict):
        names, value = [str(name) for name in value.get("label") or ()], value.get("text")
    elif isinstance(value, list) and value and all(isinstance(each, dict) for each in value):
        names, value = [str(each.get("label")) for each in value], [each.get("text") for each in value]
    if not isinstance(value, list) or not all(isinstance(each, str | int | float) for each in value):
        raise DataError(f"choices holds a {type(value).__name__}; expected a list of texts")
    if len(value) < 2:
        raise DataError(f"choices has {len(value)} texts; expected two or more")
    return [str(each) for each in value], names if len(names) == len(value) else []


def _right_choice(value: Any, texts: list[str], names: list[str]) -> int:
    """The index of the right choice, given as its name, its letter, its index from 0, or its text."""
    word = str(int(value)) if isinstance(value, float) and value.is_integer() else str(value).strip()
    letters = [chr(ord("A") + i) for i in range(len(texts))]
    for options in (names, texts, [str(i) for i in range(len(texts))], letters):
        if word in options:
            return options.index(word)
    raise DataError(
        f"answer is {word!r:.40}; expected 0 to {len(texts) - 1}, A to {letters[-1]}, or a choice"
    )


def _anchor(row: Row, columns: Columns) -> Row:
    roles = [role for role in ("anchor", "positive", "negative") if role in columns]
    texts = texts_reader(*roles)(row, columns)
    names = {"anchor": "src", "positive": "tgt", "negative": "negative"}
    return {names[role]: text for role, text in texts.items()}


def _tags(row: Row, columns: Columns) -> Row:
    lists = {}
    for role in ("tokens", "tags"):
        value = cell_value(row, columns[role], role)
        value = value.split() if isinstance(value, str) else value
        if not isinstance(value, list) or not all(isinstance(each, str | int) for each in value):
            raise DataError(f"{role} holds a {type(value).__name__}; expected a list of words")
        lists[role] = [str(each) for each in value]
    if not lists["tokens"]:
        raise BlankError("tokens is empty")
    if len(lists["tokens"]) != len(lists["tags"]):
        raise DataError(
            f"{len(lists['tokens'])} tokens and {len(lists['tags'])} tags; expected as many of each"
        )
    return lists


def _answer(row: Row, columns: Columns) -> Row:
    texts = texts_reader("question", "context")(row, columns)
    answers = cell_value(row, columns["answers"], "answers")
    if isinstance(answers, dict):  # lists side by side, as Hugging Face keeps them
        pairs = zip(answers.get("text") or [], answers.get("answer_start") or [], strict=False)
        answers = [{"text": text, "answer_start": start} for text, start in pairs]
    answers = (
        [{"text": answers}] if isinstance(answers, str) else answers or []
    )  # none: it cannot be answered
    if not isinstance(answers, list) or not all(
        isinstance(a, dict) and isinstance(a.get("text"), str) for a in answers
    ):
        raise DataError("answers holds something else than texts and where they start in the context")
    return texts | {"answers": [_span(answer, texts["context"]) for answer in answers]}


def _span(answer: Row, context: str) -> Row:
    text, start = answer["text"], answer.get("answer_start", answer.get("start"))
    start = context.find(text) if start is None else start
    if not isinstance(start, int) or start < 0 or context[start : start + len(text)] != text:
        raise DataError(f"the answer {text!r:.40} is not in the context at its answer_start")
    return {"text": text, "start": start}


OF_CHATS = ("system", "tools")  # optional columns of chats
ROW_KINDS = {
    kind.name: kind
    for kind in (
        RowKind(
            "messages", "messages", ("messages",), messages_reader("messages", "role", "content"), OF_CHATS
        ),
        RowKind(
            "sharegpt",
            "messages",
            ("conversations",),
            messages_reader("conversations", "from", "value"),
            OF_CHATS,
        ),
        RowKind("prompt-chat", "messages", ("prompt", "completion"), read_prompt_chat, OF_CHATS),
        RowKind(
            "alpaca-chat",
            "messages",
            ("instruction", "output"),
            read_alpaca_chat,
            ("input", "system", "history"),
        ),
        RowKind("tags", "tags", ("tokens", "tags"), _tags),
        RowKind("answer", "answer", ("question", "context", "answers"), _answer),
        RowKind("alpaca", "prompt", ("instruction", "output"), read_alpaca, ("input",)),
        RowKind("prompt", "prompt", ("prompt", "completion"), texts_reader("prompt", "completion")),
        RowKind("pair", "pair", ("src", "tgt"), texts_reader("src", "tgt")),
        RowKind("similar", "pair", ("anchor", "positive"), _anchor, ("negative",)),
        RowKind("label", "label", ("text", "label"), _label, ("second",)),
        RowKind("labels", "labels", ("text", "labels"), _several_labels, ("second",)),
        RowKind("score", "score", ("text", "score"), _score, ("second",)),
        RowKind("choice", "choice", ("question", "choices", "answer"), _choice, ("context",)),
        RowKind("text", "text", ("text",), texts_reader("text")),
    )
}
