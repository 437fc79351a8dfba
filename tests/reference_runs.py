"""Running a reference and our model on one batch: three texts in, the answers of both out."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
from references import Exact, Reference, patient
from torch import Tensor

from clearhead import nn as cn

LENGTH = 18


@dataclass
class Batch:
    """Ours: three rows in one call, the second padded behind, the third in front. Theirs: each row alone."""

    ids: Tensor
    mask: Tensor
    target: Tensor
    wide: Tensor | None  # which tokens are global, for the families that have such

    @staticmethod
    def of(reference: Reference, config: Any = None) -> "Batch":
        config = reference.config() if config is None else config
        key = torch.Generator().manual_seed(4)
        vocab = min(config.vocab_size, getattr(config, "decoder_vocab_size", None) or config.vocab_size)
        ids = torch.randint(3, vocab, (3, LENGTH), generator=key)
        mask = torch.ones(3, LENGTH, dtype=torch.long)
        mask[1, -5:], mask[2, :4] = 0, 0
        ids[mask == 0] = getattr(config, "pad_token_id", None) or 0  # CodeGen's has no such key
        if reference.reads_to_the_end:  # in the last slot, before a further token, and twice
            ids[0, -2], ids[1, -6], ids[2, 7], ids[2, -1] = (config.eos_token_id,) * 4
        wide = torch.zeros_like(mask)
        wide[0, [0, 9]], wide[1, 3], wide[2, [4, 5, 17]] = 1, 1, 1
        target = torch.randint(3, vocab, (3, 11), generator=key)
        return Batch(ids, mask, target, wide if reference.takes_globals else None)

    def rows(self) -> list[dict[str, Tensor]]:
        """Each row without its padding, as theirs take it."""
        real = [self.mask[i] == 1 for i in range(3)]
        rows = [{"input_ids": self.ids[i, real[i]][None]} for i in range(3)]
        if self.wide is not None:
            for i, row in enumerate(rows):
                row["global_attention_mask"] = self.wide[i, real[i]][None]
        return rows

    def rule(self) -> Tensor | cn.Mask:
        """The mask of the whole batch, as ours take it."""
        if self.wide is None:
            return self.mask
        return cn.mask_adapters.from_attention_mask(self.mask) & cn.mask_adapters.from_global_attention_mask(
            self.wide
        )


def run_theirs(theirs: Any, batch: Batch) -> list[Any]:
    patient(theirs)
    more = {"output_hidden_states": True}
    if "use_cache" in inspect.signature(theirs.forward).parameters:
        more["use_cache"] = False  # of decoders alone, theirs counts the layers of the encoder
    if takes_target(theirs):
        pairs = zip(batch.rows(), batch.target, strict=True)
        return [theirs(**row, decoder_input_ids=target[None], **more) for row, target in pairs]
    rows = batch.rows()
    if type(theirs).__name__.endswith("ForMultipleChoice"):  # (B, choices, T): questions with one choice
        # With a mask of ones: ModernBERT's takes the mean over the mask it is given.
        rows = [row | {"attention_mask": torch.ones_like(row["input_ids"])} for row in rows]
        rows = [{name: x[:, None] for name, x in row.items()} for row in rows]
    return [_fresh(theirs)(**row, **more) for row in rows]


def _fresh(theirs: Any) -> Any:
    """BigBird's turns to full attention for a short text, and stays so: each text gets a copy of it."""
    return deepcopy(theirs) if hasattr(theirs.base_model, "set_attention_type") else theirs


def takes_target(theirs: Any) -> bool:
    """Whether theirs reads a target beside its source; its classifiers read the source twice."""
    one_text = type(theirs).__name__.endswith(("ForSequenceClassification", "ForQuestionAnswering"))
    return "decoder_input_ids" in inspect.signature(theirs.forward).parameters and not one_text


def run_ours(ours: Any, batch: Batch, tap: cn.Tap = cn.OFF) -> Tensor:
    if isinstance(ours, cn.EncoderDecoderModel):
        return ours(batch.ids, batch.target, batch.rule(), tap=tap)
    return ours(batch.ids, batch.rule(), tap=tap)


def answer_of(want: Any) -> Tensor:
    if "end_logits" in want:
        return torch.stack([want["start_logits"][0], want["end_logits"][0]], dim=-1)
    names = ("logits", "prediction_logits", "last_hidden_state")
    return next(want[name] for name in names if name in want)[0]


def row_of(ours: Any, answer: Tensor, batch: Batch, row: int, want: Tensor) -> Tensor:
    """Our answer for one of the texts, without its padding, in the shape of theirs."""
    per_token = answer.ndim == 3 and not isinstance(ours, cn.EncoderDecoderModel)
    if not per_token:
        return answer[row]
    real = batch.mask[row] == 1
    if answer.shape[1] != len(real):  # pooled, and aligned to the left
        real = torch.arange(answer.shape[1]) < len(want)
    given = answer[row, real]
    return given[:, 0] if want.ndim == 1 else given  # ELECTRA's discriminator drops the last dimension


@contextmanager
def in_64_bits() -> Iterator[None]:
    """Inside, a reference is built and computed in float64 throughout."""
    torch.set_default_dtype(torch.float64)
    try:
        # Marian's sines ask for 32 bits by name.
        with Exact(), patch("torch.FloatTensor", torch.DoubleTensor):
            yield
    finally:
        torch.set_default_dtype(torch.float32)
