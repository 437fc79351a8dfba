"""Names that columns and files go by: the words people use, by what they mean to a model."""

from __future__ import annotations

import re

# The first word of each list is the role's own name. Lower case; `-` and spaces are read as `_`.
_ROLES = {
    "text": "text content sentence sentence1 sentence_a premise document body review tweet comment paragraph "
    "文本 内容 句子",
    "second": "second sentence2 sentence_b hypothesis text2 text_pair",
    "label": "label labels category class sentiment gold_label entailment_judgment topic intent "
    "标签 类别 分类",
    "src": "src source source_text article document dialogue input_text 原文",
    "tgt": "tgt target target_text summary highlights abstract translation 译文 摘要",
    "prompt": "prompt question query input intent rewritten_intent problem title text 问题 提问 输入",
    "completion": "completion answer response output reply snippet code solution canonical_solution "
    "答案 回答 回复 输出",
    "messages": "messages conversation dialog chat",
    "conversations": "conversations conversation",
    "instruction": "instruction",
    "input": "input",
    "output": "output",
    "tokens": "tokens words",
    "tags": "tags ner_tags pos_tags labels ner tag",
    "question": "question query 问题",
    "context": "context passage paragraph 文章",
    "answers": "answers answer 答案",
}
ROLES = {role: tuple(words.split()) for role, words in _ROLES.items()}
KNOWN = frozenset(word for words in ROLES.values() for word in words) | {"id", "idx", "index"}
CODES = """
ar bg bn ca cs cy da de el en es et eu fa fi fr ga gl he hi hr hu hy id is it ja ka kk ko lt lv mk ms mt nb nl
no pl pt ro ru sk sl sq sr sv sw ta te th tl tr uk ur vi zh cmn eng deu fra rus jpn kor spa
"""
LANGUAGES = frozenset(CODES.split())
SPLITS = {
    "train": ("train", "training", "trn"),
    "valid": ("valid", "val", "validation", "dev", "eval", "heldout"),
    "test": ("test", "testing", "tst"),
}


def plain(name: str) -> str:
    """A column's name as it is compared: `Source Text` is `source_text`."""
    return re.sub(r"[\s-]+", "_", name.strip().casefold())


def is_language(suffix: str) -> bool:
    """`en`, `zh`, and with a region or a script: `zh_CN`, `zh-Hans`."""
    found = re.fullmatch(r"([a-z]{2,3})([_-]([a-z]{2}|[a-z]{4}))?", suffix.lower())
    return found is not None and found[1] in LANGUAGES


def split_of(name: str) -> str | None:
    """train, valid or test, by the words of a file's name."""
    words = re.split(r"[^a-z]+", name.lower())
    return next((split for split, known in SPLITS.items() if any(word in known for word in words)), None)
