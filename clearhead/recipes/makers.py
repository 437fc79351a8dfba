"""Makers, one per task: rows and a tokenizer in; the task, and what the model must know of it, out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, Literal

from torch import Tensor

from ..data.corrupt import NOISES, drop_spans
from ..data.packing import NOTHING
from ..errors import DataError
from ..families import Task as Head
from ..generate import EndTokens, Prompt, generate
from ..nn.model import PairModel
from ..tasks.answer import Answer, Asked
from ..tasks.causal import CausalLM
from ..tasks.classify import Classify, Labelled, Tag, Tagged
from ..tasks.masked import MaskedLM
from ..tasks.task import Task
from ..tasks.translate import Ids, Pair, TextToText
from ..text.tokenizer import Tokenizer
from .rows import Row, Rows
from .settings import Run

PAD, BOS, EOS, MASK = 0, 1, 2, 4


@dataclass(frozen=True)
class Made:
    task: Task[Any]
    head: Head
    config: dict[str, Any]  # what the data decide about the model
    generation: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Maker:
    make: Callable[[Run, Rows, Tokenizer, list[str]], Made]
    frame: Literal["none", "eos", "bos-eos", "cls-sep"] = "none"  # what stands around an encoded text
    lower: bool = False


def _ids(tokenizer: Tokenizer) -> Ids:
    def number(name: str, otherwise: int) -> int:
        special = getattr(tokenizer, name)
        return special.id if special is not None else otherwise

    return Ids(pad=number("pad", PAD), start=number("bos", BOS), end=number("eos", EOS))


def _sizes(tokenizer: Tokenizer) -> dict[str, Any]:
    ids = _ids(tokenizer)
    return {
        "vocab_size": tokenizer.vocab,
        "pad_token_id": ids.pad,
        "bos_token_id": ids.start,
        "eos_token_id": ids.end,
    }


def _encoded(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    return [list(encoding.ids) for encoding in tokenizer.encode_batch(texts)]


def _common(run: Run, rows: Rows) -> dict[str, Any]:
    return {"seed": run.train.seed, "parts": run.train.micro, "fingerprint": rows.hashes}


def translate(run: Run, rows: Rows, tokenizer: Tokenizer, notes: list[str]) -> Made:
    ids = _ids(tokenizer)
    one, two = ("src", "tgt") if rows.shape.form == "pair" else ("prompt", "completion")
    splits: dict[str, list[Pair]] = {}
    for name, split in rows.splits.items():
        sides = (_encoded(tokenizer, [row[side] for row in split]) for side in (one, two))
        pairs = [Pair(source, target) for source, target in zip(*sides, strict=True)]
        kept = [p for p in pairs if max(len(p.source), len(p.target)) < run.data.length]
        if len(kept) < len(pairs):
            notes.append(
                f"{name}: {len(pairs) - len(kept):,} pairs longer than {run.data.length} tokens left out"
            )
        splits[name] = kept
    task = TextToText(
        splits, ids=ids, tokens=run.data.tokens, text=tokenizer.decode, decode=partial(_decode, ids=ids),
        language=run.data.language, smoothing=run.data.smoothing, **_common(run, rows),
    )  # fmt: skip
    return Made(task, "tokens", _pair_config(tokenizer), _generation(run, ids))


def denoise(run: Run, rows: Rows, tokenizer: Tokenizer, notes: list[str]) -> Made:
    """BART: one of the five kinds of damage, another each time."""
    mask = tokenizer.mask.id if tokenizer.mask else MASK

    def damage(text: Sequence[int], draw: Random) -> tuple[list[int], list[int]]:
        kind = list(NOISES)[int(draw.random() * len(NOISES))]
        return NOISES[kind](text, draw, mask, 0.3), list(text)

    return _repair(run, rows, tokenizer, damage)


def spans(run: Run, rows: Rows, tokenizer: Tokenizer, notes: list[str]) -> Made:
    """T5: the last hundred ids of the vocabulary are its sentinels."""
    vocab = tokenizer.vocab
    sentinels = range(vocab + 99, vocab - 1, -1)
    made = _repair(run, rows, tokenizer, lambda text, draw: drop_spans(text, draw, sentinels=sentinels))
    return Made(made.task, "tokens", {**made.config, "vocab_size": vocab + 100}, made.generation)


def _repair(
    run: Run,
    rows: Rows,
    tokenizer: Tokenizer,
    damage: Callable[[Sequence[int], Random], tuple[list[int], list[int]]],
) -> Made:
    ids = _ids(tokenizer)
    splits = {
        name: [Pair(text, text) for text in _pieces(tokenizer, split, run.data.length - 2)]
        for name, split in rows.splits.items()
    }
    task = TextToText(
        splits,
        ids=ids,
        tokens=run.data.tokens,
        corrupt=damage,
        smoothing=run.data.smoothing,
        **_common(run, rows),
    )
    return Made(task, "tokens", _pair_config(tokenizer), _generation(run, ids))


def causal(run: Run, rows: Rows, tokenizer: Tokenizer, notes: list[str]) -> Made:
    splits, trained = _continued(rows, tokenizer)
    task = CausalLM(
        splits,
        length=run.data.length,
        rows=run.data.rows,
        pad=_ids(tokenizer).pad,
        trained=trained,
        **_common(run, rows),
    )
    return Made(task, "tokens", _sizes(tokenizer))


Split = dict[str, list[list[int]]]


def _continued(rows: Rows, tokenizer: Tokenizer) -> tuple[Split, Split | None]:
    """Plain texts as they are; prompts with completion and end, of which the prompt is not learned."""
    if rows.shape.form == "text":
        texts = {name: [row["text"] for row in split] for name, split in rows.splits.items()}
        return {name: _encoded(tokenizer, split) for name, split in texts.items()}, None
    one, two = ("src", "tgt") if rows.shape.form == "pair" else ("prompt", "completion")
    end = _ids(tokenizer).end
    splits: Split = {}
    trained: Split = {}
    for name, split in rows.splits.items():
        sides = [_encoded(tokenizer, [row[side] for row in split]) for side in (one, two)]
        pairs = list(zip(*sides, strict=True))
        splits[name] = [[*asked, *answer, end] for asked, answer in pairs]
        trained[name] = [[0] * len(asked) + [1] * (len(answer) + 1) for asked, answer in pairs]
    return splits, trained


def masked(run: Run, rows: Rows, tokenizer: Tokenizer, notes: list[str]) -> Made:
    splits = {name: _pieces(tokenizer, split, run.data.length) for name, split in rows.splits.items()}
    mask = tokenizer.mask.id if tokenizer.mask else MASK
    task = MaskedLM(
        splits,
        mask=mask,
        pad=_ids(tokenizer).pad,
        vocab=tokenizer.vocab,
        special=tokenizer.specials,
        tokens=run.data.tokens,
        **_common(run, rows),
    )
    return Made(task, "tokens", _sizes(tokenizer))


def classify(run: Run, rows: Rows, tokenizer: Tokenizer, notes: list[str]) -> Made:
    names = _known("label", (str(row["label"]) for row in rows.splits["train"]))
    splits = {}
    for split, given in rows.splits.items():
        texts = _cut(_encoded(tokenizer, [row["text"] for row in given]), run.data.length, split, notes)
        labels = [_number(names, str(row["label"]), "label", split) for row in given]
        splits[split] = [Labelled(ids, label) for ids, label in zip(texts, labels, strict=True)]
    task = Classify(
        splits,
        pad=_ids(tokenizer).pad,
        tokens=run.data.tokens,
        smoothing=run.data.smoothing,
        **_common(run, rows),
    )
    return Made(task, "labels", _sizes(tokenizer) | {"id2label": {str(i): n for i, n in enumerate(names)}})


def tag(run: Run, rows: Rows, tokenizer: Tokenizer, notes: list[str]) -> Made:
    names = _known("tag", (t for row in rows.splits["train"] for t in row["tags"]))
    splits = {}
    for split, given in rows.splits.items():
        splits[split] = [_tagged(tokenizer, row, names, run.data.length, split) for row in given]
    task = Tag(
        splits, names=list(names), pad=_ids(tokenizer).pad, tokens=run.data.tokens,
        smoothing=run.data.smoothing, **_common(run, rows),
    )  # fmt: skip
    return Made(task, "tags", _sizes(tokenizer) | {"id2label": {str(i): n for i, n in enumerate(names)}})


def answer(run: Run, rows: Rows, tokenizer: Tokenizer, notes: list[str]) -> Made:
    splits: dict[str, list[Asked]] = {}
    for split, given in rows.splits.items():
        asked = [_asked(tokenizer, row, run.data.length) for row in given]
        splits[split] = [example for example in asked if example is not None]
        if lost := len(asked) - len(splits[split]):
            notes.append(f"{split}: {lost:,} rows left out, no answer within {run.data.length} tokens")
    task = Answer(splits, pad=_ids(tokenizer).pad, tokens=run.data.tokens, **_common(run, rows))
    return Made(task, "span", _sizes(tokenizer) | {"id2label": {"0": "first", "1": "last"}})


MAKERS = {
    "translate": Maker(translate),
    "denoise": Maker(denoise),
    "spans": Maker(spans),
    "causal": Maker(causal),
    "masked": Maker(masked, frame="cls-sep", lower=True),
    "classify": Maker(classify, frame="cls-sep", lower=True),
    "tag": Maker(tag, frame="cls-sep"),
    "answer": Maker(answer, frame="cls-sep"),
}


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


def _pieces(tokenizer: Tokenizer, rows: Sequence[Row], length: int) -> list[list[int]]:
    """Texts as pieces of at most `length` tokens."""
    pieces = []
    for ids in _encoded(tokenizer, [row["text"] for row in rows]):
        pieces += [ids[at : at + length] for at in range(0, len(ids), length)]
    return [piece for piece in pieces if len(piece) > 3]


def _cut(texts: list[list[int]], length: int, split: str, notes: list[str]) -> list[list[int]]:
    long = sum(len(ids) > length for ids in texts)
    if long:
        notes.append(f"{split}: {long:,} texts cut to {length} tokens")
    return [ids[: length - 1] + ids[-1:] if len(ids) > length else ids for ids in texts]


def _known(what: str, names: Any) -> dict[str, int]:
    found = {name: i for i, name in enumerate(sorted(set(names)))}
    if len(found) < 2:
        raise DataError(f"the training rows have {len(found)} kind of {what}; expected two or more")
    return found


def _number(names: Mapping[str, int], name: str, what: str, split: str) -> int:
    if name not in names:
        raise DataError(f"the split {split!r} has the {what} {name!r}, which no training row has")
    return names[name]


def _pair_config(tokenizer: Tokenizer) -> dict[str, Any]:
    ids = _ids(tokenizer)
    return {**_sizes(tokenizer), "decoder_start_token_id": ids.start, "forced_eos_token_id": None}


def _generation(run: Run, ids: Ids) -> dict[str, Any]:
    said = {"pad_token_id": ids.pad, "eos_token_id": ids.end, "decoder_start_token_id": ids.start}
    return {**said, "max_length": run.data.length}


def _decode(model: PairModel, source: Tensor, mask: Tensor, limit: int, *, ids: Ids) -> list[list[int]]:
    start = source.new_full((len(source), 1), ids.start)
    run = generate(model, Prompt(source, mask, start), stops=(EndTokens((ids.end,)),), limit=limit)
    return [answers[0].said for answers in run.finish()]
