"""Causal language modelling: documents of ids in; the loss of every next token, and perplexity, out.

Documents are packed into rows of one length; texts that share a row do not see each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor

from ..data import IGNORE_INDEX, DocumentSlice, Packed, pack, plan_rows
from ..errors import DataError, InputError
from ..nn import Documents, States, TransformerModel
from .losses import Smoothing, token_loss
from .outcomes import Evaluation, ExampleOutcome, losses_of_rows, mean_loss
from .task import Better, on_device

ContinueText = Callable[[TransformerModel, list[int]], str]  # a prompt -> its text and what follows


@dataclass(frozen=True)
class PackedBatch:
    ids_BT: Tensor
    labels_BT: Tensor
    document_BT: Tensor  # the number of the text that a token is of; -1 for padding

    @property
    def tokens(self) -> int:
        return int((self.document_BT >= 0).sum())

    @property
    def targets(self) -> int:
        return int((self.labels_BT != IGNORE_INDEX).sum())


class CausalLM:
    """`length` tokens a row, `rows` rows a batch; `parts` batches make one step of the trainer.

    `trained` flags, token by token, what is to be learned: 1 for a completion, 0 for its prompt. Without it,
    everything is. `origins` are the rows of the file that the texts were made from, where it is not one each.
    """

    def __init__(
        self,
        splits: Mapping[str, Sequence[Sequence[int]]],
        *,
        length: int,
        rows: int,
        pad: int,
        trained: Mapping[str, Sequence[Sequence[int]]] | None = None,
        origins: Mapping[str, Sequence[int]] | None = None,
        continue_text: ContinueText | None = None,
        seed: int = 0,
        parts: int = 1,
        smoothing: float = 0.0,
        fingerprint: Mapping[str, str] | None = None,
    ) -> None:
        for name, documents in splits.items():
            if not any(len(document) > 1 for document in documents):
                raise DataError(f"the split {name!r} has no text of two tokens or more: nothing to predict")
        self.splits, self.length, self.rows, self.pad = splits, length, rows, pad
        self.trained, self.origins = trained, origins
        self.continue_text, self.seed, self.parts = continue_text, seed, parts
        # The padding token may be the end token, too: then it is as real as any other.
        never = smoothing and not any(pad in document for document in splits.get("train", ()))
        self.smoothing = Smoothing(smoothing, unreal=(pad,) if never else ())
        settings = {"length": length, "rows": rows, "seed": seed, "parts": parts, "smoothing": smoothing}
        self.fingerprint = {**{name: str(value) for name, value in settings.items()}, **(fingerprint or {})}
        self._plan = lru_cache(2)(self._planned)

    @property
    def better(self) -> Better:
        return Better("loss", larger=False)

    @property
    def steps_per_epoch(self) -> float:
        return self._batches_per_epoch / self.parts

    @property
    def _batches_per_epoch(self) -> int:
        return -(-len(self._plan("train", 0)) // self.rows)

    def batch(self, step: int, micro: int) -> PackedBatch:
        number = (step - 1) * self.parts + micro
        epoch, inside = divmod(number, self._batches_per_epoch)
        rows = self._plan("train", epoch)[inside * self.rows : (inside + 1) * self.rows]
        return self._tensors("train", rows)

    def largest_batch(self) -> PackedBatch:
        """All batches are of one size but for the last of an epoch."""
        return self.batch(1, 0)

    def example(self, split: str, number: int) -> PackedBatch:
        """One text by itself, as it is in a packed row."""
        end = min(len(self.splits[split][number]), self.length)
        return self._tensors(split, [[DocumentSlice(number, 0, end)]], end)

    def loss(self, model: TransformerModel, batch: PackedBatch) -> Tensor:
        return self._summed_loss(model, batch, self.smoothing)

    @torch.no_grad()
    def score(self, model: TransformerModel, split: str) -> dict[str, float]:
        """The mean loss per token, and its exponential."""
        if split not in self.splits:
            raise DataError(f"there is no split {split!r}; there are {', '.join(self.splits)}")
        rows, total, count = self._plan(split, 0), 0.0, 0
        for at in range(0, len(rows), self.rows):
            batch = self._tensors(split, rows[at : at + self.rows])
            count += batch.targets
            total += float(self._summed_loss(model, on_device(batch, model), Smoothing()))
        return {"loss": total / count, "perplexity": math.exp(min(total / count, 700.0))}

    @torch.no_grad()
    def evaluate(self, model: TransformerModel, split: str) -> Evaluation:
        """The loss of each text by itself, from its beginning; only texts longer than a row are cut.

        `score` packs texts as training does, and cuts some at the end of a row.
        """
        sums, counts = [0.0] * len(self.splits[split]), [0] * len(self.splits[split])
        rows = [
            DocumentSlice(number, start, min(start + self.length, len(document)))
            for number, document in enumerate(self.splits[split])
            if len(document) > 1
            for start in range(0, len(document), self.length)
        ]
        rows.sort(key=lambda piece: piece.end - piece.start)  # texts of like length share a batch
        for group in _groups(rows, self.rows * self.length):
            batch = self._tensors(split, [[piece] for piece in group], group[-1].end - group[-1].start)
            if not batch.targets:
                continue
            targets = (batch.labels_BT != IGNORE_INDEX).sum(1).tolist()
            batch = on_device(batch, model)
            losses = losses_of_rows(model, self._states(model, batch), batch.labels_BT)
            for piece, loss, count in zip(group, losses, targets, strict=True):
                sums[piece.document] += loss
                counts[piece.document] += count
        outcomes = [
            ExampleOutcome(i, "", "", loss / count, loss, count)
            for i, (loss, count) in enumerate(zip(sums, counts, strict=True))
            if count
        ]
        mean = mean_loss(outcomes)
        scores = {"loss": mean, "perplexity": math.exp(min(mean, 700.0))}
        return Evaluation(scores, outcomes, "loss per token")

    def samples(self, model: TransformerModel) -> list[str]:
        """The beginnings of the first held-out texts, or their prompts, continued by the model."""
        if self.continue_text is None or "valid" not in self.splits:
            return []
        texts = [list(ids) for ids in self.splits["valid"][:2] if len(ids) > 1]
        if self.trained is None:
            ends = [min(16, self.length // 4)] * len(texts)
        else:  # the whole prompt
            ends = [list(flags).index(1) for flags in self.trained["valid"][:2] if len(flags) > 1]
        return [self.continue_text(model, ids[: max(end, 1)]) for ids, end in zip(texts, ends, strict=True)]

    def _planned(self, split: str, epoch: int) -> list[list[DocumentSlice]]:
        """Plain texts fill rows completely: what does not fit continues in the next row. Prompts with their
        completions stay whole: a completion without its prompt would teach something else.
        """
        # A document of one token has nothing to predict and is left out: otherwise the number of rows without
        # a target, which are dropped below, would depend on the order of the epoch; it must not.
        lengths = [len(document) if len(document) > 1 else 0 for document in self.splits[split]]
        cut: Literal["any", "long"] = "any" if self.trained is None else "long"
        rows = plan_rows(lengths, self.length, seed=self.seed, epoch=epoch, cut=cut)
        return [row for row in rows if any(p.end - p.start > 1 or p.end < lengths[p.document] for p in row)]

    def _tensors(
        self, split: str, rows: Sequence[Sequence[DocumentSlice]], length: int | None = None
    ) -> PackedBatch:
        length = length or self.length
        packed: Packed = pack(self.splits[split], rows, length, self.pad)
        batch = PackedBatch(*(torch.from_numpy(x) for x in packed))
        if self.trained is None:
            return batch
        # Packed like the ids, the flags of the next tokens are in the same places as the labels.
        flags = torch.from_numpy(pack(self.trained[split], rows, length, 0).labels_RT)
        return replace(batch, labels_BT=batch.labels_BT.masked_fill(flags != 1, IGNORE_INDEX))

    def _summed_loss(self, model: TransformerModel, batch: PackedBatch, smoothing: Smoothing) -> Tensor:
        return token_loss(model, self._states(model, batch), batch.labels_BT, smoothing)

    @staticmethod
    def _states(model: TransformerModel, batch: PackedBatch) -> States:
        if len(model.spec.towers) > 1:
            raise InputError("language modelling needs a model with one tower")
        whole = bool(
            (batch.document_BT == 0).all()
        )  # one text per row: no mask is needed beyond the causal one
        return model.states(batch.ids_BT, None if whole else Documents(batch.document_BT))


def _groups(pieces: Sequence[DocumentSlice], tokens: int) -> Iterator[list[DocumentSlice]]:
    """Pieces, shortest first, in groups of at most this many tokens when padded to the longest."""
    group: list[DocumentSlice] = []
    for piece in pieces:
        if group and (len(group) + 1) * (piece.end - piece.start) > tokens:
            yield group
            group = []
        group.append(piece)
    if group:
        yield group
