"""Where an answer begins: its text after the generation prompt, and its ids after those of the prompt."""

from pathlib import Path

import pytest
from chat_templates import KINDS, write

from clearhead.data.answers import answer_text, continuation_ids, messages_for_template
from clearhead.errors import DataError
from clearhead.text import Tokenizer

REASONED = {"role": "assistant", "content": "red", "reasoning_content": "hm"}


@pytest.mark.parametrize(
    ("prompt", "whole", "message", "expected"),
    [
        ("Q:q A:", "Q:q A: red.", {"content": "red."}, " red."),
        ("Q:q A: ", "Q:q A:red.", {"content": "red."}, "red."),  # only the space differs
        ("Q:q A:<think>\n", "Q:q A:RED.", {"content": "red"}, "\n</think>\n\nRED."),
        ("Q:q A:<think>\n", "Q:q A:RED.", REASONED, "hm\n</think>\n\nRED."),
        ("Q:q A:<think>\n", "Q:q A:<think>hm</think>red.", REASONED, "hm</think>red."),
        ("Q:q A:<think></think>", "Q:q A:RED.", {"content": "red"}, "RED."),
        ("Q:q A:<think></think>", "Q:q A:<think>\nhm\n</think>\n\nred.", REASONED, "red."),
        ("Q:q A:<eos>", "Q:q B:red.", {"content": "red"}, "red."),  # a special token is no block
        ("1 red A:", "2 red A:red.", {"content": "red"}, "red."),  # the history is another
        ("1 red A:<think>\n", "2 red A:red.", {"content": "red"}, "\n</think>\n\nred."),
    ],
)
def test_what_is_generated_after_a_prompt(prompt: str, whole: str, message: dict, expected: str) -> None:
    assert answer_text(prompt, whole, message) == expected


def test_an_answer_that_cannot_be_found_is_named() -> None:
    with pytest.raises(DataError, match="differently once the answer 'red' follows"):
        answer_text("1 q", "2 q RED", {"content": "red"})


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_continues_another_without_a_space_of_its_own(kind: str, tmp_path: Path) -> None:
    words = Tokenizer.read(write(tmp_path / "t", kind))
    assert words is not None
    for prompt, text in (
        ("assistant: ", "It is red"),
        ("assistant:", " It is red"),
        ("It is r", "ed, I think"),
    ):
        context, whole = (list(words.encode(each, specials=False).ids) for each in (prompt, prompt + text))
        ids = continuation_ids(words, context, whole, text)
        shared = whole[: len(context)] != context  # a token that reaches over the joint
        assert shared == ([*context, *ids] != whole)
        if not (kind == "wordpiece" and shared):  # its words are never joined to those before
            assert words.decode([*context, *ids]) == words.decode(whole)
    if kind != "wordpiece":
        assert shared  # else this is no test


def test_weights_are_not_shown_to_templates() -> None:
    message = {"role": "assistant", "content": "red", "weight": 0, "name": "a"}
    assert messages_for_template({"messages": [message]}) == [
        {"role": "assistant", "content": "red", "name": "a"}
    ]
