"""Four short chats, a tokenizer for them, and a tiny checkpoint that is prepared to learn them."""

import json
from pathlib import Path
from typing import Any

import clearhead as ch
from clearhead.recipes import PreparedRun, load_run, prepare
from clearhead.text import Tokenizer, train_tokenizer

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
CLEAN = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ eos_token }}{% endfor %}"  # no shared tokens
ENDLESS = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"


def tokenizer(template: str | None = None) -> Tokenizer:
    texts = [f"assistant: {message['content']}" for row in CHATS for message in row["messages"]]
    words = train_tokenizer(texts * 2, "byte-bpe", vocab=400)
    if template is not None:
        words.set_chat_template(template)
    return words


def write(file: Path, rows: list[dict[str, Any]]) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def saved(folder: Path, words: Tokenizer, width: int = 16, **config: Any) -> Path:
    """A tiny checkpoint with this tokenizer."""
    base = ch.build("gpt2", vocab_size=words.vocab, n_embd=width, n_layer=1, n_head=2, n_positions=96)
    assert words.eos is not None
    base.tokenizer = words
    base.config |= {"eos_token_id": words.eos.id, "bos_token_id": words.eos.id, **config}
    ch.save(base, folder)
    return folder


def prepared(
    folder: Path, words: Tokenizer, rows: list[dict[str, Any]] = CHATS, *more: str, **config: Any
) -> PreparedRun:
    file, base = write(folder / "chats.jsonl", rows), saved(folder / "base", words, **config)
    settings = [f"data.source={file}", f"data.valid={file}", f"model.family={base}", *more]
    return prepare(load_run("sft", settings))
