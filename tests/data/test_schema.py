"""Shapes: what rows are is told from the rows, with a reason; what is wrong with a row is named."""

import pytest

from clearhead.data import BlankError, InMemorySource, detect_schemas, parse_map
from clearhead.errors import DataError, InputError

CHAT = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
SHARE = [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "hello"}]
SPAN = {"text": ["b"], "answer_start": [1]}

# Rows as people have them -> kind, roles, canonical first row.
SHAPES = {
    "text": ([{"text": "a b"}], "text", {"text": "text"}, {"text": "a b"}),
    "lines": ([{"文本": "你好"}], "text", {"text": "文本"}, {"text": "你好"}),
    "pair": ([{"src": "a", "tgt": "b"}], "pair", {"src": "src", "tgt": "tgt"}, {"src": "a", "tgt": "b"}),
    "languages": (
        [{"id": 1, "en": "yes", "zh": "是"}],
        "pair",
        {"src": "en", "tgt": "zh"},
        {"src": "yes", "tgt": "是"},
    ),
    "hub": (
        [{"translation": {"en": "yes", "de": "ja"}}],
        "pair",
        {"src": "translation.en", "tgt": "translation.de"},
        {"src": "yes", "tgt": "ja"},
    ),
    "summary": (
        [{"article": "long", "highlights": "short"}],
        "pair",
        {"src": "article", "tgt": "highlights"},
        None,
    ),
    "prompt": (
        [{"prompt": "a", "completion": "b"}],
        "prompt",
        {"prompt": "prompt", "completion": "completion"},
        None,
    ),
    "faq": (
        [{"question": f"q {i}", "answer": f"a {i}", "category": "xy"[i % 2]} for i in range(30)],
        "prompt",
        {"prompt": "question", "completion": "answer"},
        {"prompt": "q 0", "completion": "a 0"},
    ),
    "messages": ([{"messages": CHAT}], "messages", {"messages": "messages"}, {"messages": CHAT}),
    "any name": ([{"talk": CHAT}], "messages", {"messages": "talk"}, {"messages": CHAT}),
    "sharegpt": (
        [{"conversations": SHARE}],
        "sharegpt",
        {"conversations": "conversations"},
        {"messages": CHAT},
    ),
    "alpaca": (
        [{"instruction": "add", "input": "1 2", "output": "3"}],
        "alpaca",
        {"instruction": "instruction", "input": "input", "output": "output"},
        {"prompt": "add\n1 2", "completion": "3"},
    ),
    "alpaca without input": (
        [{"instruction": "add", "input": "", "output": 3}],
        "alpaca",
        {"instruction": "instruction", "input": "input", "output": "output"},
        {"prompt": "add", "completion": "3"},
    ),
    "label": (
        [{"text": f"film {i}", "label": i % 2} for i in range(20)],
        "label",
        {"text": "text", "label": "label"},
        {"text": "film 0", "label": "0"},
    ),
    "two sentences": (
        [{"sentence_A": f"a {i}", "sentence_B": f"b {i}", "entailment_judgment": "YES"} for i in range(9)],
        "label",
        {"text": "sentence_A", "second": "sentence_B", "label": "entailment_judgment"},
        {"text": "a 0", "second": "b 0", "label": "YES"},
    ),
    "tags": (
        [{"tokens": ["EU", "says"], "ner_tags": [3, 0]}],
        "tags",
        {"tokens": "tokens", "tags": "ner_tags"},
        {"tokens": ["EU", "says"], "tags": ["3", "0"]},
    ),
    "answer": (
        [{"id": "7", "question": "who?", "context": "abc", "answers": SPAN}],
        "answer",
        {"question": "question", "context": "context", "answers": "answers"},
        {"question": "who?", "context": "abc", "answers": [{"text": "b", "start": 1}]},
    ),
    "answer found": (
        [{"question": "who?", "context": "abc", "answer": "c"}],
        "answer",
        {"question": "question", "context": "context", "answers": "answer"},
        {"question": "who?", "context": "abc", "answers": [{"text": "c", "start": 2}]},
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_the_shape_is_told_from_the_rows(name: str) -> None:
    rows, kind, columns, canonical = SHAPES[name]
    shape, *_ = detect_schemas(InMemorySource(rows))
    assert (shape.kind, dict(shape.columns)) == (kind, columns)
    assert shape.reason
    if canonical is not None:
        assert shape.read(rows[0]) == canonical
    assert shape.problem(rows[0]) is None


def headless(*columns: list[str]) -> InMemorySource:
    rows = [{f"column{i}": v for i, v in enumerate(row, 1)} for row in zip(*columns, strict=True)]
    return InMemorySource(rows, note="no header")


def test_two_columns_without_names_are_a_label_or_a_pair() -> None:
    films, moods = [f"{i} films were shown" for i in range(20)], ["good", "bad"] * 10
    assert str(detect_schemas(headless(films, moods))[0]) == "label (text=column1, label=column2)"
    chinese = [f"第{i}部电影" for i in range(20)]
    assert str(detect_schemas(headless(films, chinese))[0]) == "pair (src=column1, tgt=column2)"
    assert (
        str(detect_schemas(headless(["Hi.", "Run."], ["嗨。", "跑。"]))[0])
        == "pair (src=column1, tgt=column2)"
    )
    credits = [f"CC-BY 2.0 (France) #{i}" for i in range(20)]
    assert str(detect_schemas(headless(credits, films, chinese))[0]) == "pair (src=column2, tgt=column3)"
    files = ["a.po"] * 20
    assert str(detect_schemas(headless(files, films, chinese))[0]) == "pair (src=column2, tgt=column3)"


def test_other_readings_are_told() -> None:
    rows = SHAPES["faq"][0]
    assert [str(shape) for shape in detect_schemas(InMemorySource(rows))] == [
        "prompt (prompt=question, completion=answer)",
        "label (text=question, label=category)",
    ]


def test_what_the_user_says_comes_first() -> None:
    rows = InMemorySource([{"a": "x", "b": "y", "answer": "z"}])
    shape, *others = detect_schemas(rows, parse_map(["prompt=a"]))
    assert str(shape) == "prompt (prompt=a, completion=answer)" and not others
    assert shape.read(rows[0]) == {"prompt": "x", "completion": "z"}
    assert str(detect_schemas(rows, {"text": "b"})[0]) == "text (text=b)"
    assert (
        str(detect_schemas(InMemorySource([{"a": "x", "b": "y"}]), {"src": "b"})[0]) == "pair (src=b, tgt=a)"
    )
    assert (
        str(detect_schemas(InMemorySource([{"a": "x", "b": "y"}]), {"text": "b", "label": "a"})[0])
        == "label (text=b, label=a)"
    )


def test_columns_nobody_knows_say_what_to_do() -> None:
    with pytest.raises(InputError, match="columns one, two are for; name them, such as --map text=one"):
        detect_schemas(InMemorySource([{"one": "x", "two": "y"}]))
    rows = [{"nr": str(i), "review text": f"a film {i}", "my label": "ab"[i % 2]} for i in range(40)]
    with pytest.raises(InputError, match="--map 'text=review text' 'label=my label'"):
        detect_schemas(InMemorySource(rows))


ANSWER = {"question": "q", "context": "abc"}
FAULTS = [
    ("text", {"text": " "}, BlankError, "text is empty"),
    ("text", {"text": None}, BlankError, "text is empty"),
    ("text", {}, DataError, "there is no text in it"),
    ("text", {"text": {"a": 1}}, DataError, "text holds a dict; expected text"),
    ("text", {"text": True}, DataError, "text holds a bool"),
    ("text", {"text": "a\ud83d"}, DataError, "half a character"),
    ("pair", {"src": "a", "tgt": ""}, BlankError, "tgt is empty"),
    ("pair", {"src": "a", "tgt": ["b", "c"]}, DataError, "tgt holds 2 texts; expected one"),
    ("alpaca", {"instruction": "a", "input": "", "output": ""}, BlankError, "output is empty"),
    ("messages", {"messages": []}, BlankError, "messages is empty"),
    ("messages", {"messages": "hi"}, DataError, "messages holds a str; expected a list"),
    ("messages", {"messages": [{"role": "king", "content": "x"}]}, DataError, "a message of 'king'"),
    ("messages", {"messages": CHAT[:1]}, BlankError, "it has no assistant message"),
    (
        "sharegpt",
        {"conversations": [{"from": "gpt", "value": 3.5}, 7]},
        DataError,
        "expected a list of objects",
    ),
    ("label", {"text": "a", "label": None}, BlankError, "label is empty"),
    (
        "label",
        {"text": "a", "label": ["x"]},
        DataError,
        r"label is \['x'\]; expected a word or a whole number",
    ),
    ("label", {"text": "a", "label": 0.5}, DataError, "label is 0.5"),
    ("tags", {"tokens": ["a", "b"], "ner_tags": ["O"]}, DataError, "2 tokens and 1 tags"),
    ("tags", {"tokens": [], "ner_tags": []}, BlankError, "tokens is empty"),
    ("tags", {"tokens": ["a"], "ner_tags": 3}, DataError, "tags holds a int"),
    (
        "answer",
        ANSWER | {"answers": [{"text": "z", "answer_start": 0}]},
        DataError,
        "is not in the context",
    ),
    ("answer", ANSWER | {"answers": [3]}, DataError, "something else than texts"),
]


@pytest.mark.parametrize(("name", "row", "error", "words"), FAULTS)
def test_what_is_wrong_with_a_row_is_named(name: str, row: dict, error, words: str) -> None:
    shape, *_ = detect_schemas(InMemorySource(SHAPES[name][0]))
    with pytest.raises(DataError, match=words) as caught:
        shape.read(row)
    assert type(caught.value) is error
    assert shape.problem(row) == str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_question_without_an_answer_is_fine() -> None:
    shape, *_ = detect_schemas(InMemorySource(SHAPES["answer"][0]))
    assert shape.read(ANSWER | {"answers": {"text": [], "answer_start": []}})["answers"] == []
