"""Plain words: phrases that readers found odd, or that have a better word in the field, do not come back.

Searched are code with its docstrings, comments and messages, the documents and the studio's sources. A phrase
is listed only if it can be found without false hits; the glossary is in CONTRIBUTING.md.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SEARCHED = (
    "clearhead/**/*.py", "clearhead/**/*.yaml", "studio/src/**/*.ts", "studio/src/**/*.svelte",
    "studio/src/**/*.json", "docs/**/*.md", "README*.md", "CONTRIBUTING.md",
)  # fmt: skip
# The log keeps the words of its time.
APART = ("docs/log.md",)

# A pattern (words; a space matches any white space and the sign of a comment), and what to write instead.
ODD = {
    # English
    r"likeliest": "most likely; of decoding: greedy",
    r"so many": "the number itself, or the name of the argument",
    r"whoever": "who or what it is",
    r"the notes": "the usual textbook listing",
    r"(its|their) kin|cousins?": "similar models; variant",
    r"what is left of": "the remainder, the result",
    r"(thin|front) doors?": "wrapper; embedding; home screen",
    r"this (room|floor)|the house's": "this package, this module",
    r"goe?s? on with|(may|to) go on": "continue, resume",
    r"the way back": "the inverse; the backward pass; export",
    r"mend|mended": "fix",
    r"foretells?|babbles?": "predict; generate",
    r"(guesser|writer) of": "masked language model; language model",
    r"one (text|row|token|object|vector|matrix|line|order) a (text|row|head|line|device|batch|second)": "per",
    r"(?<!there\x20)is no (run|file|folder|size|lexicon|manifest|parquet file|token id)": "is not a ...",
    r"refuse, in one sentence": "raise a one-line error",
    # Chinese
    r"词元": "token",
    r"塔": "层堆叠，编码器，解码器",
    r"写字母的人|猜词的人": "字符级语言模型，掩码语言模型",
    r"看它怎么坏": "看看会出什么问题",
    r"一扇门|在屋里": "封装，代码导览",
    r"写作": "生成",
    r"贪婪|取样": "贪心，采样",
    r"键值缓存": "KV cache",
}


def find_odd_words(text: str) -> Iterator[tuple[int, str, str]]:
    """The line of each hit, what was found, and what to write instead."""
    for pattern, instead in ODD.items():
        for hit in compiled(pattern).finditer(text):
            yield text.count("\n", 0, hit.start()) + 1, " ".join(hit[0].split()), instead


def compiled(pattern: str) -> re.Pattern[str]:
    words = pattern.replace(" ", r"\s+(?:#\s+)?")
    # Chinese has no spaces between words, so there are no boundaries to look for.
    return re.compile(words if re.search("[\u4e00-\u9fff]", pattern) else rf"\b(?:{words})\b", re.IGNORECASE)


def hits() -> dict[str, list[str]]:
    """The hits of each file that has some, as lines to print."""
    found: dict[str, list[str]] = {}
    for path in sorted({path for pattern in SEARCHED for path in ROOT.glob(pattern)}):
        name = path.relative_to(ROOT).as_posix()
        if name not in APART:
            lines = [
                f"{name}:{line}: {words!r}, better: {instead}"
                for line, words, instead in sorted(find_odd_words(path.read_text("utf-8")))
            ]
            if lines:
                found[name] = lines
    return found


def test_no_odd_words() -> None:
    found = [line for lines in hits().values() for line in lines]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    "text, line",
    [
        ('"""What linear attention and its kin share."""', 1),
        ("x = 1\n# keep so\n# many rows\n", 2),
        ('raise InputError(f"{folder} is no run: it has no settings")', 1),
        ('help="one text a line"', 1),
        ('"side.tower": "塔"', 1),
        ("每个词元一个向量", 1),
    ],
)
def test_a_planted_phrase_is_found(text: str, line: int) -> None:
    assert [found[0] for found in find_odd_words(text)] == [line]


@pytest.mark.parametrize(
    "text", ["there is no file here", "as many as so", "recommend amended", "a thin wrapper"]
)
def test_plain_words_are_left_alone(text: str) -> None:
    assert list(find_odd_words(text)) == []
