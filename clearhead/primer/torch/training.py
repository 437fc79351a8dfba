"""One step of training, a rate for each step, a loss, a few more sentences: the notes' tools, corrected.

For whole runs there is `clearhead train`: resumable, logged, exact. These are the pieces to look at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

from ...data.augment import Augment
from ...errors import InputError, SpecError
from ...tasks.losses import Smoothing
from ...train.schedule import Noam
from .masks import create_masks
from .names import share

# A handful of words to see what replacing does; for real work give a lexicon (`clearhead.data.read_lexicon`).
SYNONYMS: Mapping[str, Sequence[str]] = {
    "big": ["large", "great"], "small": ["little", "tiny"], "quick": ["fast", "rapid"],
    "happy": ["glad", "pleased"], "begin": ["start"], "house": ["home"], "look": ["watch", "gaze"],
    "喜欢": ["喜爱", "爱好"], "喜歡": ["喜愛"], "非常": ["十分", "很"], "高兴": ["开心", "快乐"],
    "漂亮": ["美丽", "好看"], "开始": ["着手"], "房子": ["屋子"], "立刻": ["马上"],
}  # fmt: skip


class Scheduler(Protocol):
    def step(self) -> None: ...


def train_step(
    model: nn.Module,
    src: Tensor,
    tgt: Tensor,
    criterion: Any,
    optimizer: torch.optim.Optimizer,
    *,
    scheduler: Scheduler | None = None,
    pad_idx: int = 0,
    max_norm: float = 1.0,
) -> float:
    """One update by teacher forcing: the model sees tgt[:, :-1] and is asked for tgt[:, 1:]. The loss.

    Padding never reaches `criterion`, so a mean is one over real words. The notes counted padding unless the
    criterion happened to leave it out, and never moved the scheduler.
    """
    model.train()
    seen, wanted = tgt[:, :-1], tgt[:, 1:]
    src_mask, tgt_mask = create_masks(src, seen, pad_idx, pad_idx)
    logits_BTV = model(src, seen, src_mask, tgt_mask)
    real_BT = wanted != pad_idx
    if not bool(real_BT.any()):
        raise InputError(f"every target is padding ({pad_idx}); there is nothing to learn from")
    loss = criterion(logits_BTV[real_BT], wanted[real_BT])
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    optimizer.step()
    if scheduler is not None:
        scheduler.step()
    return float(loss.detach())


def get_lr_scheduler(optimizer: torch.optim.Optimizer, d_model: int, warmup_steps: int = 4000) -> LambdaLR:
    """d_model^-0.5 * min(step^-0.5, step * warmup^-1.5): the rate itself, whatever the optimizer's `lr`.

    The notes call it "cosine", which it is not; they multiply it with `lr` (with 1e-3 the peak is 7e-7), and
    use the first rate twice. The peak for 512 and 4,000 is 6.9877e-4. A true cosine is `train.Cosine`.
    """
    noam = Noam(warmup=warmup_steps)

    def factor(base: float) -> Any:
        if base <= 0:
            raise InputError(
                f"the optimizer's lr is {base}; expected a number above 0 (it is overruled anyway)"
            )
        return lambda step: noam.rate(step + 1, peak=0.0, steps=0, width=d_model) / base

    return LambdaLR(optimizer, [factor(group["lr"]) for group in optimizer.param_groups])


class LabelSmoothingLoss(nn.Module):
    """The divergence from a truth that leaves `smoothing` to the other words; a perfect answer has loss 0.

    Takes logits (or log-probabilities, which are logits of themselves) and gives the mean over real targets.
    The notes hand raw logits to a divergence that needs log-probabilities: the loss falls to -800 and on.
    They also keep the rows of padding, and sum without dividing.
    """

    def __init__(
        self, size: int, padding_idx: int = 0, smoothing: float = 0.1, *, reduction: str = "mean"
    ) -> None:
        super().__init__()
        if size < 3:
            raise SpecError(f"size is {size}; smoothing needs padding and two real words, so 3 or more")
        if reduction not in ("mean", "sum"):
            raise SpecError(f"reduction is {reduction!r}; expected 'mean' or 'sum'")
        self.size, self.padding_idx, self.reduction = size, padding_idx, reduction
        self.smoothing = Smoothing(share(smoothing), unreal=(padding_idx,))

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        if x.shape[-1] != self.size or x.shape[:-1] != target.shape:
            given = f"{tuple(x.shape)} and {tuple(target.shape)}"
            raise InputError(
                f"expected logits (..., {self.size}) and targets of the same rows; given {given}"
            )
        real = target != self.padding_idx
        total = self.smoothing.loss(x[real], target[real])
        return total / real.sum().clamp(min=1) if self.reduction == "mean" else total


def augment_data(
    src: str | Sequence[str],
    tgt: str | Sequence[str],
    *,
    seed: int = 0,
    epoch: int = 0,
    delete: float = 0.1,
    synonyms: float = 0.1,
    swap: float = 0.05,
    letters: float = 0.02,
    lexicon: Mapping[str, Sequence[str]] = SYNONYMS,
) -> tuple[Any, Any]:
    """Sources with words lost, replaced, swapped or mistyped, a function of the seed; targets as they are.

    In the notes the body is four comments and two names that do not exist. Their fourth idea, translating
    back, is `clearhead.data.back_translate(targets, translate)`.
    """
    change = Augment(delete=delete, synonyms=synonyms, swap=swap, letters=letters, lexicon=lexicon)
    if isinstance(src, str):
        return change(src, seed=seed, row=0, epoch=epoch), tgt
    return [change(text, seed=seed, row=row, epoch=epoch) for row, text in enumerate(src)], tgt
