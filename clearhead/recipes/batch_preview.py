"""What training makes of a row: the row and a tokenizer in; the tokens a model is fed out, as text.

The task is built by the builder that training uses, and its batch is decoded: special tokens, templates and
cuts are those of training. Each segment says whether the loss counts it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, Literal

from ..bundle import Bundle
from ..data import IGNORE_INDEX, Row, Schema, preview
from ..errors import DataError
from ..text import Tokenizer
from ..train import Training
from . import builders
from .rows import Dataset
from .settings import DataConfig, RunConfig

Segments = list[tuple[str, bool]]
PREVIEW_LENGTH = 512
# The others are called like their task.
RECIPE_OF_TASK = {"causal": "lm", "masked": "mlm", "spans": "denoise"}


def preview_batch(
    schema: Schema,
    row: Row,
    tokenizer: Tokenizer,
    base: Bundle | None = None,
    *,
    labels: Sequence[str] = (),
    length: int | None = None,
) -> Segments:
    """`row` as `schema.read` gives it; `base` is the model to fine-tune, `labels` are those of the file.

    A row that training would leave out (a question without an answer) is shown as it is in the file.
    """
    rows = [row]
    if schema.form == "score":  # a range needs two scores
        rows.append({**row, "score": row["score"] + 1})
    try:
        built = build_for_preview(schema, rows, tokenizer, base, labels=labels, length=length)
    except DataError:
        return preview(schema.form, row)
    read = BATCH_READERS[task_for(schema, base)]
    return [segment for segment in read(built, row, tokenizer) if segment[0]]


def build_for_preview(
    schema: Schema,
    rows: list[Row],
    tokenizer: Tokenizer,
    base: Bundle | None,
    *,
    labels: Sequence[str] = (),
    length: int | None = None,
    notes: list[str] | None = None,
) -> Any:
    """The task that training would build of these rows."""
    task = task_for(schema, base)
    positions = base.spec.max_length if base is not None else None
    length = min(length or PREVIEW_LENGTH, positions or length or PREVIEW_LENGTH)
    # `sft`, which learns from prompts, always renders them by a template.
    template: Literal["chat", "auto"] = "chat" if task == "causal" and schema.form != "text" else "auto"
    data = DataConfig(length=length, tokens=10**6, rows=1, truncate="source", template=template)
    run = RunConfig(task=task, data=data, train=Training(steps=1))
    dataset = Dataset({"train": rows}, schema, {}, (), tuple(sorted(labels)), base)
    # A copy: it may be given a template, and the caller's stays as it is.
    return builders.BUILDERS[task].build(run, dataset, tokenizer.copy(), [] if notes is None else notes).task


def task_for(schema: Schema, base: Bundle | None) -> str:
    """The task that learns from rows of this kind, with this model if there is one."""
    by_form = {
        "label": "classify",
        "labels": "classify",
        "tags": "tag",
        "answer": "answer",
        "choice": "choose",
    }
    if schema.form in by_form:
        return by_form[schema.form]
    vectors = schema.kind == "similar" or (base is not None and base.task in ("hidden", "encoder"))
    if schema.form == "score":
        return "embed" if vectors and "second" in schema.columns else "regress"
    if schema.form == "pair" and vectors:
        return "embed"
    two_stacks = base is not None and base.spec.is_encoder_decoder
    if schema.form == "text":
        if two_stacks:
            return "spans"
        return "causal" if base is None or base.spec.generates else "masked"
    if schema.form == "pair" and base is None:
        return "translate"
    return "translate" if two_stacks and schema.form in ("pair", "prompt") else "causal"


def recipe_for(schema: Schema, base: Bundle | None = None) -> str:
    """The recipe to train on such rows."""
    task = task_for(schema, base)
    if task == "causal" and schema.form != "text":
        return "sft"
    if task == "embed" and schema.form == "score" and (base is None or base.pooling is None):
        return "regress"  # no sentence encoder: the number itself is learned
    return RECIPE_OF_TASK.get(task, task)


def _runs(tokenizer: Tokenizer, ids: Sequence[int], trained: Sequence[bool]) -> Segments:
    """Runs of tokens that are trained on, or not, as text; spaces between them are kept."""
    segments, start, before = [], 0, ""
    for flag, group in groupby(trained):
        end = start + len(list(group))
        whole = tokenizer.decode(ids[:end], specials=True)
        alone = tokenizer.decode(ids[start:end], specials=True)
        # A decoder may join what meets at the border differently: then each run is decoded alone.
        segments.append((whole[len(before) :] if whole.startswith(before) else alone, flag))
        start, before = end, whole
    return segments


def _packed(task: Any, row: Row, tokenizer: Tokenizer) -> Segments:
    """The examples that the row makes, one below the other."""
    segments: Segments = []
    for number in range(len(task.splits["train"])):
        batch = task.example("train", number)
        labels = batch.labels_BT[0].tolist()
        # The label of a token is the token after it.
        trained = [False, *(label != IGNORE_INDEX for label in labels[:-1])]
        segments += [("\n---\n", False)] if number else []
        segments += _runs(tokenizer, batch.ids_BT[0].tolist(), trained)
    return segments


def _first(task: Any) -> Any:
    return task.collate([task.splits["train"][0]], 0)


def _pair(task: Any, row: Row, tokenizer: Tokenizer) -> Segments:
    batch = _first(task)
    target = [label for label in batch.labels_BT[0].tolist() if label != IGNORE_INDEX]
    sides = [tokenizer.decode(ids, specials=True) for ids in (batch.source_BT[0].tolist(), target)]
    return [(sides[0], False), (" → ", False), (sides[1], True)]


def _masked(task: Any, row: Row, tokenizer: Tokenizer) -> Segments:
    batch = _first(task)
    trained = [label != IGNORE_INDEX for label in batch.labels_BT[0].tolist()]
    return _runs(tokenizer, batch.ids_BT[0].tolist(), trained)


def _labelled(task: Any, row: Row, tokenizer: Tokenizer) -> Segments:
    text = tokenizer.decode(_first(task).ids_BT[0].tolist(), specials=True)
    value = next(row[role] for role in ("label", "labels", "score") if role in row)
    shown = ", ".join(value) or "(none)" if isinstance(value, list) else f"{value}"
    return [(f"{text} → ", False), (shown, True)]


def _tagged(task: Any, row: Row, tokenizer: Tokenizer) -> Segments:
    batch = _first(task)

    def parts() -> Iterator[tuple[str, bool]]:
        for token, tag in zip(batch.ids_BT[0].tolist(), batch.labels[0].tolist(), strict=True):
            text = tokenizer.decode([token], specials=True).strip()
            yield (text, False) if tag == IGNORE_INDEX else (f"{text}/", False)
            if tag != IGNORE_INDEX:
                yield task.names[tag], True
            yield " ", False

    return list(parts())


def _span(task: Any, row: Row, tokenizer: Tokenizer) -> Segments:
    batch = _first(task)
    first, last = batch.ends_B2[0].tolist()
    ids = batch.ids_BT[0].tolist()
    return _runs(tokenizer, ids, [first <= i <= last for i in range(len(ids))])


def _choices(task: Any, row: Row, tokenizer: Tokenizer) -> Segments:
    example = task.splits["train"][0]
    rows = [tokenizer.decode(ids, specials=True) for ids in example.ids]
    return [(f"{text}\n", number == example.answer) for number, text in enumerate(rows)]


def _similar(task: Any, row: Row, tokenizer: Tokenizer) -> Segments:
    texts = [tokenizer.decode(ids, specials=True) for ids in task.splits["train"][0].texts]
    together = [(" | ".join(texts), "score" not in row)]
    return together if "score" not in row else [*together, (" → ", False), (f"{row['score']:g}", True)]


BATCH_READERS: dict[str, Callable[[Any, Row, Tokenizer], Segments]] = {
    "causal": _packed,
    "translate": _pair,
    "spans": _pair,
    "masked": _masked,
    "classify": _labelled,
    "regress": _labelled,
    "tag": _tagged,
    "answer": _span,
    "choose": _choices,
    "embed": _similar,
}
