"""How many tokens of a language-modelling task are trained: the task, or rows of a file, in; counts out.

counts = trained_tokens(prepare(run).task)
counts.trained.mean, counts.tokens.max, counts.without
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

from ..bundle import Bundle
from ..data import BlankError, Row, Schema, Source
from ..errors import DataError, quoted
from ..tasks import CausalLM
from ..text import Tokenizer
from .batch_preview import build_for_preview, task_for

MAX_ROWS = 1000  # of a file


@dataclass(frozen=True)
class TokenSpread:
    """Numbers of tokens: of all examples together, and of one."""

    total: int
    mean: float
    min: int
    max: int

    @classmethod
    def of(cls, counts: Sequence[int]) -> TokenSpread:
        total = sum(counts)
        return cls(total, total / max(len(counts), 1), min(counts, default=0), max(counts, default=0))


@dataclass(frozen=True)
class TrainedTokens:
    """Tokens with loss and all tokens; `without` counts rows (or, of a task, examples) that have none."""

    examples: int
    trained: TokenSpread
    tokens: TokenSpread
    without: int


@dataclass(frozen=True)
class FileCounts:
    """The same for the rows of a file, as training would read them with this model."""

    rows: int  # that were read
    counts: TrainedTokens
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        return {"rows": self.rows, **asdict(self.counts), "notes": list(self.notes)}


def trained_tokens(task: CausalLM, split: str = "train") -> TrainedTokens:
    """Counts over the examples of a split, as they are before packing."""
    if split not in task.splits:
        raise DataError(f"there is no split {split!r}; there are {', '.join(task.splits)}")
    lengths = [len(ids) for ids in task.splits[split]]
    if task.trained is None:
        trained = [max(length - 1, 0) for length in lengths]
    else:
        # The first token of an example is predicted by nothing.
        trained = [sum(flags[1:]) for flags in task.trained[split]]
    without = sum(not count for count in trained)
    return TrainedTokens(len(lengths), TokenSpread.of(trained), TokenSpread.of(lengths), without)


def count_file(
    schema: Schema,
    source: Source,
    tokenizer: Tokenizer,
    base: Bundle | None = None,
    *,
    length: int | None = None,
) -> FileCounts | None:
    """The first rows of a file, up to 1,000; None if these rows are not for a language model that answers.

    Raises `DataError` if training would refuse them: nothing fits, or answers have no end.
    """
    if schema.form == "text" or task_for(schema, base) != "causal":
        return None
    rows = list(islice(_usable_rows(schema, source), MAX_ROWS))
    notes: list[str] = []
    task = build_for_preview(schema, rows, tokenizer, base, length=length, notes=notes)
    counts = trained_tokens(task)
    without = len(rows) - len(set(task.origins["train"]))
    counts = TrainedTokens(counts.examples, counts.trained, counts.tokens, without)
    notes += _special_tokens_in_texts(rows, tokenizer)
    return FileCounts(len(rows), counts, tuple(note.removeprefix("train: ") for note in notes))


def _special_tokens_in_texts(rows: Sequence[Row], tokenizer: Tokenizer) -> list[str]:
    """A note about texts that a model would take for the ends and beginnings of turns."""
    found = []
    for row in rows:
        ids = [i for text in _strings(row) for i in tokenizer.encode(text, specials=False).ids]
        inside = (tokenizer.specials - {tokenizer.unk.id if tokenizer.unk else None}) & set(ids)
        found += [tokenizer.text_of(min(inside))] if inside else []
    if not found:
        return []
    return [
        f"{len(found):,} of {len(rows):,} rows have special tokens of the model in their texts, such as "
        f"{quoted(found[0])}: the model takes them for those of the template"
    ]


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list | tuple):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _strings(part)


def _usable_rows(schema: Schema, source: Source) -> Iterator[Row]:
    for row in source:
        try:
            yield schema.read(row)
        except BlankError:
            continue
