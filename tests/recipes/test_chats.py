"""Chats as training rows: what the assistant says is learned, and nothing else; the run can then chat."""

import json
from pathlib import Path

import pytest

import clearhead as ch
from clearhead.cli.main import main
from clearhead.data import encode_completions
from clearhead.errors import DataError, LoadError
from clearhead.text.chat import render_chats
from clearhead.text.tokenizer import Tokenizer
from clearhead.text.training import train_tokenizer

CHATS = [
    {
        "messages": [
            {"role": "user", "content": f"say {word}"},
            {"role": "assistant", "content": f"{word} it is"},
            {"role": "user", "content": "again"},
            {"role": "assistant", "content": word},
        ]
    }
    for word in ("red", "blue", "green", "你好")
]


def tokenizer() -> Tokenizer:
    texts = [message["content"] for row in CHATS for message in row["messages"]]
    return train_tokenizer([*texts, "user: assistant:\n"], "byte-bpe", vocab=400)


def test_what_the_assistant_says_is_learned_and_the_end_of_it() -> None:
    words = tokenizer()
    for row, (ids, flags) in zip(
        CHATS, encode_completions("messages", CHATS, words, words.eos.id), strict=True
    ):
        assert words.decode(ids, specials=True) == words.chat(row["messages"], reply=False)
        learned = words.decode([i for i, flag in zip(ids, flags, strict=True) if flag], specials=True)
        first, second = row["messages"][1]["content"], row["messages"][3]["content"]
        end = words.eos.text
        assert learned == f"{first}{end}\n{second}{end}\n"


def test_a_template_that_rewrites_history_is_refused() -> None:
    words = tokenizer()
    words.set_chat_template("{{ messages | length }}{% for m in messages %}{{ m.content }}{% endfor %}")
    with pytest.raises(DataError, match="renders earlier messages differently"):
        encode_completions("messages", CHATS, words, words.eos.id)


def test_many_chats_are_one_process_and_one_bad_template_one_line() -> None:
    said = render_chats(
        "{{ messages[0].content }}", [([{"role": "user", "content": str(i)}], {}) for i in range(300)]
    )
    assert said == [str(i) for i in range(300)]
    with pytest.raises(LoadError, match="cannot be rendered"):
        render_chats("{{ nobody.home }}", [([{"role": "user", "content": "x"}], {})])


def test_a_run_on_chats_can_chat(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "chats.jsonl").write_text("\n".join(json.dumps(row) for row in CHATS * 12), encoding="utf-8")
    settings = ["--train.steps", "4", "--train.save_every", "4", "--train.schedule.warmup", "1"]
    words = ["train", "gpt-chars", str(tmp_path / "chats.jsonl"), "--out", str(tmp_path / "run"), *settings]
    with pytest.raises(SystemExit) as done:
        main([*words, "--data.valid", str(tmp_path / "chats.jsonl"), "--json"])
    assert done.value.code == 0, capsys.readouterr().err
    bundle = ch.load(tmp_path / "run")
    assert bundle.tokenizer.chat([{"role": "user", "content": "hi"}]) == "user: hi\nassistant: "
