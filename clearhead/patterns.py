"""Patterns of names: a glob with braces in; the names that it matches out.

`*.attn.{q,v}` is a glob over dotted names: `*` stands for anything, braces for one of several. The name of a
module stands for everything in it, so `tower.blocks.3` matches `tower.blocks.3.attn.q`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from .errors import InputError, quoted

MAX_ALTERNATIVES = 1000  # patterns that braces may expand to


def expand_braces(pattern: str) -> list[str]:
    """`a.{q,v}.b` as `a.q.b` and `a.v.b`, as a shell does; a brace that is not closed stands for itself."""
    done, waiting = list[str](), [pattern]
    while waiting:
        text = waiting.pop()
        close = text.find("}")
        start = text.rfind("{", 0, max(close, 0))
        if close < 0 or start < 0:
            done.append(text)
            continue
        options = text[start + 1 : close].split(",")
        waiting += [text[:start] + option + text[close + 1 :] for option in reversed(options)]
        if len(done) + len(waiting) > MAX_ALTERNATIVES:
            raise InputError(f"{quoted(pattern)} stands for more than {MAX_ALTERNATIVES} patterns")
    return list(dict.fromkeys(done))


class NamePattern:
    """A pattern. With `anywhere` it may also match the end of a name, from a dot on: `attn.q`, `q_proj`."""

    def __init__(self, pattern: str, *, anywhere: bool = False) -> None:
        globs = [glob for each in expand_braces(pattern) for glob in (each, f"{each}.*")]
        self._globs: Sequence[str] = [*globs, *(f"*.{glob}" for glob in globs)] if anywhere else globs

    def matches(self, name: str) -> bool:
        return any(fnmatchcase(name, glob) for glob in self._globs)

    def among(self, names: Iterable[str]) -> list[str]:
        """The names that it matches, in their order."""
        return [name for name in names if self.matches(name)]
