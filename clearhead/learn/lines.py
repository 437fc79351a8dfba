"""The line explainer: a name in; the real source of a few functions out, with an explanation of each line.

The source is read as text, so nothing is imported. The reasons are data: lines.yaml.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

import yaml

from ..errors import InputError, nearest
from .language import Lang

PRIMER = "clearhead.primer.numpy"


@dataclass(frozen=True)
class Line:
    code: str
    why: Mapping[Lang, str] | None  # None: the line explains itself


@dataclass(frozen=True)
class Function:
    name: str  # where it is, as in clearhead.primer.numpy.heads.split_heads
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Walk:
    """An explanation of several related functions."""

    name: str
    title: Mapping[Lang, str]
    reasons: Mapping[str, list[dict[str, str]]]  # "module.function" -> its lines that have a reason

    def functions(self) -> list[Function]:
        return [_explained(where, reasons) for where, reasons in self.reasons.items()]


@lru_cache(1)
def walks() -> dict[str, Walk]:
    text = (files("clearhead.learn") / "lines.yaml").read_text(encoding="utf-8")
    return {
        name: Walk(name, facts["title"], facts["functions"]) for name, facts in yaml.safe_load(text).items()
    }


def find_walk(name: str) -> Walk:
    if name not in walks():
        raise InputError(f"there is no explanation {name!r}; {nearest(name, walks())}")
    return walks()[name]


def source_of(where: str) -> list[str]:
    """The lines of a function of the primer, "module.function", without its docstring."""
    module, function = where.split(".")
    text = (files(PRIMER) / f"{module}.py").read_text(encoding="utf-8")
    node = next(
        each for each in ast.parse(text).body if isinstance(each, ast.FunctionDef) and each.name == function
    )
    lines = text.splitlines()
    first, last = node.lineno - 1, node.end_lineno
    if ast.get_docstring(node) is None:
        return lines[first:last]
    doc = node.body[0]
    return lines[first : doc.lineno - 1] + lines[doc.end_lineno : last]


def _explained(where: str, reasons: list[dict[str, str]]) -> Function:
    explained = []
    for code in source_of(where):
        found = [reason for reason in reasons if code.strip().startswith(reason["line"])]
        explained.append(Line(code, {"en": found[0]["en"], "zh": found[0]["zh"]} if found else None))
    return Function(f"{PRIMER}.{where}", tuple(explained))
