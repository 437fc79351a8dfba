"""Rows that every recipe can learn, tiny checkpoints of every family, and which recipes a family has."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from references import KNOWN, Reference

from clearhead.families import Family
from clearhead.recipes import RECIPES, load_run
from clearhead.recipes.builders import BUILDERS
from clearhead.text import train_tokenizer

WORDS = ["red", "green", "blue", "cat", "dog"]
TEXTS = [f"{WORDS[i % 3]} {WORDS[3 + i % 2]} {i % 10}" for i in range(24)]
ROWS = {
    "text": [{"text": ". ".join(TEXTS[i : i + 3]) + "."} for i in range(20)],
    "pair": [{"src": text, "tgt": text[::-1]} for text in TEXTS],
    "prompt": [{"prompt": text, "completion": text[::-1]} for text in TEXTS],
    "label": [{"text": text, "label": text.split()[0]} for text in TEXTS],
    "score": [{"text": text, "text2": TEXTS[i - 1], "score": i / 7} for i, text in enumerate(TEXTS)],
    "choice": [{"question": text, "choices": WORDS[:3], "answer": i % 3} for i, text in enumerate(TEXTS)],
    "tags": [{"tokens": text.split(), "tags": ["B-X", "O", "O"]} for text in TEXTS],
    "answer": [
        {"question": "which colour", "context": text, "answers": [{"text": text.split()[0], "start": 0}]}
        for text in TEXTS
    ],
}
FORMS = {
    "classify": "label", "regress": "score", "embed": "score", "choose": "choice", "tag": "tags",
    "answer": "answer", "translate": "pair", "causal": "text", "masked": "text", "pretrain": "text",
    "denoise": "text",
}  # fmt: skip
HEADS = {
    "classify": "labels", "regress": "labels", "embed": "hidden", "choose": "choice", "tag": "tags",
    "answer": "span", "pretrain": "pretrain",
}  # fmt: skip
LABELS = {"classify": ["blue", "green", "red"], "regress": ["score"], "tag": ["B-X", "O"]}
TINY = ["train.steps=3", "train.valid_every=3", "train.save_every=3", "data.length=32", "batch_size=4"]


def combinations() -> Iterator[tuple[Family, str]]:
    """Every recipe for every family that has its head and its kind of stack."""
    for family in KNOWN.values():
        for recipe in RECIPES:
            task = load_run(recipe).task
            head = HEADS.get(task, "tokens")
            if head not in family.architectures or len(family.architectures) < 2:
                continue
            spec = family.spec(family.config(family.head_config.get(head, {})), head)
            if BUILDERS[task].needs.accepts(spec):
                yield family, recipe


COMBINATIONS = list(combinations())


@cache
def tokenizer_files(frame: str) -> dict[str, bytes]:
    texts = [*TEXTS, *(text[::-1] for text in TEXTS), "which colour"]
    return train_tokenizer(texts, "wordpiece", vocab=90, frame=frame).files


def checkpoint(folder: Path, family: Family, recipe: str) -> Path:
    """A checkpoint of transformers with another head than the recipe needs, and a tokenizer."""
    task = load_run(recipe).task
    needed = HEADS.get(task, "tokens")
    other = next(
        head for head in ("hidden", "tokens", "labels") if head != needed and head in family.architectures
    )
    Reference(family, other, "plain", {}).files(folder)
    for name, data in tokenizer_files("eos" if family.mode == "encoder-decoder" else "cls-sep").items():
        (folder / name).write_bytes(data)
    return folder


def rows_file(folder: Path, recipe: str) -> Path:
    """A file of rows that the recipe can learn."""
    form = "prompt" if recipe == "sft" else FORMS[load_run(recipe).task]
    file = folder / f"{recipe}.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in ROWS[form]))
    return file
