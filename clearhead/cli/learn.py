"""`clearhead learn`: lessons, experiments, the clinic, the ordering game and cards, in a terminal."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter
from rich.cells import cell_len
from rich.console import Console

from ..errors import InputError
from ..learn import LEVELS, Lang, Lesson, draw_cards, find_lesson, language, lessons, neighbours, pick
from .clinic import clinic
from .console import ERR, OUT, READABLE_WIDTH, print_json
from .explain import lines
from .options import Json, Language
from .ordering import order
from .page import Page, html, save_html
from .tries import attempt

learn = App(
    name="learn", help="Learn Transformers: lessons, experiments, exercises, an ordering game, flash cards."
)
learn.command(clinic)
learn.command(attempt, name="try")
learn.command(order)
learn.command(lines)


@learn.default
def read(
    lesson: Annotated[str | None, Parameter(help="name of a lesson (default: the list)")] = None,
    *,
    save: Annotated[Path | None, Parameter(help="write a printable page: FILE.html")] = None,
    lang: Language = None,
    json: Json = False,
) -> None:
    """Without a name, the path through the lessons; with one, the lesson."""
    locale = language(lang)
    if lesson is None:
        if save is not None:
            raise InputError("--save needs a lesson: clearhead learn cheatsheet --save cheatsheet.html")
        _list(locale, json=json)
        return
    chosen = find_lesson(lesson)
    if save is not None:
        folder, title = chosen.files[locale].parent, chosen.title[locale]
        page = html(
            chosen.text(locale), name=chosen.name, title=title, lang=chosen.tag(locale), folder=folder
        )
        save_html(save, page)
        ERR.print(f"{pick(locale, 'saved', '已保存')}  {save}", markup=False)
        return
    if json:
        before, after = (each and each.name for each in neighbours(chosen))
        facts = {"name": chosen.name, "title": chosen.title[locale], "previous": before, "next": after}
        print_json({**facts, "text": chosen.text(locale)})
        return
    terminal = Console(highlight=False, width=min(OUT.width, READABLE_WIDTH))
    terminal.print(Page(chosen.text(locale)))
    OUT.print(_neighbour_links(chosen, locale), style="dim", markup=False)


def _neighbour_links(lesson: Lesson, lang: Lang) -> str:
    """The previous and the next lesson."""
    before, after = neighbours(lesson)
    parts = []
    if before is not None:
        parts.append(pick(lang, f"← previous: {before.name}", f"← 上一课：{before.name}"))
    if after is not None:
        parts.append(pick(lang, f"next: {after.name} →", f"下一课：{after.name} →"))
    return "\n" + "   ".join(parts)


def _list(lang: Lang, *, json: bool) -> None:
    if json:
        print_json(
            [{"name": each.name, "level": each.level, "title": each.title} for each in lessons().values()]
        )
        return
    width = max(map(len, lessons())) + 2
    for level, heading in LEVELS.items():
        level_lessons = [lesson for lesson in lessons().values() if lesson.level == level]
        OUT.print(f"[bold]{heading[lang]}[/]")
        for lesson in level_lessons:
            OUT.print(f"  {lesson.name:<{width}}{lesson.title[lang]}", markup=False)
    OUT.print()
    for en, zh, command in (
        ("read", "阅读", "clearhead learn attention"),
        ("measure", "实验", "clearhead learn try"),
        ("code", "写代码", "clearhead learn clinic"),
        ("arrange", "排顺序", "clearhead learn order"),
        ("line by line", "逐行讲解", "clearhead learn lines"),
        ("remember", "记忆", "clearhead learn cards"),
    ):
        words = pick(lang, en, zh)
        OUT.print(words + " " * (14 - cell_len(words)) + command, markup=False)


@learn.command
def cards(
    *,
    count: Annotated[int | None, Parameter(help="at most this many")] = None,
    seed: Annotated[int | None, Parameter(help="shuffle them")] = None,
    show: Annotated[bool, Parameter(negative="", help="show the answers at once")] = False,
    lang: Language = None,
    json: Json = False,
) -> None:
    """Questions one by one; Enter shows the answer, q ends. Outside a terminal: all, with answers."""
    locale = language(lang)
    chosen = draw_cards(count, seed)
    if json:
        print_json([{"question": card.question[locale], "answer": card.answer[locale]} for card in chosen])
        return
    interactive = sys.stdin.isatty() and sys.stdout.isatty() and not show
    for number, card in enumerate(chosen, 1):
        OUT.print(f"[bold]{number}/{len(chosen)}[/]  ", end="")
        OUT.print(card.question[locale], markup=False)
        if interactive and _asked_to_quit(
            pick(locale, "  [Enter] answer, [q] end ", "  [回车] 看答案，[q] 结束 ")
        ):
            return
        OUT.print(f"      {card.answer[locale]}\n", markup=False)


def _asked_to_quit(question: str) -> bool:
    try:
        return input(question).strip().lower() in ("q", "quit", "exit")
    except EOFError:  # Ctrl-D
        OUT.print()
        return True
