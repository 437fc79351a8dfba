"""Comparing two bundles on many texts: rows in; how much the output for each of them changed, out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import InputError
from ..lens import UNITS, TraceInput, label_changes, output_distance
from .bundle import Bundle
from .comparing import BundlePair, base_of, class_names, model_output
from .part_effects import EffectProgress
from .tracing import check_length, read_input, with_answer


@dataclass(frozen=True)
class RowChange:
    """One text: how far apart the outputs are, on average over its tokens."""

    row: int  # from 1
    text: str
    change: float
    before: float | None = None  # the loss per token
    after: float | None = None
    best_before: str = ""  # the label
    best_after: str = ""

    @property
    def is_switched(self) -> bool:
        return self.best_before != self.best_after

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class RowChanges:
    """The rows with a text, those that changed most first."""

    rows: tuple[RowChange, ...]
    unit: str
    without_text: int  # rows left out
    notes: tuple[str, ...] = ()

    @property
    def mean_change(self) -> float:
        return sum(row.change for row in self.rows) / len(self.rows)

    @property
    def losses(self) -> tuple[float, float] | None:
        """The mean of the rows' losses before and after."""
        known = [
            (row.before, row.after) for row in self.rows if row.before is not None and row.after is not None
        ]
        return (
            (sum(a for a, _ in known) / len(known), sum(b for _, b in known) / len(known)) if known else None
        )

    @property
    def switched(self) -> int | None:
        """How many rows have another label."""
        return sum(row.is_switched for row in self.rows) if self.rows[0].best_after else None


@torch.no_grad()
def compare_rows(
    before: Bundle,
    after: Bundle | Sequence[str],
    texts: Sequence[str] | None = None,
    contexts: Sequence[str] | None = None,
    *,
    max_new_tokens: int = 32,
    progress: EffectProgress | None = None,
) -> RowChanges:
    """How much the output for each text changed, those that changed most first.

    As `compare` on one text after the other, without attention and parts. `contexts` are targets of an
    encoder-decoder, or the second texts of pairs. A text that is longer than a model reads is cut.
    """
    if not isinstance(after, Bundle):
        texts, contexts, after = after, texts if contexts is None else contexts, before
        before = base_of(after)
    pair = BundlePair.of(before, after)
    rows, cut = list[RowChange](), 0
    for number, text in enumerate(texts or ()):
        if text.strip():
            fed, is_cut = _read(
                pair, text, None if contexts is None else contexts[number] or None, max_new_tokens
            )
            rows.append(_row(pair, fed, number + 1, text))
            cut += is_cut
        if progress is not None:
            progress(number + 1, len(texts or ()))
    if not rows:
        raise InputError("there is no row with a text in it; expected at least one")
    notes = (*pair.notes, *((f"{cut:,} texts were longer than the models read and were cut",) if cut else ()))
    order = sorted(
        rows, key=lambda row: (not row.is_switched if pair.kind == "labels" else False, -row.change)
    )
    return RowChanges(tuple(order), UNITS[pair.kind], len(texts or ()) - len(rows), notes)


def _read(pair: BundlePair, text: str, context: str | None, limit: int) -> tuple[TraceInput, bool]:
    """The input of both models, and whether the text was cut."""
    fed, is_cut = read_input(pair.after, text, context), False
    lengths = [bundle.spec.max_length for bundle in pair[:2] if bundle.spec.max_length is not None]
    if lengths and context is None and len(fed.ids) > min(lengths):
        ids = torch.as_tensor(fed.ids)[: min(lengths)].tolist()
        fed, is_cut = TraceInput(ids, fed.tokens[: len(ids)]), True
    if pair.after.spec.is_encoder_decoder and context is None:
        fed = with_answer(pair.after, fed, limit)
    for bundle in pair[:2]:
        check_length(bundle, fed)
    return fed, is_cut


def _row(pair: BundlePair, fed: TraceInput, number: int, text: str) -> RowChange:
    one, two = (model_output(bundle.model, fed, pair.kind) for bundle in pair[:2])
    distances, counted = output_distance(pair.kind, two, one), pair.counted(fed, two)
    change = float((distances if counted is None else distances[counted.to(distances.device)]).mean())
    if pair.kind == "words" and pair.after.spec.generates:
        return RowChange(number, text, change, _loss(one, fed), _loss(two, fed))
    labels = label_changes(pair.kind, one, two, class_names(pair.after))
    if pair.kind == "labels":
        before = max(labels, key=lambda label: label.before).name
        return RowChange(number, text, change, best_before=before, best_after=labels[0].name)
    return RowChange(number, text, change)


def _loss(logits_TV: Tensor, fed: TraceInput) -> float | None:
    """The mean loss of the tokens after the first; None where there is only one."""
    ids = torch.as_tensor(fed.ids if fed.target_ids is None else fed.target_ids, device=logits_TV.device)
    if len(ids) < 2:
        return None
    return float(torch.nn.functional.cross_entropy(logits_TV[:-1].double(), ids[1:]))
