"""Shapes: the columns and rows of a source in, what a model can learn from them out, with the reason.

The likeliest reading comes first, the others after it. What the user says (`prompt=question`) comes before
everything that can be guessed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from shlex import quote

from ..errors import DataError, InputError, nearest
from .guesses import guesses, is_few, is_prose
from .kinds import KINDS
from .names import ROLES, plain
from .source import Row, Source


@dataclass(frozen=True)
class Shape:
    """What the rows are, and which column plays which role."""

    kind: str  # text pair prompt messages alpaca sharegpt label tags answer
    columns: Mapping[str, str]
    reason: str

    def __str__(self) -> str:
        roles = ", ".join(r if r == c else f"{r}={c}" for r, c in self.columns.items())
        return f"{self.kind} ({roles})"

    @property
    def form(self) -> str:
        """The canonical form its rows take: alpaca rows are prompts, sharegpt rows are messages."""
        return KINDS[self.kind].form

    def read(self, row: Row) -> Row:
        """A raw row as a canonical one. Nothing in it is a `BlankError`, any other fault a `DataError`."""
        return KINDS[self.kind].read(row, self.columns)

    def problem(self, row: Row) -> str | None:
        """What is wrong with a row, if anything."""
        try:
            self.read(row)
        except DataError as error:
            return str(error)
        return None


def detect(source: Source, mapping: Mapping[str, str] | None = None) -> tuple[Shape, ...]:
    """Every reading that fits, the likeliest first; at least one, or an error that says what to do."""
    columns, sample = source.columns, _sample(source)
    if mapping:
        return (_mapped(columns, mapping),)
    found = [Shape(*guess) for guess in guesses(columns, sample, source.note)]
    if not found:
        raise InputError(
            f"cannot tell what the columns {', '.join(columns)[:120]} are for; name them, such as "
            f"{advice(columns, sample)}"
        )
    seen: dict[tuple[str, str], Shape] = {}
    for shape in found:
        seen.setdefault((shape.kind, str(shape)), shape)
    return tuple(seen.values())


def advice(columns: Sequence[str], rows: Sequence[Row]) -> str:
    """Options to try, by what the columns hold: text first, few different values as labels."""
    texts = [column for column in columns if is_prose([row.get(column) for row in rows])] or list(columns)
    labels = [c for c in columns if c not in texts[:1] and is_few([row.get(c) for row in rows])]
    ways = [{"text": texts[0], "label": label} for label in labels[:1]]
    ways += [{"src": texts[0], "tgt": texts[1]}] if len(texts) > 1 else [{"text": texts[0]}]
    return " or ".join(
        "--map " + " ".join(quote(f"{role}={column}") for role, column in way.items()) for way in ways
    )


def parse_map(words: Sequence[str]) -> dict[str, str]:
    """`prompt=question completion=answer` as the user typed it."""
    mapping = {}
    for word in words:
        role, sign, column = word.partition("=")
        if not (role and sign and column):
            raise InputError(f"--map {word}: expected role=column, such as prompt=question")
        mapping[role] = column
    return mapping


def _mapped(columns: Sequence[str], mapping: Mapping[str, str]) -> Shape:
    for role, column in mapping.items():
        if role not in ROLES:
            raise InputError(f"--map {role}={column}: there is no role {role!r}; {nearest(role, ROLES)}")
        if column not in columns and column.partition(".")[0] not in columns:
            raise InputError(
                f"--map {role}={column}: there is no column {column!r}; {nearest(column, columns)}"
            )
    for kind in sorted(KINDS.values(), key=lambda kind: len(kind.roles)):
        if not mapping.keys() <= {*kind.roles, *kind.optional}:
            continue
        filled, left = dict(mapping), [c for c in columns if c not in mapping.values()]
        for role in (*kind.roles, *kind.optional):
            by_name = next((c for c in left if plain(c) in ROLES[role]), None)
            only = left[0] if len(left) == 1 and role in kind.roles else None
            found = by_name or only
            if role not in filled and found:
                filled[role] = found
                left.remove(found)
        if all(role in filled for role in kind.roles):
            said = " ".join(f"{role}={column}" for role, column in mapping.items())
            return Shape(kind.name, filled, f"you said {said}")
    given, wanted = ", ".join(mapping), _completions(mapping)
    raise InputError(f"--map gives {given}; {wanted} as well, from the columns {', '.join(columns)[:100]}")


def _completions(mapping: Mapping[str, str]) -> str:
    """What the kinds that begin like this need besides."""
    ways = [
        " and ".join(role for role in kind.roles if role not in mapping)
        for kind in KINDS.values()
        if mapping.keys() <= {*kind.roles, *kind.optional}
    ]
    return (
        f"name {' or '.join(ways)}"
        if ways
        else "these do not go together; name text and label, or src and tgt"
    )


def _sample(source: Source) -> list[Row]:
    """Some rows, from all over: a file may be sorted by label."""
    count = min(len(source), 500)
    return [source[i * len(source) // count] for i in range(count)]
