"""The Chinese README is a twin of the English one: the same code, the same headings, the same families."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
EN, ZH = ((ROOT / name).read_text() for name in ("README.md", "README.zh-CN.md"))


def blocks(text: str) -> list[str]:
    """Code without its comments, which each page writes in its own language."""
    found = re.findall(r"^```.*?^```", text, flags=re.M | re.S)
    return [re.sub(r" *(?<!\S)#.*$", "", block, flags=re.M) for block in found]


def headings(text: str) -> list[int]:
    outside = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    return [len(line.split(" ")[0]) for line in outside.splitlines() if line.startswith("#")]


def test_the_code_is_the_same() -> None:
    assert blocks(ZH) == blocks(EN) and len(blocks(EN)) > 5


def test_the_headings_are_as_many() -> None:
    assert headings(ZH) == headings(EN)


def test_the_families_are_the_same() -> None:
    rows = [re.findall(r"^\| \S+ \| (\[.* · .*) \|$", text, flags=re.M) for text in (EN, ZH)]
    assert rows[0] == rows[1] and len(rows[0]) == 3


def test_it_is_chinese_and_links_to_the_same_places() -> None:
    assert sum(0x4E00 <= ord(letter) < 0xA000 for letter in ZH) > 600
    links = [re.findall(r"\]\(([^)]+)\)", text) for text in (EN, ZH)]
    assert [*links[0]] == [
        target.replace("README.md", "README.zh-CN.md", 1) if target == "README.md" else target
        for target in links[1]
    ]
