"""`clearhead learn clinic`: code to fix and code to implement, a file at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter
from rich.markup import escape
from rich.syntax import Syntax

from ..learn import (
    Exercise,
    ExerciseKind,
    Lang,
    Verdict,
    check_exercise,
    exercises,
    find_exercise,
    language,
    pick,
    progress,
    write_exercise,
)
from .console import ERR, OUT, print_json, table
from .options import Json, Language

# The kinds of exercises in the order of the list: heading, then the name of the column that describes one.
EXERCISE_KINDS: dict[ExerciseKind, dict[Lang, tuple[str, str]]] = {
    "implement": {"en": ("Implement it yourself", "what to write"), "zh": ("自己实现", "要写什么")},
    "fix": {"en": ("Fix broken code", "what is wrong"), "zh": ("修复代码", "问题")},
}

clinic = App(
    name="clinic",
    help="Implement the parts yourself, and fix bugs that are often copied; each with checks and hints.",
)


@clinic.default
def show(
    name: Annotated[str | None, Parameter(help="name of an exercise (default: the list)")] = None,
    *,
    lang: Language = None,
    json: Json = False,
) -> None:
    """List the exercises, or show one."""
    locale = language(lang)
    if name is not None:
        _show(find_exercise(name), locale, json=json)
        return
    done = progress.solved()
    if json:
        facts = [
            {"name": each.name, "kind": each.kind, "title": each.title, "solved": each.name in done}
            for each in exercises().values()
        ]
        print_json(facts)
        return
    width = max(map(len, exercises()))
    for kind, words in EXERCISE_KINDS.items():
        heading, about = words[locale]
        OUT.print(f"[bold]{heading}[/]")
        listing = table("", f"{pick(locale, 'exercise', '练习'):<{width}}", about, no_wrap=(0, 1))
        for each in exercises().values():
            if each.kind == kind:
                listing.add_row("[green]✓[/]" if each.name in done else " ", each.name, each.title[locale])
        OUT.print(listing)
        OUT.print()
    solved = f"{len(done & {*exercises()})} / {len(exercises())}"
    OUT.print(f"{pick(locale, 'solved', '已完成')} {solved}")
    command = "clearhead learn clinic start implement-attention --to my_code.py"
    OUT.print(f"{pick(locale, 'begin', '开始')}  {command}")


def _show(exercise: Exercise, lang: Lang, *, json: bool) -> None:
    if json:
        facts = {
            "name": exercise.name,
            "kind": exercise.kind,
            "title": exercise.title,
            "story": exercise.story,
            "checks": exercise.checks,
        }
        print_json({**facts, "code": exercise.code("broken"), "hints": exercise.hints})
        return
    OUT.print(f"[bold]{escape(exercise.title[lang])}[/]\n")
    OUT.print(escape(exercise.story[lang]) + "\n")
    OUT.print(Syntax(exercise.code("broken"), "python", background_color="default"))
    for check in exercise.checks.values():
        OUT.print(f"  ○ {escape(check[lang])}")
    OUT.print(f"\n{pick(lang, 'begin', '开始')}  clearhead learn clinic start {exercise.name} --to my_fix.py")


@clinic.command
def start(
    name: Annotated[str, Parameter(help="name of an exercise")],
    *,
    to: Annotated[str | None, Parameter(help="file to write (default: NAME.py)")] = None,
    lang: Language = None,
    json: Json = False,
) -> None:
    """Copy the broken file or the skeleton to yours, ready to edit."""
    exercise, locale = find_exercise(name), language(lang)
    path = Path(to or f"{name.replace('-', '_')}.py")
    write_exercise(exercise, path, locale)
    if json:
        print_json({"name": name, "file": str(path)})
        return
    OUT.print(f"{pick(locale, 'written', '已写入')}  {path}", markup=False)
    OUT.print(
        f"{pick(locale, 'edit it, then', '改好之后')}  clearhead learn clinic check {name} {path}",
        markup=False,
    )


@clinic.command
def check(
    name: Annotated[str, Parameter(help="name of an exercise")],
    file: Annotated[str, Parameter(help="your file")],
    *,
    limit: Annotated[float, Parameter(help="time limit in seconds")] = 30.0,
    lang: Language = None,
    json: Json = False,
) -> None:
    """Check your file. Exit 0 when every check passes, 1 when not; each failure shows one more hint."""
    exercise, locale = find_exercise(name), language(lang)
    verdict = check_exercise(exercise, Path(file), limit)
    progress.note(name, passed=verdict.solved)
    shown = min(progress.failures(name), len(exercise.hints[locale]))
    if json:
        checks = [
            {
                "check": outcome.check,
                "passed": outcome.passed,
                "detail": outcome.detail.get(locale, ""),
                "means": exercise.checks[outcome.check],
            }
            for outcome in verdict.outcomes
        ]
        error = verdict.error.get(locale, "")
        facts = {"name": name, "solved": verdict.solved, "error": error, "checks": checks}
        print_json({**facts, "hints": [] if verdict.solved else exercise.hints[locale][:shown]})
    else:
        _print_verdict(exercise, verdict, locale, shown, file)
    if not verdict.solved:
        raise SystemExit(1)


def _print_verdict(exercise: Exercise, verdict: Verdict, lang: Lang, hints: int, file: str) -> None:
    if verdict.printed.strip():
        ERR.print(pick(lang, "your file printed:", "你的文件输出了："), style="dim")
        ERR.print(verdict.printed.rstrip(), style="dim", markup=False)
    OUT.print(f"[bold]{exercise.name}[/]  {escape(exercise.title[lang])}")
    if verdict.error:
        OUT.print(f"  [red]✗[/] {escape(verdict.error[lang])}")
    for outcome in verdict.outcomes if not verdict.error else ():
        mark = "[green]✓[/]" if outcome.passed else "[red]✗[/]"
        detail = f"  [dim]{escape(outcome.detail[lang])}[/]" if outcome.detail else ""
        OUT.print(f"  {mark} {escape(exercise.checks[outcome.check][lang])}{detail}")
    if verdict.solved:
        praise = pick(lang, "Fixed." if exercise.kind == "fix" else "It works.", "通过。")
        OUT.print(f"\n[green]{praise}[/] {escape(exercise.why[lang])}")
        return
    for number, hint in enumerate(exercise.hints[lang][:hints], 1):
        OUT.print(f"\n{pick(lang, 'hint', '提示')} {number}/{len(exercise.hints[lang])}  {escape(hint)}")
    OUT.print(
        f"\n{pick(lang, 'again', '再次检查')}  clearhead learn clinic check {exercise.name} {file}",
        markup=False,
    )


@clinic.command
def hint(
    name: Annotated[str, Parameter(help="name of an exercise")], *, lang: Language = None, json: Json = False
) -> None:
    """Show all hints of an exercise at once."""
    exercise, locale = find_exercise(name), language(lang)
    if json:
        print_json(exercise.hints[locale])
        return
    for number, text in enumerate(exercise.hints[locale], 1):
        OUT.print(f"{number}  {text}", markup=False)
