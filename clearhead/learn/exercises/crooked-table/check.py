"""Checks of the fixed file. A failure explains itself in English and Chinese; titles: exercise.yaml."""

import unicodedata


def _columns(text):
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def english(user):
    assert user.cell("cat", 8) == "cat     ", (
        f"got {user.cell('cat', 8)!r}",
        f"得到 {user.cell('cat', 8)!r}",
    )


def chinese(user):
    for word in ("猫", "南瓜", "萬聖節"):
        made = user.cell(word, 8)
        assert made.startswith(word) and _columns(made) == 8, (
            f"{made!r} is {_columns(made)} columns wide",
            f"{made!r} 占 {_columns(made)} 列",
        )


def mixed(user):
    assert _columns(user.cell("AI模型", 12)) == 12, (
        "a word of both scripts is not aligned",
        "中英混排的词没有对齐",
    )
