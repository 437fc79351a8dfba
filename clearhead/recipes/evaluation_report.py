"""The report of an evaluation: outcomes and rows in; scores, the worst rows and a record for JSON out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..data import Row, is_trained, message_text, row_texts
from ..tasks import Evaluation, ExampleOutcome, bleu_signature
from ..text import Tokenizer

# Tasks whose examples are the rows themselves; the others cut texts into pieces.
WHOLE_ROWS = ("causal", "translate", "classify", "regress", "choose", "tag", "answer", "embed")
CUT = ("cut", "shortened")  # in notes about rows of which a part is not scored
ANSWERS: dict[str, Callable[[Row], str]] = {  # what a language model is asked for, by form of the rows
    "text": lambda row: str(row["text"]),
    "prompt": lambda row: str(row["completion"]),
    "pair": lambda row: str(row["tgt"]),
    "messages": lambda row: "".join(message_text(m) for m in row["messages"][1:] if is_trained(m)),
}


@dataclass(frozen=True)
class RowResult:
    """The outcome of a row, with what the model read."""

    outcome: ExampleOutcome
    text: str
    place: str = ""  # file and line, where known

    def to_dict(self, measure: str) -> dict[str, Any]:
        result = {"example": self.outcome.example + 1, "place": self.place, "text": self.text}
        texts = {"reference": self.outcome.reference, "prediction": self.outcome.prediction}
        return result | {key: text for key, text in texts.items() if text} | {measure: self.outcome.error}


@dataclass(frozen=True)
class EvaluationReport:
    """Everything that `clearhead eval` prints, saves or draws."""

    task: str
    rows: int  # that were scored; what was left out or cut is in `notes`
    evaluation: Evaluation
    notes: tuple[str, ...] = ()
    signature: str | None = None  # the settings behind BLEU
    texts: Sequence[str] = field(default=(), repr=False)  # by example
    places: Sequence[str] = field(default=(), repr=False)

    @property
    def scores(self) -> dict[str, float]:
        return self.evaluation.scores

    def worst(self, count: int) -> list[RowResult]:
        """The rows with the largest error, worst first."""

        def at(values: Sequence[str], outcome: ExampleOutcome) -> str:
            return values[outcome.example] if outcome.example < len(values) else ""

        return [
            RowResult(outcome, at(self.texts, outcome), at(self.places, outcome))
            for outcome in self.evaluation.worst(count)
        ]

    def to_dict(self, worst: int) -> dict[str, Any]:
        evaluation, counts = self.evaluation, self.evaluation.confusion()
        result: dict[str, Any] = {"task": self.task, "rows": self.rows, "scores": self.scores}
        if evaluation.per_class:
            result["per_class"] = {name: vars(scores) for name, scores in evaluation.per_class.items()}
        if counts is not None:
            result["confusion"] = {"labels": list(evaluation.names), "counts": counts}
        if self.signature is not None:
            result["signature"] = self.signature
        rows = [row.to_dict(evaluation.measure) for row in self.worst(worst)]
        return result | {"worst": rows, "notes": list(self.notes)}


def report_on(
    name: str,
    evaluation: Evaluation,
    examples: Sequence[Any],
    rows: Sequence[Row],
    form: str,
    tokenizer: Tokenizer,
    *,
    origins: Sequence[int] | None = None,
    places: Sequence[str] = (),
    notes: Sequence[str] = (),
    language: str | None = None,
) -> EvaluationReport:
    """`examples` are those of the task, `rows` what they were built from, `form` the form of the rows.
    `origins` are the rows of the examples, where a row may be several examples, or none."""
    scored = len(set(origins)) if origins is not None else min(len(rows), len(examples))
    whole = scored == len(rows) and not any(f" {word} to " in note for note in notes for word in CUT)
    if origins is not None:
        rows, places = [rows[i] for i in origins], [places[i] for i in origins] if places else []
    if len(examples) == len(rows) and name in WHOLE_ROWS:
        texts = [" | ".join(row_texts(form, row).values()) for row in rows]
        outcomes = [_with_texts(outcome, form, rows[outcome.example]) for outcome in evaluation.outcomes]
        evaluation = replace(evaluation, outcomes=outcomes)
        if name == "causal" and whole:
            evaluation.scores["bits_per_byte"] = _bits_per_byte(outcomes, form, rows, origins)
    else:  # some rows were left out, or cut into pieces
        texts, places = [tokenizer.decode(_ids_of(example)) for example in examples], []
    signature = None
    if language is not None:
        signature = f"{bleu_signature(['a'], ['a'], language)}|lang:{language}"
    return EvaluationReport(name, scored, evaluation, tuple(notes), signature, texts, places)


def _ids_of(example: Any) -> Sequence[int]:
    """The input ids of an example of any task; of several texts the first."""
    for name in ("source", "ids", "texts", "first"):
        if hasattr(example, name):
            example = getattr(example, name)
            break
    ids: Sequence[int] = example[0] if example and not isinstance(example[0], int) else example
    return ids


def _with_texts(outcome: ExampleOutcome, form: str, row: Row) -> ExampleOutcome:
    """Choices, completions and entities as texts: the tasks know them by number only, or not at all."""
    if form == "choice":
        texts = [str(row["choices"][int(number)]) for number in (outcome.reference, outcome.prediction)]
        return replace(outcome, reference=texts[0], prediction=texts[1])
    if form == "tags" and len(outcome.classes) == len(row["tokens"]):
        sides = zip(*outcome.classes, strict=True)
        texts = [_entities(row["tokens"], tags) for tags in sides]
        return replace(outcome, reference=texts[0], prediction=texts[1])
    if not outcome.reference and form == "prompt":
        return replace(outcome, reference=str(row["completion"]))
    return outcome


def _entities(words: Sequence[str], tags: Sequence[str]) -> str:
    """The tagged words alone: Barack Obama (person), Paris (location)."""
    groups: list[tuple[str, list[str]]] = []
    open_ = ""
    for word, tag in zip(words, tags, strict=True):
        kind = tag[2:] if tag[:2] in ("B-", "I-") else tag
        if tag != "O" and kind == open_ and not tag.startswith("B-"):
            groups[-1][1].append(word)
        elif tag != "O":
            groups.append((kind, [word]))
        open_ = kind if tag != "O" else ""
    return ", ".join(f"{' '.join(group)} ({kind})" for kind, group in groups) or "(none)"


def _bits_per_byte(
    outcomes: Sequence[ExampleOutcome], form: str, rows: Sequence[Row], origins: Sequence[int] | None
) -> float:
    """The loss per byte of the texts, or of the answers: comparable between tokenizers."""
    # Several examples of one row have its answers between them.
    by_row = {origins[o.example] if origins else o.example: rows[o.example] for o in outcomes}
    count = sum(len(ANSWERS[form](row).encode("utf-8")) for row in by_row.values())
    return sum(outcome.loss for outcome in outcomes) / math.log(2) / max(count, 1)
