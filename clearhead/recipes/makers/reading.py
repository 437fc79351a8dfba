"""Tasks of reading: hidden words, labels, tags, answers in a text. Rows and a tokenizer in; a task out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ...data.following import following, sentences
from ...data.packing import NOTHING
from ...errors import DataError, quoted, shortened
from ...tasks.answer import Answer, Asked
from ...tasks.classify import Classify, Labelled, Tag, Tagged
from ...tasks.masked import Hide, MaskedLM, Pretrain
from ...text.tokenizer import Tokenizer
from ..rows import Row, Rows
from ..settings import Run
from .maker import MASK, Made, common, encoded, ids_of, pieces, sizes

CHAPTER = 50  # sentences


def masked(run: Run, rows: Rows, tokenizer: Tokenizer, notes: list[str]) -> Made:
    splits = {name: pieces(tokenizer, split, run.data.length) for name, split in rows.splits.items()}
    task = MaskedLM(
        splits,
        hide=_hide(run, tokenizer),
        pad=ids_of(tokenizer).pad,
        tokens=run.data.tokens,
        **common(run, rows),
    )
    return Made(task, "tokens", sizes(tokenizer))


def pretrain(run: Run, rows: Rows, tokenizer: Tokenizer, notes: list[str]) -> Made:
    """Hidden words, and whether the second text follows the first, as BERT."""
    splits = {}
    for split, given in rows.splits.items():
        chapters = _chapters([sentences(row["text"]) for row in given])
        ids = [[list(tokenizer.encode(s, specials=False).ids) for s in chapter] for chapter in chapters]
        splits[split] = following(ids, length=run.data.length - 3, seed=run.train.seed)
    ends = (tokenizer.cls or tokenizer.bos, tokenizer.sep or tokenizer.eos)
    if ends[0] is None or ends[1] is None:
        raise DataError(
            "the tokenizer has no tokens for the beginning and the end of a text; pretrain needs both"
        )
    task = Pretrain(
        splits,
        hide=_hide(run, tokenizer),
        pad=ids_of(tokenizer).pad,
        start=ends[0].id,
        end=ends[1].id,
        tokens=run.data.tokens,
        **common(run, rows),
    )
    return Made(task, "pretrain", sizes(tokenizer))


def _chapters(texts: list[list[str]]) -> list[list[str]]:
    """Long texts in parts, a single text in four at least: a stranger must come from another one."""
    size = CHAPTER if len(texts) > 1 else max(2, min(CHAPTER, len(texts[0]) // 4))
    return [text[at : at + size] for text in texts for at in range(0, len(text), size)]


def _hide(run: Run, tokenizer: Tokenizer) -> Hide:
    return Hide(
        mask=tokenizer.mask.id if tokenizer.mask else MASK,
        vocab=tokenizer.vocab,
        special=tokenizer.specials,
        masking=run.data.masking,
        seed=run.train.seed,
    )


def classify(run: Run, rows: Rows, tokenizer: Tokenizer, notes: list[str]) -> Made:
    names = _known("label", (str(row["label"]) for row in rows.splits["train"]), rows.labels)
    splits = {}
    for split, given in rows.splits.items():
        texts = _cut(encoded(tokenizer, [row["text"] for row in given]), run.data.length, split, notes)
        labels = [_number(names, str(row["label"]), "label", split) for row in given]
        splits[split] = [Labelled(ids, label) for ids, label in zip(texts, labels, strict=True)]
    task = Classify(
        splits,
        pad=ids_of(tokenizer).pad,
        tokens=run.data.tokens,
        smoothing=run.data.smoothing,
        **common(run, rows),
    )
    return Made(task, "labels", sizes(tokenizer) | {"id2label": {str(i): n for i, n in enumerate(names)}})


def tag(run: Run, rows: Rows, tokenizer: Tokenizer, notes: list[str]) -> Made:
    names = _known("tag", (t for row in rows.splits["train"] for t in row["tags"]), rows.labels)
    splits = {}
    for split, given in rows.splits.items():
        splits[split] = [_tagged(tokenizer, row, names, run.data.length, split) for row in given]
    task = Tag(
        splits, names=list(names), pad=ids_of(tokenizer).pad, tokens=run.data.tokens,
        smoothing=run.data.smoothing, **common(run, rows),
    )  # fmt: skip
    return Made(task, "tags", sizes(tokenizer) | {"id2label": {str(i): n for i, n in enumerate(names)}})


def answer(run: Run, rows: Rows, tokenizer: Tokenizer, notes: list[str]) -> Made:
    splits: dict[str, list[Asked]] = {}
    for split, given in rows.splits.items():
        asked = [_asked(tokenizer, row, run.data.length) for row in given]
        splits[split] = [example for example in asked if example is not None]
        if lost := len(asked) - len(splits[split]):
            notes.append(f"{split}: {lost:,} rows left out, no answer within {run.data.length} tokens")
    task = Answer(splits, pad=ids_of(tokenizer).pad, tokens=run.data.tokens, **common(run, rows))
    return Made(task, "span", sizes(tokenizer) | {"id2label": {"0": "first", "1": "last"}})


def _asked(tokenizer: Tokenizer, row: Row, length: int) -> Asked | None:
    """Question and context side by side; None where the answer does not stand in what fits."""
    if not row["answers"]:
        return None
    encoding = tokenizer.encode(row["question"], row["context"])
    pieces = list(encoding.tokens)[:length]
    spans = [(p.start, p.end) if p.side == 1 and not p.special else None for p in pieces]
    begin = row["answers"][0]["start"]
    end = begin + len(row["answers"][0]["text"])
    inside = [i for i, span in enumerate(spans) if span and span[0] < end and span[1] > begin]
    whole = [span for span in spans if span]
    if not inside or whole[-1][1] < end:
        return None
    texts = [one["text"] for one in row["answers"]]
    ids, types = list(encoding.ids)[:length], list(encoding.types)[:length]
    return Asked(ids, types, spans, row["context"], texts, inside[0], inside[-1])


def _tagged(tokenizer: Tokenizer, row: Row, names: Mapping[str, int], length: int, split: str) -> Tagged:
    """The first piece of each word carries its tag; special tokens and further pieces carry none."""
    ids: list[int] = [tokenizer.cls.id] if tokenizer.cls else []
    tags = [NOTHING] * len(ids)
    for word, name in zip(row["tokens"], row["tags"], strict=True):
        pieces = list(tokenizer.encode(word, specials=False).ids) or [
            tokenizer.unk.id if tokenizer.unk else 0
        ]
        ids += pieces
        tags += [_number(names, name, "tag", split), *[NOTHING] * (len(pieces) - 1)]
    end = [tokenizer.sep.id] if tokenizer.sep else []
    return Tagged(ids[: length - 1] + end, tags[: length - 1] + [NOTHING] * len(end))


def _cut(texts: list[list[int]], length: int, split: str, notes: list[str]) -> list[list[int]]:
    long = sum(len(ids) > length for ids in texts)
    if long:
        notes.append(f"{split}: {long:,} texts cut to {length} tokens")
    return [ids[: length - 1] + ids[-1:] if len(ids) > length else ids for ids in texts]


def _known(what: str, names: Iterable[str], learned: Sequence[str]) -> dict[str, int]:
    """The number of each name: the model's own if it has learned them, else in alphabetical order."""
    found = sorted(set(names))
    if len(found) < 2:
        raise DataError(f"the training rows have {len(found)} kind of {what}; expected two or more")
    new = [name for name in found if name not in learned] if learned else []
    if new:
        raise DataError(
            f"the training rows have the {what} {quoted(new[0])}, and the model to go on from knows "
            f"{shortened(', '.join(learned), 80)}; rename them in the file, or train a new model"
        )
    return {name: i for i, name in enumerate(learned or found)}


def _number(names: Mapping[str, int], name: str, what: str, split: str) -> int:
    if name not in names:
        raise DataError(f"the split {split!r} has the {what} {name!r}, which no training row has")
    return names[name]
