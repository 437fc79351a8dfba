"""Detection: the columns and a sample of rows in; what a model can learn from them out, most likely first.

A mapping that the user gives (`prompt=question`) takes precedence over every guess.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from shlex import quote

from ..errors import DataError, InputError, nearest
from .guess import column_for_role, guess_schemas, has_few_values, has_messages, is_free_text
from .schema import ROLE_NAMES, ROW_KINDS, normalised_name
from .source import Row, Source


@dataclass(frozen=True)
class Schema:
    """The kind of the rows, and which column has which role."""

    kind: str  # one of ROW_KINDS
    columns: Mapping[str, str]
    reason: str

    def __str__(self) -> str:
        roles = ", ".join(r if r == c else f"{r}={c}" for r, c in self.columns.items())
        return f"{self.kind} ({roles})"

    @property
    def form(self) -> str:
        """The canonical form of its rows: alpaca rows become prompts, sharegpt rows become messages."""
        return ROW_KINDS[self.kind].form

    def read(self, row: Row) -> Row:
        """The canonical form of a raw row. Raises `BlankError` if it is empty, `DataError` if it is wrong."""
        return ROW_KINDS[self.kind].read(row, self.columns)

    def problem(self, row: Row) -> str | None:
        """What is wrong with a row, if anything."""
        try:
            self.read(row)
        except DataError as error:
            return str(error)
        return None


def detect_schemas(source: Source, mapping: Mapping[str, str] | None = None) -> tuple[Schema, ...]:
    """Every schema that fits, most likely first; at least one, or an error that says what to do."""
    # Rows from the whole source, not its first: a file may be sorted by label.
    count = min(len(source), 500)
    sample = [source[i * len(source) // count] for i in range(count)]
    columns = source.columns
    if not columns:
        raise DataError('the rows have no columns; expected some such as {"text": "a film", "label": "good"}')
    if mapping:
        return tuple(_schemas_from_mapping(columns, mapping, sample))
    _refuse_preferences(columns)
    schemas = [Schema(*guess) for guess in guess_schemas(columns, sample, source.note)]
    if not schemas:
        raise InputError(
            f"cannot tell what the columns {', '.join(columns)[:120]} are for; name them, such as "
            f"{_suggest_mappings(columns, sample)}"
        )
    seen: dict[tuple[str, str], Schema] = {}
    for schema in schemas:
        seen.setdefault((schema.kind, str(schema)), schema)
    return tuple(seen.values())


def _refuse_preferences(columns: Sequence[str]) -> None:
    """Rows with a chosen and a rejected answer: learning both as answers would teach the rejected one."""
    by_name = {normalised_name(column): column for column in columns}
    if not {"chosen", "rejected"} <= by_name.keys():
        return
    chosen, prompt = by_name["chosen"], column_for_role("prompt", columns)
    if "instruction" in by_name:
        roles = {"instruction": by_name["instruction"], "output": chosen}
    else:
        roles = {"prompt": prompt, "completion": chosen} if prompt else {"text": chosen}
    option = " ".join(quote(f"{role}={column}") for role, column in roles.items())
    raise DataError(
        f"these are preference rows ({', '.join(columns)[:80]}), which no task here learns from yet; "
        f"to learn the chosen answers alone: --map {option}"
    )


def _suggest_mappings(columns: Sequence[str], rows: Sequence[Row]) -> str:
    """Options to try, by what the columns hold: text first, few different values as labels."""
    texts = [c for c in columns if is_free_text([row.get(c) for row in rows])] or list(columns)
    texts.sort(key=lambda c: -sum(len(str(row.get(c))) for row in rows))  # ids are shorter than texts
    labels = [c for c in columns if c not in texts[:1] and has_few_values([row.get(c) for row in rows])]
    options = [{"text": texts[0], "label": label} for label in labels[:1]]
    options += [{"src": texts[0], "tgt": texts[1]}] if len(texts) > 1 else [{"text": texts[0]}]
    return " or ".join(
        "--map " + " ".join(quote(f"{role}={column}") for role, column in option.items())
        for option in options
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


def _schemas_from_mapping(
    columns: Sequence[str], mapping: Mapping[str, str], sample: Sequence[Row]
) -> list[Schema]:
    """Every kind that has the given roles and whose other roles are found by name, simplest first."""
    schemas = []
    _check_mapping(columns, mapping)
    for kind in sorted(ROW_KINDS.values(), key=lambda kind: len(kind.roles)):
        if not mapping.keys() <= {*kind.roles, *kind.optional}:
            continue
        filled, free = dict(mapping), [c for c in columns if c not in mapping.values()]
        for role in (*kind.roles, *kind.optional):
            by_name = column_for_role(role, free)
            only = free[0] if len(free) == 1 and role in kind.roles else None
            column_of_role = by_name or only
            if role not in filled and column_of_role:
                filled[role] = column_of_role
                free.remove(column_of_role)
        of_messages = has_messages([filled[role] for role in kind.roles if role in filled], sample)
        if kind.name in ("prompt", "prompt-chat") and of_messages != (kind.name == "prompt-chat"):
            continue  # these have the same columns
        if all(role in filled for role in kind.roles):
            typed = " ".join(f"{role}={column}" for role, column in mapping.items())
            schemas.append(Schema(kind.name, filled, f"you gave {typed}"))
    if schemas:
        return schemas
    given, missing = ", ".join(mapping), _completions(mapping)
    raise InputError(f"--map gives {given}; {missing} as well, from the columns {', '.join(columns)[:100]}")


def _check_mapping(columns: Sequence[str], mapping: Mapping[str, str]) -> None:
    """Roles and columns that exist."""
    for role, column in mapping.items():
        if role not in ROLE_NAMES:
            raise InputError(f"--map {role}={column}: there is no role {role!r}; {nearest(role, ROLE_NAMES)}")
        begin_alike = column.endswith("*") and any(name.startswith(column[:-1]) for name in columns)
        if column not in columns and column.partition(".")[0] not in columns and not begin_alike:
            raise InputError(
                f"--map {role}={column}: there is no column {column!r}; {nearest(column, columns)}"
            )


def _completions(mapping: Mapping[str, str]) -> str:
    """The roles that are missing for each kind that has the given ones."""
    options = [
        " and ".join(role for role in kind.roles if role not in mapping)
        for kind in ROW_KINDS.values()
        if mapping.keys() <= {*kind.roles, *kind.optional}
    ]
    return (
        f"name {' or '.join(options)}"
        if options
        else "these do not go together; name text and label, or src and tgt"
    )
