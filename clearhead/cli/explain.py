"""`clearhead learn lines`: the source of attention and of a layer, with an explanation of each line."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter
from rich.padding import Padding
from rich.syntax import Syntax
from rich.text import Text

from ..learn import Lang, find_walk, language, pick, walks
from .console import OUT, READABLE_WIDTH, print_json, table
from .options import Json, Language


def lines(
    name: Annotated[str | None, Parameter(help="name of an explanation (default: the list)")] = None,
    *,
    lang: Language = None,
    json: Json = False,
) -> None:
    """Explain code line by line: attention, multi-head, encoder-layer. Without a name: the list."""
    locale = language(lang)
    if name is None:
        _list(locale, json=json)
        return
    walk = find_walk(name)
    if json:
        functions = [
            {
                "name": function.name,
                "lines": [
                    {"code": line.code, "why": line.why and line.why[locale]} for line in function.lines
                ],
            }
            for function in walk.functions()
        ]
        print_json({"name": walk.name, "title": walk.title[locale], "functions": functions})
        return
    python = Syntax("", "python", theme="ansi_dark", background_color="default")
    OUT.print(f"[bold]{walk.title[locale]}[/]")
    for function in walk.functions():
        OUT.print(f"\n[dim]{function.name}[/]")
        for line in function.lines:
            code = python.highlight(line.code)
            code.rstrip()
            OUT.print(code)
            if line.why is not None:
                depth = len(line.code) - len(line.code.lstrip())
                why = Padding(Text("↳ " + line.why[locale], style="green"), (0, 0, 0, depth))
                OUT.print(why, width=min(OUT.width, READABLE_WIDTH), soft_wrap=False)


def _list(lang: Lang, *, json: bool) -> None:
    if json:
        print_json([{"name": each.name, "title": each.title} for each in walks().values()])
        return
    listing = table(pick(lang, "name", "名称"), pick(lang, "what is explained", "讲解内容"), no_wrap=(0,))
    for each in walks().values():
        listing.add_row(each.name, each.title[lang])
    OUT.print(listing)
    OUT.print(f"\n{pick(lang, 'read', '阅读')}  clearhead learn lines attention")
