"""Lessons: pages of Markdown in two languages, found by name.

The sources are `docs/learn` and `docs/projects`; an installed package carries copies of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ..errors import InputError, nearest
from .language import Lang

LANGUAGES: tuple[Lang, ...] = ("en", "zh")
# The first digit of a page's number -> its heading.
LEVELS: Mapping[str, Mapping[Lang, str]] = {
    "1": {"en": "Level 1: the basics", "zh": "第 1 级：基础理解"},
    "2": {"en": "Level 2: the whole Transformer", "zh": "第 2 级：核心掌握"},
    "3": {"en": "Level 3: variants and fine-tuning", "zh": "第 3 级：进阶应用"},
    "4": {"en": "Level 4: efficiency, long texts, multimodal", "zh": "第 4 级：研究前沿"},
    "p": {"en": "Projects", "zh": "实战项目"},
    "9": {"en": "To keep", "zh": "速查与面试"},
}

TRADITIONAL = {"vampire"}  # lessons whose Chinese page is in traditional script


@dataclass(frozen=True)
class Lesson:
    name: str
    level: str
    title: Mapping[Lang, str]
    files: Mapping[Lang, Path]

    def text(self, lang: Lang) -> str:
        return self.files[lang].read_text(encoding="utf-8")

    def tag(self, lang: Lang) -> str:
        """The language and script of a page, as HTML names them."""
        return lang if lang == "en" else "zh-Hant" if self.name in TRADITIONAL else "zh-Hans"


def lessons_dir() -> Path:
    """Beside this file in an installed package, in `docs` of a checkout."""
    packed = Path(__file__).parent / "pages"
    return packed if packed.is_dir() else Path(__file__).parents[2] / "docs"


@lru_cache(1)
def lessons() -> dict[str, Lesson]:
    """All lessons by name, in the order of the path."""
    pages = [(path.name[0], path) for path in sorted((lessons_dir() / "learn" / "en").glob("*.md"))]
    pages += [("p", path) for path in sorted((lessons_dir() / "projects" / "en").glob("*.md"))]
    if not pages:
        raise InputError(
            f"the lessons are missing: {lessons_dir()} has no learn/en/*.md; install clearhead again"
        )
    order = list(LEVELS)
    found = [_read(level, path) for level, path in sorted(pages, key=lambda page: order.index(page[0]))]
    return {lesson.name: lesson for lesson in found}


def find_lesson(name: str) -> Lesson:
    if name not in lessons():
        raise InputError(f"there is no lesson {name!r}; {nearest(name, lessons())}")
    return lessons()[name]


def neighbours(lesson: Lesson) -> tuple[Lesson | None, Lesson | None]:
    """The lesson before and the one after, in the order of the path."""
    path = list(lessons().values())
    at = path.index(lesson)
    return path[at - 1] if at else None, path[at + 1] if at + 1 < len(path) else None


def _read(level: str, path: Path) -> Lesson:
    files: dict[Lang, Path] = {lang: path.parents[1] / lang / path.name for lang in LANGUAGES}
    titles = {lang: file.read_text(encoding="utf-8").split("\n", 1)[0] for lang, file in files.items()}
    name = path.stem if level == "p" else path.stem.split("-", 2)[2]
    return Lesson(name, level, {lang: title.removeprefix("# ") for lang, title in titles.items()}, files)
