"""Laws of chats: what a model is trained on is what it is given later, for every template and tokenizer.

The other side is transformers: its `apply_chat_template` renders and encodes the messages before each answer.
"""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import transformers
from chat_templates import KINDS, STYLES, Style, write

from clearhead.data import encode_completions
from clearhead.data.chat_rows import is_trained
from clearhead.text import Tokenizer
from clearhead.text.rendering import compile_template, render

QUESTION = {"role": "user", "content": "What colour is it?"}
TURNS = [
    QUESTION,
    {"role": "assistant", "content": "It is red, I think."},
    {"role": "user", "content": "Again: 你好"},
    {"role": "assistant", "content": "blue"},
    {"role": "user", "content": " Say it."},
    {"role": "assistant", "content": "And nothing else!"},
]
THOUGHT = [{**m, "reasoning_content": f"Let me think {i}."} if i % 2 else m for i, m in enumerate(TURNS)]
CALL = {"type": "function", "id": "call00001", "function": {"name": "weather", "arguments": {"city": "Rome"}}}
CALLING = [
    QUESTION,
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "content": "21 C", "name": "weather", "tool_call_id": "call00001"},
    {"role": "assistant", "content": "21 degrees in Rome."},
]
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "of a city", "parameters": {}}}]


def chats_for(style: Style) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [{"messages": TURNS}, {"messages": TURNS[:2]}]
    context = [{**m, "weight": 0} if i == 3 else m for i, m in enumerate(TURNS)]
    found.append({"messages": context})
    if style.system:
        found.append({"messages": [{"role": "system", "content": "Be kind."}, *TURNS]})
    if style.thinks:
        found.append({"messages": THOUGHT})
        inside = f"<think>\nLet me think.\n</think>\n\n{TURNS[1]['content']}"
        found.append({"messages": [QUESTION, {"role": "assistant", "content": inside}, *TURNS[2:]]})
    if style.tools:
        found.append({"messages": CALLING, "tools": TOOLS})
    return found


@pytest.fixture(autouse=True)
def rendered_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Templates rendered without a process for each call: there are hundreds of them here."""

    def render_chats(template: str, chats: Any) -> list[str]:
        compiled = compile_template(template)
        return [render(compiled, {**values, "messages": messages}) for messages, values in chats]

    monkeypatch.setattr("clearhead.text.tokenizer.render_chats", render_chats)


@pytest.mark.parametrize("bos", [False, True], ids=["", "bos"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", STYLES)
def test_training_ids_are_serving_ids(name: str, kind: str, bos: bool, tmp_path: Path) -> None:
    style = STYLES[name]
    folder = write(tmp_path / "t", kind, bos=bos, chat_template=style.template)
    ours, theirs = Tokenizer.read(folder), transformers.AutoTokenizer.from_pretrained(folder)
    assert ours is not None
    given = [ours.id_of(stop) for stop in style.stops]
    chats = chats_for(style)
    encoded = encode_completions("messages", chats, ours, given)
    assert encoded.stops[: len(given)] == tuple(given)
    for number, chat in enumerate(chats):
        examples = [example for example in encoded.examples if example.row == number]
        answers = [(example, *place) for example in examples for place in example.answers]
        trained = [i for i, message in enumerate(chat["messages"]) if is_trained(message)]
        assert len(answers) == len(trained)
        for (example, start, end), i in zip(answers, trained, strict=True):
            check_answer(example.ids[:start], example.ids[start:end], chat, i, ours, theirs, encoded.stops)
        for example in examples:
            assert sum(example.flags) == sum(end - start for start, end in example.answers)


def check_answer(
    context: list[int],
    answer: list[int],
    chat: dict[str, Any],
    i: int,
    ours: Tokenizer,
    theirs: Any,
    stops: tuple[int, ...],
) -> None:
    messages, tools = chat["messages"], chat.get("tools")
    fed = theirs.apply_chat_template(messages[:i], tools=tools, add_generation_prompt=True, return_dict=True)
    assert context == fed["input_ids"]
    assert [token in stops for token in answer] == [False] * (len(answer) - 1) + [True]
    bos = ours.bos.id
    assert (bos, bos) not in pairwise(context) and bos not in answer
    # What is generated, as text: that which the template writes, or what reasoning it leaves out.
    written = theirs.decode(answer[:-1], skip_special_tokens=False)
    assert not any(m["content"].strip() in written for m in messages if m["role"] in ("user", "tool"))
    content = messages[i]["content"] or '{"name": "weather"'
    visible = content.rpartition("</think>")[2].strip()
    expected = theirs.decode(theirs.encode(visible, add_special_tokens=False))
    assert "".join(expected.split()) in "".join(written.split())


@pytest.mark.parametrize("name", STYLES)
def test_texts_of_answers_are_those_of_the_template(name: str, tmp_path: Path) -> None:
    """Byte-level tokens lose nothing: context and answer are the text of the template, to the letter."""
    style = STYLES[name]
    folder = write(tmp_path / "t", "byte-bpe", chat_template=style.template)
    ours, theirs = Tokenizer.read(folder), transformers.AutoTokenizer.from_pretrained(folder)
    assert ours is not None
    for example in encode_completions(
        "messages", [{"messages": TURNS}], ours, stops_of(style, ours)
    ).examples:
        number = sum(1 for text in ("red, I", "blue", "nothing") if text in ours.decode(example.ids))
        whole = theirs.apply_chat_template(TURNS[: 2 * number], tokenize=False)
        whole += "<|user|>" if name == "glm" else ""  # which ends an answer, and begins the next turn
        read = ours.decode(example.ids, specials=True)
        if name in ("deepseek-r1", "chatml, no thinking"):  # a block that only the generation prompt has
            head, block, tail = read.rpartition("<think>\n\n</think>\n\n")
            assert block
            read = head + tail
        assert whole.startswith(read) and not whole[len(read) :].replace("</s>", "").strip(), (whole, read)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["chatml", "llama-3", "zephyr", "deepseek-v3"])
def test_a_consistent_chat_is_encoded_as_one_text(name: str, kind: str, tmp_path: Path) -> None:
    style = STYLES[name]
    folder = write(tmp_path / "t", kind, chat_template=style.template)
    ours, theirs = Tokenizer.read(folder), transformers.AutoTokenizer.from_pretrained(folder)
    assert ours is not None
    (example,) = encode_completions("messages", [{"messages": TURNS}], ours, stops_of(style, ours)).examples
    whole = theirs.apply_chat_template(TURNS, return_dict=True)["input_ids"]
    size = len(example.ids)
    assert whole[:size] == example.ids and not theirs.decode(whole[size:]).strip()


def stops_of(style: Style, tokenizer: Tokenizer) -> list[int]:
    return [tokenizer.id_of(stop) for stop in style.stops]


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("chatml", 1),
        ("llama-3", 1),
        ("zephyr", 1),
        ("glm", 1),
        ("qwen-3", 3),
        ("deepseek-r1", 3),
        ("plain", 3),
    ],
)
def test_a_chat_is_one_example_where_it_can_be(name: str, count: int, tmp_path: Path) -> None:
    """Qwen 3 strips the empty block of reasoning from earlier turns; "assistant: " and "It" share a token."""
    style = STYLES[name]
    ours = Tokenizer.read(write(tmp_path / "t", "byte-bpe", chat_template=style.template))
    assert ours is not None
    examples = encode_completions("messages", [{"messages": TURNS}], ours, stops_of(style, ours)).examples
    assert len(examples) == count and sum(len(example.answers) for example in examples) == 3
