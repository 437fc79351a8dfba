"""`clearhead learn order`: put the steps of a layer, a model or a training step into their order."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Annotated

from cyclopts import Parameter

from ..errors import InputError
from ..learn import (
    Lang,
    OrderPuzzle,
    PuzzleStep,
    example,
    find_puzzle,
    first_fault,
    language,
    parse_order,
    pick,
    puzzles,
)
from .console import ERR, OUT, print_json, table
from .options import Json, Language


def order(
    name: Annotated[str | None, Parameter(help="name of a puzzle (default: the list)")] = None,
    *,
    answer: Annotated[str | None, Parameter(help='the numbers in your order: "3 1 2 4"')] = None,
    hints: Annotated[int, Parameter(help="show the first steps of a right order, this many")] = 0,
    seed: Annotated[int, Parameter(help="another shuffle")] = 0,
    lang: Language = None,
    json: Json = False,
) -> None:
    """Put shuffled steps into their order. Without --answer, orders are read from stdin, one per line.

    Exit 0 when the order is right, 1 when it is not.
    """
    locale = language(lang)
    if name is None:
        _list(locale, json=json)
        return
    puzzle = find_puzzle(name)
    shown = puzzle.shuffled(seed)
    if answer is not None:
        parse_order(answer, len(shown))  # an invalid order is an error before anything is shown
    if json:
        _as_json(puzzle, shown, answer, seed, hints, locale)
        return
    OUT.print(f"[bold]{puzzle.title[locale]}[/]")
    for number, step in enumerate(shown, 1):
        OUT.print(f"  {number}  {step.text[locale]}", markup=False)
    for place in range(1, min(hints, len(shown)) + 1):
        _hint(puzzle, place, locale)
    _play(puzzle, shown, [answer] if answer is not None else _lines(len(shown), locale), locale)


def _play(
    puzzle: OrderPuzzle, shown: Sequence[PuzzleStep], answers: Sequence[str] | Iterator[str], lang: Lang
) -> None:
    fault: int | None = None
    hinted = 0
    for line in answers:
        if line.strip().lower() in ("h", "hint"):
            hinted = min(hinted + 1, len(shown))
            _hint(puzzle, hinted, lang)
            continue
        try:
            ordered = [shown[i] for i in parse_order(line, len(shown))]
        except InputError as error:
            if not _is_interactive():
                raise
            ERR.print(str(error), markup=False)
            continue
        fault = first_fault(ordered)
        _print_result(ordered, fault, lang)
        if fault is None:
            return
    if fault is not None:
        raise SystemExit(1)
    numbers = example(len(shown))
    OUT.print(
        f'\n{pick(lang, "answer", "作答")}  clearhead learn order {puzzle.name} --answer "{numbers}"',
        markup=False,
    )


def _hint(puzzle: OrderPuzzle, place: int, lang: Lang) -> None:
    OUT.print(f"{pick(lang, 'hint', '提示')}  {place}. {puzzle.steps[place - 1].text[lang]}", markup=False)


def _print_result(ordered: Sequence[PuzzleStep], fault: int | None, lang: Lang) -> None:
    if fault is None:
        OUT.print(f"[green]✓[/] {pick(lang, 'Right.', '正确。')}")
        return
    place = pick(lang, f"place {fault + 1} is too early for:", f"第 {fault + 1} 位放得太早：")
    OUT.print(f"[red]✗[/] {place} ", end="")
    OUT.print(ordered[fault].text[lang], markup=False)
    OUT.print(f"  {ordered[fault].why[lang]}", markup=False)


def _is_interactive() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _lines(count: int, lang: Lang) -> Iterator[str]:
    """What is typed, until q or the end of the input; from a pipe, its lines."""
    prompt = pick(
        lang,
        f"your order, such as {example(count)}; h hint, q end: ",
        f"你的顺序，例如 {example(count)}；h 提示，q 结束：",
    )
    while True:
        try:
            line = input(prompt) if _is_interactive() else sys.stdin.readline()
        except EOFError:  # Ctrl-D
            return
        if not line and not _is_interactive():
            return
        if line.strip().lower() in ("q", "quit", "exit"):
            return
        if line.strip():
            yield line


def _as_json(
    puzzle: OrderPuzzle, shown: Sequence[PuzzleStep], answer: str | None, seed: int, hints: int, lang: Lang
) -> None:
    steps = [{"number": number, "step": step.text[lang]} for number, step in enumerate(shown, 1)]
    facts: dict[str, object] = {
        "name": puzzle.name,
        "title": puzzle.title[lang],
        "seed": seed,
        "steps": steps,
    }
    facts["hints"] = [step.text[lang] for step in puzzle.steps[: max(hints, 0)]]
    if answer is None:
        print_json(facts)
        return
    ordered = [shown[i] for i in parse_order(answer, len(shown))]
    fault = first_fault(ordered)
    mistake = None
    if fault is not None:
        step = ordered[fault]
        mistake = {
            "place": fault + 1,
            "number": shown.index(step) + 1,
            "step": step.text[lang],
            "why": step.why[lang],
        }
    print_json({**facts, "solved": fault is None, "wrong": mistake})
    if fault is not None:
        raise SystemExit(1)


def _list(lang: Lang, *, json: bool) -> None:
    if json:
        print_json([{"name": each.name, "title": each.title} for each in puzzles().values()])
        return
    listing = table(pick(lang, "puzzle", "题目"), pick(lang, "put in order", "排出顺序"), no_wrap=(0,))
    for each in puzzles().values():
        listing.add_row(each.name, each.title[lang])
    OUT.print(listing)
    OUT.print(f"\n{pick(lang, 'play', '开始')}  clearhead learn order encoder-layer")
