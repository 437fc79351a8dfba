"""Tasks of understanding: masked words, labels, tags, answer spans. Rows and a tokenizer in; a task out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...data import IGNORE_INDEX, Row, sentence_pairs, sentences
from ...errors import DataError, quoted, shortened
from ...tasks import (
    BertPretraining,
    LabelledExample,
    MaskedLM,
    QAExample,
    QuestionAnswering,
    TaggedExample,
    TextClassification,
    TokenClassification,
    TokenMasking,
)
from ...text import Tokenizer
from ..rows import Dataset
from ..settings import RunConfig
from .builder import (
    DEFAULT_MASK,
    BuiltTask,
    batch_limits,
    common_arguments,
    config_of,
    cut_into_pieces,
    encode_all,
    special_ids,
)

CHAPTER_SENTENCES = 50


def build_masked(run: RunConfig, rows: Dataset, tokenizer: Tokenizer, notes: list[str]) -> BuiltTask:
    splits = {name: cut_into_pieces(tokenizer, split, run.data.length) for name, split in rows.splits.items()}
    task = MaskedLM(
        splits,
        hide=_token_masking(run, tokenizer),
        pad=special_ids(tokenizer).pad,
        **batch_limits(run),
        **common_arguments(run, rows),
    )
    return BuiltTask(task, "tokens", config_of(tokenizer))


def build_pretrain(run: RunConfig, rows: Dataset, tokenizer: Tokenizer, notes: list[str]) -> BuiltTask:
    """BERT's two objectives: masked words, and whether the second text follows the first."""
    splits = {}
    for split, split_rows in rows.splits.items():
        chapters = _chapters([sentences(row["text"]) for row in split_rows])
        ids = [[list(tokenizer.encode(s, specials=False).ids) for s in chapter] for chapter in chapters]
        splits[split] = sentence_pairs(ids, length=run.data.length - 3, seed=run.train.seed)
    ends = (tokenizer.cls or tokenizer.bos, tokenizer.sep or tokenizer.eos)
    if ends[0] is None or ends[1] is None:
        raise DataError(
            "the tokenizer has no tokens for the beginning and the end of a text; pretrain needs both"
        )
    task = BertPretraining(
        splits,
        hide=_token_masking(run, tokenizer),
        pad=special_ids(tokenizer).pad,
        start=ends[0].id,
        end=ends[1].id,
        **batch_limits(run),
        **common_arguments(run, rows),
    )
    return BuiltTask(task, "pretrain", config_of(tokenizer))


def _chapters(texts: list[list[str]]) -> list[list[str]]:
    """Long texts cut into chapters. A single text gives at least four: a random second sentence
    must come from another chapter.
    """
    size = CHAPTER_SENTENCES if len(texts) > 1 else max(2, min(CHAPTER_SENTENCES, len(texts[0]) // 4))
    return [text[at : at + size] for text in texts for at in range(0, len(text), size)]


def _token_masking(run: RunConfig, tokenizer: Tokenizer) -> TokenMasking:
    return TokenMasking(
        mask=tokenizer.mask.id if tokenizer.mask else DEFAULT_MASK,
        vocab=tokenizer.vocab,
        special=tokenizer.specials,
        masking=run.data.masking,
        seed=run.train.seed,
    )


def build_classify(run: RunConfig, rows: Dataset, tokenizer: Tokenizer, notes: list[str]) -> BuiltTask:
    names = _number_labels("label", (str(row["label"]) for row in rows.splits["train"]), rows.labels)
    splits = {}
    for split, split_rows in rows.splits.items():
        texts = _truncate(
            encode_all(tokenizer, [row["text"] for row in split_rows]), run.data.length, split, notes
        )
        labels = [_label_index(names, str(row["label"]), "label", split) for row in split_rows]
        splits[split] = [LabelledExample(ids, label) for ids, label in zip(texts, labels, strict=True)]
    task = TextClassification(
        splits,
        pad=special_ids(tokenizer).pad,
        **batch_limits(run),
        smoothing=run.data.smoothing,
        **common_arguments(run, rows),
    )
    return BuiltTask(task, "labels", config_of(tokenizer) | _label_config(names))


def build_tag(run: RunConfig, rows: Dataset, tokenizer: Tokenizer, notes: list[str]) -> BuiltTask:
    names = _number_labels("tag", (t for row in rows.splits["train"] for t in row["tags"]), rows.labels)
    splits = {}
    for split, split_rows in rows.splits.items():
        splits[split] = [_tagged_example(tokenizer, row, names, run.data.length, split) for row in split_rows]
    task = TokenClassification(
        splits, names=list(names), pad=special_ids(tokenizer).pad, **batch_limits(run),
        smoothing=run.data.smoothing, **common_arguments(run, rows),
    )  # fmt: skip
    return BuiltTask(task, "tags", config_of(tokenizer) | _label_config(names))


def _label_config(names: Iterable[str]) -> dict[str, Any]:
    """The label names as config.json has them, by number in text."""
    return {"id2label": {str(i): name for i, name in enumerate(names)}}


def build_answer(run: RunConfig, rows: Dataset, tokenizer: Tokenizer, notes: list[str]) -> BuiltTask:
    splits: dict[str, list[QAExample]] = {}
    for split, split_rows in rows.splits.items():
        examples = [_qa_example(tokenizer, row, run.data.length) for row in split_rows]
        splits[split] = [example for example in examples if example is not None]
        if dropped := len(examples) - len(splits[split]):
            notes.append(f"{split}: {dropped:,} rows left out, no answer within {run.data.length} tokens")
    task = QuestionAnswering(
        splits, pad=special_ids(tokenizer).pad, **batch_limits(run), **common_arguments(run, rows)
    )
    return BuiltTask(task, "span", config_of(tokenizer) | _label_config(("first", "last")))


def _qa_example(tokenizer: Tokenizer, row: Row, length: int) -> QAExample | None:
    """Question and context side by side; None if the answer lies beyond `length` tokens."""
    if not row["answers"]:
        return None
    encoding = tokenizer.encode(row["question"], row["context"])
    pieces = list(encoding.tokens)[:length]
    spans = [(p.start, p.end) if p.side == 1 and not p.special else None for p in pieces]
    start = row["answers"][0]["start"]
    end = start + len(row["answers"][0]["text"])
    inside = [i for i, span in enumerate(spans) if span and span[0] < end and span[1] > start]
    context_spans = [span for span in spans if span]
    if not inside or context_spans[-1][1] < end:
        return None
    texts = [answer["text"] for answer in row["answers"]]
    ids, types = list(encoding.ids)[:length], list(encoding.types)[:length]
    return QAExample(ids, types, spans, row["context"], texts, inside[0], inside[-1])


def _tagged_example(
    tokenizer: Tokenizer, row: Row, names: Mapping[str, int], length: int, split: str
) -> TaggedExample:
    """The first piece of each word carries its tag; special tokens and later pieces are ignored."""
    ids: list[int] = [tokenizer.cls.id] if tokenizer.cls else []
    tags = [IGNORE_INDEX] * len(ids)
    for word, name in zip(row["tokens"], row["tags"], strict=True):
        pieces = list(tokenizer.encode(word, specials=False).ids) or [
            tokenizer.unk.id if tokenizer.unk else 0
        ]
        ids += pieces
        tags += [_label_index(names, name, "tag", split), *[IGNORE_INDEX] * (len(pieces) - 1)]
    end = [tokenizer.sep.id] if tokenizer.sep else []
    return TaggedExample(ids[: length - 1] + end, tags[: length - 1] + [IGNORE_INDEX] * len(end))


def _truncate(texts: list[list[int]], length: int, split: str, notes: list[str]) -> list[list[int]]:
    too_long = sum(len(ids) > length for ids in texts)
    if too_long:
        notes.append(f"{split}: {too_long:,} texts cut to {length} tokens")
    return [ids[: length - 1] + ids[-1:] if len(ids) > length else ids for ids in texts]


def _number_labels(what: str, names: Iterable[str], model_labels: Sequence[str]) -> dict[str, int]:
    """Names numbered as the loaded model numbers them, if it has names, else in alphabetical order."""
    distinct = sorted(set(names))
    if len(distinct) < 2:
        raise DataError(f"the training rows have {len(distinct)} kind of {what}; expected two or more")
    new = [name for name in distinct if name not in model_labels] if model_labels else []
    if new:
        raise DataError(
            f"the training rows have the {what} {quoted(new[0])}, and the model to fine-tune knows "
            f"{shortened(', '.join(model_labels), 80)}; rename them in the file, or train a new model"
        )
    return {name: i for i, name in enumerate(model_labels or distinct)}


def _label_index(names: Mapping[str, int], name: str, what: str, split: str) -> int:
    if name not in names:
        raise DataError(f"the split {split!r} has the {what} {name!r}, which no training row has")
    return names[name]
