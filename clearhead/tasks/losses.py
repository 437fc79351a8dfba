"""Losses: states and labels in, one sum out. Logits are computed only for tokens that have a label.

Shape suffixes: B batch, T tokens, N labelled tokens, D width, V classes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ..data import IGNORE_INDEX
from ..errors import SpecError
from ..nn import States, TransformerModel
from ..nn.norm import widen


@dataclass(frozen=True)
class Smoothing:
    """Label smoothing over the other real classes (Szegedy 2016); `unreal` ids such as padding get none.

    The loss is the divergence from the smoothed distribution, so a perfect prediction has loss zero. Its
    text form is saved with a run (see `BucketedTask.fingerprint`): names stay as they are.
    """

    amount: float = 0.0
    unreal: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.amount < 1:
            raise SpecError(f"label smoothing is {self.amount}; expected 0 or more and less than 1")

    def loss(self, logits_NV: Tensor, labels_N: Tensor) -> Tensor:
        """The sum over all N."""
        if not self.amount:
            return F.cross_entropy(logits_NV, labels_N, reduction="sum")
        logs_NV = logits_NV.log_softmax(-1)
        true_N = logs_NV.gather(1, labels_N[:, None])[:, 0]
        unreal = torch.tensor(self.unreal, dtype=torch.long, device=logits_NV.device)
        others = logits_NV.shape[1] - len(self.unreal) - 1
        if others < 1:
            raise SpecError("label smoothing needs two real classes or more")
        share = self.amount / others
        rest_N = logs_NV.sum(-1) - logs_NV[:, unreal].sum(-1) - true_N
        entropy = (1 - self.amount) * math.log(1 - self.amount) + self.amount * math.log(share)
        return -((1 - self.amount) * true_N + share * rest_N).sum() + entropy * len(labels_N)


def token_loss(model: TransformerModel, states: States, labels_BT: Tensor, smoothing: Smoothing) -> Tensor:
    """The loss of the logits at the labelled tokens, summed."""
    where_BT = labels_BT != IGNORE_INDEX
    logits_NV = model.read(States(states.x_BTD[where_BT][None]))[0]
    return smoothing.loss(widen(logits_NV), labels_BT[where_BT])


def class_loss(logits: Tensor, labels: Tensor, smoothing: Smoothing) -> Tensor:
    """The loss of class logits (B, C) or (B, T, C), summed over those that have a label."""
    flat_NC, labels_N = logits.flatten(0, -2), labels.flatten()
    real_N = labels_N != IGNORE_INDEX
    return smoothing.loss(widen(flat_NC[real_N]), labels_N[real_N])
