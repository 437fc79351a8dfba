"""Chats as people have them in their files: every form is recognised and read without loss."""

import json
from typing import Any

import pytest

from clearhead.cli.main import main
from clearhead.data import BlankError, InMemorySource, detect_schemas
from clearhead.errors import DataError

ASK, ANSWER = {"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}
FUNCTION = {"name": "weather", "description": "of a city", "parameters": {"type": "object", "properties": {}}}
TOOL = {"type": "function", "function": FUNCTION}
CALL = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": {"city": "Rome"}}}


def read(row: dict[str, Any], kind: str) -> dict[str, Any]:
    """The canonical form of a row that must be recognised as this kind."""
    schema = detect_schemas(InMemorySource([row] * 3))[0]
    assert schema.kind == kind
    return schema.read(row)


def messages(row: dict[str, Any], kind: str) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in read(row, kind)["messages"]]


# --- prompts and completions that are lists of messages (TRL) ---


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": [ASK], "completion": [ANSWER]},
        {"prompt": "hi", "completion": [ANSWER]},
        {"prompt": [ASK], "completion": "hello"},
        {"question": [ASK], "response": [ANSWER]},
    ],
)
def test_prompts_and_completions_as_messages(row: dict[str, Any]) -> None:
    assert read(row, "prompt-chat") == {"messages": [ASK, ANSWER]}


def test_answers_of_the_prompt_are_context() -> None:
    row = {"prompt": [ASK, ANSWER, ASK], "completion": [ANSWER, {"role": "tool", "content": "x"}, ANSWER]}
    weights = [message.get("weight", 1) for message in read(row, "prompt-chat")["messages"]]
    assert weights == [1, 0, 1, 1, 1, 1]


def test_named_columns_are_read_as_what_they_hold() -> None:
    row = {"a": [ASK], "b": [ANSWER]}
    schema = detect_schemas(InMemorySource([row]), {"prompt": "a", "completion": "b"})[0]
    assert schema.kind == "prompt-chat" and schema.read(row) == {"messages": [ASK, ANSWER]}
    texts = {"a": "hi", "b": "hello"}
    schema = detect_schemas(InMemorySource([texts]), {"prompt": "a", "completion": "b"})[0]
    assert schema.kind == "prompt" and schema.read(texts) == {"prompt": "hi", "completion": "hello"}


def test_a_completion_without_an_answer_is_named() -> None:
    with pytest.raises(DataError, match="completion has no message of the assistant"):
        read({"prompt": [ASK], "completion": [ASK]}, "prompt-chat")
    with pytest.raises(BlankError, match="completion is empty"):
        read({"prompt": [ASK], "completion": " "}, "prompt-chat")


# --- weights (OpenAI) ---


def test_a_weight_of_zero_is_context() -> None:
    row = {"messages": [ASK, {**ANSWER, "weight": 0}, ASK, {**ANSWER, "weight": 1}]}
    assert read(row, "messages")["messages"] == [ASK, {**ANSWER, "weight": 0}, ASK, ANSWER]
    with pytest.raises(DataError, match=r"weight is 0\.5; expected 0, for context, or 1"):
        read({"messages": [ASK, {**ANSWER, "weight": 0.5}]}, "messages")
    with pytest.raises(BlankError, match="all its assistant messages have weight 0"):
        read({"messages": [ASK, {**ANSWER, "weight": 0}]}, "messages")


# --- tools ---


@pytest.mark.parametrize("tools", [[TOOL], [FUNCTION], json.dumps([TOOL]), json.dumps([FUNCTION])])
def test_tools_are_a_list_or_json_of_one(tools: Any) -> None:
    assert read({"messages": [ASK, ANSWER], "tools": tools}, "messages")["tools"] == [TOOL]
    shared = [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "hello"}]
    assert read({"conversations": shared, "tools": tools}, "sharegpt")["tools"] == [TOOL]
    assert read({"prompt": [ASK], "completion": [ANSWER], "tools": tools}, "prompt-chat")["tools"] == [TOOL]


@pytest.mark.parametrize("tools", [None, "", "[]", []])
def test_rows_without_tools_have_none(tools: Any) -> None:
    assert "tools" not in read({"messages": [ASK, ANSWER], "tools": tools}, "messages")


@pytest.mark.parametrize(
    ("tools", "why"),
    [
        ("{oh", "tools is '{oh'; expected a list of objects, or JSON of one"),
        (3, "tools holds a int; expected"),
    ],
)
def test_broken_tools_are_named(tools: Any, why: str) -> None:
    with pytest.raises(DataError, match=why):
        read({"messages": [ASK, ANSWER], "tools": tools}, "messages")


def test_what_templates_read_of_a_message_is_kept() -> None:
    calling = {"role": "assistant", "content": None, "tool_calls": [CALL], "reasoning_content": "look it up"}
    result = {"role": "tool", "content": "21", "tool_call_id": "1", "name": "weather"}
    given = {"messages": [ASK, calling, result, ANSWER]}
    assert read(given, "messages") == given
    # As OpenAI writes arguments, and as tables fill the keys that a message does not have.
    text = {**CALL, "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}
    empty = {
        "tool_calls": None,
        "tool_call_id": None,
        "name": None,
        "reasoning_content": None,
        "weight": None,
    }
    table = [
        {**empty, **ASK},
        {**empty, **calling, "tool_calls": [text]},
        {**empty, **result},
        {**empty, **ANSWER},
    ]
    assert read({"messages": table}, "messages") == given
    assert read({"messages": [{**ASK, "id": 7, "date": "today"}, ANSWER]}, "messages")["messages"][0] == ASK


def test_an_answer_that_only_calls_a_tool_is_an_answer() -> None:
    calling = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    assert read({"messages": [ASK, calling]}, "messages")["messages"] == [ASK, calling]
    missing = {"role": "assistant", "tool_calls": [CALL]}
    assert read({"messages": [ASK, missing]}, "messages")["messages"] == [ASK, calling]
    with pytest.raises(DataError, match="a tool call is"):
        read(
            {"messages": [ASK, {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}]},
            "messages",
        )


def test_content_in_parts_is_one_text() -> None:
    parts = [{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}]
    assert messages({"messages": [ASK, {**ANSWER, "content": parts}]}, "messages")[1] == (
        "assistant",
        "hello",
    )
    image = [{"type": "image_url", "image_url": {}}]
    with pytest.raises(DataError, match="content holds a list; expected text"):
        read({"messages": [{**ASK, "content": image}, ANSWER]}, "messages")


# --- roles of ShareGPT and Alpaca (LLaMA-Factory) ---


def shared(*turns: tuple[str, str], **more: Any) -> dict[str, Any]:
    return {"conversations": [{"from": role, "value": text} for role, text in turns], **more}


def test_sharegpt_roles() -> None:
    row = shared(("system", "s"), ("human", "a"), ("observation", "b"), ("tool", "c"), ("gpt", "d"))
    roles = [("system", "s"), ("user", "a"), ("tool", "b"), ("tool", "c"), ("assistant", "d")]
    assert messages(row, "sharegpt") == roles
    row = shared(("human", "a"), ("gpt", "d"), system="s")
    assert messages(row, "sharegpt") == [("system", "s"), ("user", "a"), ("assistant", "d")]
    row = shared(("system", "own"), ("human", "a"), ("gpt", "d"), system="s")
    assert messages(row, "sharegpt")[0] == ("system", "own")
    assert messages(shared(("human", "a"), ("gpt", "d"), system=None), "sharegpt")[0] == ("user", "a")


@pytest.mark.parametrize(
    "value",
    [
        '{"name": "weather", "arguments": {"city": "Rome"}}',
        '[{"name": "weather", "arguments": "{\\"city\\": \\"Rome\\"}"}]',
    ],
)
def test_function_calls_of_sharegpt_are_tool_calls(value: str) -> None:
    row = shared(("human", "a"), ("function_call", value), ("observation", "21"), ("gpt", "d"))
    call = read(row, "sharegpt")["messages"][1]
    function = {"name": "weather", "arguments": {"city": "Rome"}}
    expected = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"type": "function", "function": function}],
    }
    assert call == expected


def test_function_calls_that_are_no_json_are_text() -> None:
    row = shared(("human", "a"), ("function_call", "weather(Rome)"), ("gpt", "d"))
    assert messages(row, "sharegpt")[1] == ("assistant", "weather(Rome)")


def test_alpaca_with_system_and_history() -> None:
    row = {"instruction": "add", "input": "1 2", "output": "3", "system": "s", "history": [["q", "a"]]}
    expected = [("system", "s"), ("user", "q"), ("assistant", "a"), ("user", "add\n1 2"), ("assistant", "3")]
    assert messages(row, "alpaca-chat") == expected
    assert all("weight" not in message for message in read(row, "alpaca-chat")["messages"])
    row |= {"system": "", "history": []}
    assert messages(row, "alpaca-chat") == expected[-2:]
    with pytest.raises(DataError, match="history is no list of pairs"):
        read(row | {"history": [["q"]]}, "alpaca-chat")


def test_instruction_and_input_are_joined_by_one_line_break() -> None:
    row = {"instruction": "add", "input": "1 2", "output": "3"}
    assert read(row, "alpaca") == {"prompt": "add\n1 2", "completion": "3"}
    assert read(row | {"input": " "}, "alpaca")["prompt"] == "add"


def test_preference_rows_stay_refused() -> None:
    row = {"prompt": [ASK], "chosen": [ANSWER], "rejected": [ANSWER]}
    with pytest.raises(DataError, match="these are preference rows"):
        detect_schemas(InMemorySource([row]))


def test_data_check_names_every_form(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    forms = {
        "prompt-chat (prompt, completion, tools)": {"prompt": [ASK], "completion": [ANSWER], "tools": [TOOL]},
        "messages (messages, tools)": {"messages": [ASK, ANSWER], "tools": "[]"},
        "sharegpt (conversations, system)": shared(("human", "a"), ("gpt", "b"), system="s"),
        "alpaca-chat (instruction, output, history)": {"instruction": "a", "output": "b", "history": []},
    }
    for name, row in forms.items():
        (tmp_path / "x.jsonl").write_text(json.dumps(row) + "\n")
        with pytest.raises(SystemExit) as ended:
            main(["data", "check", str(tmp_path / "x.jsonl")])
        out = capsys.readouterr().out
        assert ended.value.code == 0 and f"looks like   {name}" in out and "train sft" in out
