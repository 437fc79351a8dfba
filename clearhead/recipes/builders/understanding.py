"""Tasks of understanding: labels, scores, choices, tags, answers, sentence vectors. Rows in; a task out.

Texts longer than `data.length` are cut, and the number of those is noted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

from ...bundle import DEFAULT_POOLING, POOLS, question_of_choice
from ...data import IGNORE_INDEX, Row
from ...errors import DataError, InputError, quoted, shortened
from ...tasks import (
    ChoiceExample,
    LabelledExample,
    MultiLabelClassification,
    MultiLabelExample,
    MultipleChoice,
    QAExample,
    QuestionAnswering,
    Regression,
    ScoredExample,
    SimilarityExample,
    TaggedExample,
    TextClassification,
    TextSimilarity,
    TokenClassification,
)
from ...text import Encoding, Tokenizer
from ..rows import Dataset
from ..settings import RunConfig
from .builder import (
    BuiltTask,
    TypedIds,
    batch_limits,
    common_arguments,
    config_of,
    encode_texts,
    special_ids,
)

SCORE_LABEL = "score"  # the name of the one output of a head for scores


def _label_texts(
    run: RunConfig, tokenizer: Tokenizer, rows: Sequence[Row], split: str, notes: list[str]
) -> list[TypedIds]:
    """The text of each row, or its two texts side by side."""
    seconds = [row["second"] for row in rows] if rows and "second" in rows[0] else None
    return encode_texts(tokenizer, [row["text"] for row in rows], seconds, run.data.length, split, notes)


def build_classify(run: RunConfig, rows: Dataset, tokenizer: Tokenizer, notes: list[str]) -> BuiltTask:
    """One label per text or pair of texts, or several, as the rows have them."""
    if rows.schema.form == "labels":
        return _build_several_labels(run, rows, tokenizer, notes)
    names = number_labels("label", (row["label"] for row in rows.training), rows.labels)
    splits = {}
    for split, split_rows in rows.splits.items():
        texts = _label_texts(run, tokenizer, split_rows, split, notes)
        labels = [label_index(names, row["label"], "label", split) for row in split_rows]
        splits[split] = [
            LabelledExample(text.ids, label, text.types) for text, label in zip(texts, labels, strict=True)
        ]
    task = TextClassification(
        splits, names=list(names), pad=special_ids(tokenizer, rows.base).pad, **batch_limits(run),
        smoothing=run.data.smoothing, **common_arguments(run, rows),
    )  # fmt: skip
    return BuiltTask(task, "labels", config_of(tokenizer) | _label_config(names))


def _build_several_labels(run: RunConfig, rows: Dataset, tokenizer: Tokenizer, notes: list[str]) -> BuiltTask:
    names = number_labels("label", (label for row in rows.training for label in row["labels"]), rows.labels)
    splits = {}
    for split, split_rows in rows.splits.items():
        texts = _label_texts(run, tokenizer, split_rows, split, notes)
        splits[split] = [
            MultiLabelExample(
                text.ids, [label_index(names, x, "label", split) for x in row["labels"]], text.types
            )
            for text, row in zip(texts, split_rows, strict=True)
        ]
    task = MultiLabelClassification(
        splits, names=list(names), pad=special_ids(tokenizer, rows.base).pad, **batch_limits(run),
        smoothing=run.data.smoothing, **common_arguments(run, rows),
    )  # fmt: skip
    config = config_of(tokenizer) | _label_config(names)
    return BuiltTask(task, "labels", config, problem_type="multi_label_classification")


def build_regress(run: RunConfig, rows: Dataset, tokenizer: Tokenizer, notes: list[str]) -> BuiltTask:
    """A number per text or pair of texts, such as a rating."""
    if rows.base is None and len({row["score"] for row in rows.training}) < 2:
        raise DataError("all training rows have the same score; there is nothing to learn")
    splits = {}
    for split, split_rows in rows.splits.items():
        texts = _label_texts(run, tokenizer, split_rows, split, notes)
        splits[split] = [
            ScoredExample(text.ids, row["score"], text.types)
            for text, row in zip(texts, split_rows, strict=True)
        ]
    task = Regression(
        splits,
        pad=special_ids(tokenizer, rows.base).pad,
        **batch_limits(run),
        **common_arguments(run, rows),
    )
    config = config_of(tokenizer) | _label_config([SCORE_LABEL])
    return BuiltTask(task, "labels", config, problem_type="regression")


def build_choose(run: RunConfig, rows: Dataset, tokenizer: Tokenizer, notes: list[str]) -> BuiltTask:
    """Each choice beside its question: which of them is right?"""
    splits = {}
    for split, split_rows in rows.splits.items():
        questions = [
            question_of_choice(row["question"], row.get("context"))
            for row in split_rows
            for _ in row["choices"]
        ]
        choices = [choice for row in split_rows for choice in row["choices"]]
        texts = iter(encode_texts(tokenizer, questions, choices, run.data.length, split, notes))
        examples = []
        for row in split_rows:
            own = [next(texts) for _ in row["choices"]]
            types = [text.types for text in own if text.types is not None]
            examples.append(
                ChoiceExample(
                    [text.ids for text in own], row["answer"], types if len(types) == len(own) else None
                )
            )
        splits[split] = examples
    most = max(len(row["choices"]) for split_rows in rows.splits.values() for row in split_rows)
    task = MultipleChoice(
        splits,
        pad=special_ids(tokenizer, rows.base).pad,
        **batch_limits(run, max(most, 2)),
        **common_arguments(run, rows),
    )
    return BuiltTask(task, "choice", config_of(tokenizer))


def build_embed(run: RunConfig, rows: Dataset, tokenizer: Tokenizer, notes: list[str]) -> BuiltTask:
    """Sentence vectors, from pairs with a score of similarity or from pairs that belong together."""
    scored = rows.schema.form == "score"
    if scored and "second" not in rows.training[0]:
        raise InputError(
            "embed learns from pairs of texts; the rows have one text and a score: train regress"
        )
    roles = ("text", "second") if scored else ("src", "tgt", "negative")
    lowest, highest = _score_range(rows.training) if scored else (0.0, 1.0)
    if scored and (lowest, highest) != (0.0, 1.0):
        notes.append(f"scores {lowest:g} to {highest:g} are learned as cosines 0 to 1")
    splits = {}
    for split, split_rows in rows.splits.items():
        sides = [
            encode_texts(tokenizer, [row[role] for row in split_rows], None, run.data.length, split, notes)
            for role in roles
            if split_rows and role in split_rows[0]
        ]
        splits[split] = [
            SimilarityExample(
                [text.ids for text in texts],
                (row["score"] - lowest) / (highest - lowest) if scored else None,
            )
            for row, *texts in zip(split_rows, *sides, strict=True)
        ]
    pooling = (rows.base.pooling if rows.base is not None else None) or DEFAULT_POOLING
    task = TextSimilarity(
        splits,
        pad=special_ids(tokenizer, rows.base).pad,
        pool=[POOLS[mode] for mode in pooling["modes"]],
        **batch_limits(run, len(roles)),
        **common_arguments(run, rows),
    )
    return BuiltTask(
        task, "hidden", config_of(tokenizer), pooling={**pooling, "max_seq_length": run.data.length}
    )


def _score_range(rows: Sequence[Row]) -> tuple[float, float]:
    scores = [row["score"] for row in rows]
    lowest, highest = min(scores), max(scores)
    if lowest == highest:
        raise DataError("all training rows have the same score; there is nothing to learn")
    return lowest, highest


def build_tag(run: RunConfig, rows: Dataset, tokenizer: Tokenizer, notes: list[str]) -> BuiltTask:
    names = number_labels("tag", (t for row in rows.training for t in row["tags"]), rows.labels)
    splits = {
        split: _tagged_examples(tokenizer, split_rows, names, run.data.length, split, notes)
        for split, split_rows in rows.splits.items()
    }
    task = TokenClassification(
        splits, names=list(names), pad=special_ids(tokenizer, rows.base).pad, **batch_limits(run),
        smoothing=run.data.smoothing, **common_arguments(run, rows),
    )  # fmt: skip
    return BuiltTask(task, "tags", config_of(tokenizer) | _label_config(names))


def _tagged_examples(
    tokenizer: Tokenizer,
    rows: Sequence[Row],
    names: Mapping[str, int],
    length: int,
    split: str,
    notes: list[str],
) -> list[TaggedExample]:
    """The first piece of each word carries its tag; special tokens and later pieces are ignored.

    The words are read as one text with spaces between them, as they are when the model is used: a tokenizer
    may write a word after a space differently.
    """
    encodings = tokenizer.encode_batch([" ".join(row["tokens"]) for row in rows], max_length=length)
    examples, lost = [], 0
    for row, encoding in zip(rows, encodings, strict=True):
        tags = [IGNORE_INDEX] * len(encoding)
        first_pieces = _first_pieces(row["tokens"], encoding)
        for word, piece in first_pieces.items():
            tags[piece] = label_index(names, row["tags"][word], "tag", split)
        cut = [
            label_index(names, tag, "tag", split)
            for word, tag in enumerate(row["tags"])
            if word not in first_pieces
        ]
        lost += len(cut)
        examples.append(TaggedExample(encoding.ids, tags, lost=cut))
    if lost:
        notes.append(
            f"{split}: {lost:,} words without a token, or beyond {length} tokens, count as not found"
        )
    return examples


def _first_pieces(words: Sequence[str], encoding: Encoding) -> dict[int, int]:
    """The first token of each word of a text in which words are separated by one space."""
    ends = list(accumulate((len(word) + 1 for word in words), initial=0))
    first: dict[int, int] = {}
    word = 0
    for number, piece in enumerate(encoding.tokens):
        if piece.special or piece.side is None:
            continue
        while word < len(words) and piece.start >= ends[word + 1] - 1:
            word += 1
        if word < len(words) and piece.end > ends[word]:  # not the space before it
            first.setdefault(word, number)
    return first


def build_answer(run: RunConfig, rows: Dataset, tokenizer: Tokenizer, notes: list[str]) -> BuiltTask:
    """A context longer than `data.length` is read in parts that overlap by a quarter, as `predict` does."""
    splits: dict[str, list[QAExample]] = {}
    for split, split_rows in rows.splits.items():
        answered = [row for row in split_rows if row["answers"]]
        if len(answered) < len(split_rows):
            notes.append(f"{split}: {len(split_rows) - len(answered):,} questions without an answer left out")
        parts = [qa_examples(tokenizer, row, number, run.data.length) for number, row in enumerate(answered)]
        if long := sum(len(each) > 1 for each in parts):
            notes.append(
                f"{split}: {long:,} of {len(parts):,} contexts are read in parts of {run.data.length} tokens"
            )
        if split == "train":  # there is nothing to learn from a part without the answer
            parts = [[part for part in each if part.first != IGNORE_INDEX] for each in parts]
        splits[split] = [part for each in parts for part in each]
    task = QuestionAnswering(
        splits,
        pad=special_ids(tokenizer, rows.base).pad,
        **batch_limits(run),
        **common_arguments(run, rows),
    )
    return BuiltTask(task, "span", config_of(tokenizer) | _label_config(("first", "last")))


def qa_examples(tokenizer: Tokenizer, row: Row, number: int, length: int) -> list[QAExample]:
    """Question and context side by side, for each part of the context that fits."""
    windows = tokenizer.encode_windows(row["question"], row["context"], max_length=length, stride=length // 4)
    start = row["answers"][0]["start"]
    end = start + len(row["answers"][0]["text"])
    examples = []
    for encoding in windows:
        spans = [(p.start, p.end) if p.side == 1 and not p.special else None for p in encoding.tokens]
        inside = [i for i, span in enumerate(spans) if span and span[0] < end and span[1] > start]
        context = [span for span in spans if span]
        found = bool(inside) and context[0][0] <= start and context[-1][1] >= end
        examples.append(
            QAExample(
                ids=encoding.ids,
                types=encoding.types,
                spans=spans,
                context=row["context"],
                answers=[answer["text"] for answer in row["answers"]],
                first=inside[0] if found else IGNORE_INDEX,
                last=inside[-1] if found else IGNORE_INDEX,
                question=number,
            )
        )
    return examples


def _label_config(names: Iterable[str]) -> dict[str, Any]:
    """The label names as config.json has them, by number in text."""
    return {"id2label": {str(i): name for i, name in enumerate(names)}}


def number_labels(what: str, names: Iterable[str], model_labels: Sequence[str]) -> dict[str, int]:
    """Names numbered as the loaded model numbers them, if it has names, else in alphabetical order."""
    distinct = sorted(set(names))
    if all(name.isdecimal() for name in distinct):
        distinct.sort(key=int)  # 2 before 10: numbers are often class indices already
    if model_labels:
        new = [name for name in distinct if name not in model_labels]
        if new:
            raise DataError(
                f"the rows have the {what} {quoted(new[0])}, and the model knows "
                f"{shortened(', '.join(model_labels), 80)}; rename it in the file, or train a new head"
            )
        return {name: i for i, name in enumerate(model_labels)}
    if len(distinct) < 2:
        raise DataError(f"the training rows have {len(distinct)} kind of {what}; expected two or more")
    return {name: i for i, name in enumerate(distinct)}


def label_index(names: Mapping[str, int], name: str, what: str, split: str) -> int:
    if name not in names:
        raise DataError(
            f"the split {split!r} has the {what} {quoted(name)}, which no training row has; known are "
            f"{shortened(', '.join(names), 80)}"
        )
    return names[name]
