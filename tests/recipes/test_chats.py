"""Chats as training rows: what the assistant says is learned, and nothing else; the run can then chat."""

import json
from pathlib import Path

import pytest

import clearhead as ch
from clearhead.cli.main import main
from clearhead.data import InMemorySource, detect_schemas, encode_completions
from clearhead.errors import DataError, LoadError
from clearhead.recipes import load_run, prepare
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


def test_an_answer_ends_with_the_token_at_which_generation_stops(tmp_path: Path) -> None:
    """A template that never writes the end token would teach a model to talk on."""
    words = tokenizer()
    words.set_chat_template("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}")
    base = ch.build("gpt2", vocab_size=words.vocab, n_embd=16, n_layer=1, n_head=2, n_positions=64)
    base.tokenizer, base.config["eos_token_id"] = words, words.eos.id
    file = tmp_path / "chats.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in CHATS))
    ch.save(base, tmp_path / "base")
    run = load_run("sft", [f"data.source={file}", f"data.valid={file}", f"model.family={tmp_path / 'base'}"])
    prepared = prepare(run)
    assert any("it is added, so that answers end" in note for note in prepared.notes)
    for ids, flags in zip(prepared.task.splits["train"], prepared.task.trained["train"], strict=True):
        assert ids[-1] == words.eos.id and flags[-1] == 1 and ids.count(words.eos.id) == 1


def test_alpaca_rows_with_a_system_prompt_and_history_are_chats() -> None:
    row = {
        "instruction": "and in winter?",
        "input": "",
        "output": "cold",
        "system": "answer in one word",
        "history": [["how is summer?", "hot"]],
    }
    schema = detect_schemas(InMemorySource([row] * 3))[0]
    assert schema.kind == "alpaca-chat"
    said = [(message["role"], message["content"]) for message in schema.read(row)["messages"]]
    assert said == [
        ("system", "answer in one word"),
        ("user", "how is summer?"),
        ("assistant", "hot"),
        ("user", "and in winter?"),
        ("assistant", "cold"),
    ]
    plain = {key: row[key] for key in ("instruction", "input", "output")}
    assert detect_schemas(InMemorySource([plain] * 3))[0].kind == "alpaca"
    tools = {"conversations": [{"from": "human", "value": "a"}, {"from": "observation", "value": "b"},
                               {"from": "gpt", "value": "c"}], "system": "s"}  # fmt: skip
    roles = [m["role"] for m in detect_schemas(InMemorySource([tools] * 2))[0].read(tools)["messages"]]
    assert roles == ["system", "user", "tool", "assistant"]
