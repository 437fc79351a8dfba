"""One training step, a learning-rate schedule, a loss, data augmentation: the usual tools, corrected.

For whole runs there is `clearhead train`: resumable, logged, exact. These are the parts, for reading.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

from ...data import Augment
from ...errors import InputError, SpecError
from ...tasks import Smoothing
from ...train import Noam
from .masks import create_masks
from .names import share

# A few words to see the effect of replacement; for real work give a lexicon (`clearhead.data.read_lexicon`).
# Chinese words that are written alike in both scripts have synonyms that are, too.
SYNONYMS: Mapping[str, Sequence[str]] = {
    "big": ["large", "great"], "small": ["little", "tiny"], "quick": ["fast", "rapid"],
    "happy": ["glad", "pleased"], "begin": ["start"], "house": ["home"], "look": ["watch", "gaze"],
    "非常": ["十分", "很"], "漂亮": ["好看"], "房子": ["屋子"], "立刻": ["立即"], "朋友": ["友人"],
    "喜欢": ["喜爱"], "高兴": ["开心", "快乐"], "美丽": ["漂亮"], "开始": ["着手"], "经常": ["常常"],
    "喜歡": ["喜愛"], "高興": ["開心", "快樂"], "美麗": ["漂亮"], "開始": ["著手"], "經常": ["常常"],
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
    """One update by teacher forcing: the model sees tgt[:, :-1] and predicts tgt[:, 1:]. Returns the loss.

    Padding never reaches `criterion`, so that a mean is over real words, whether or not the criterion
    knows which id is padding. A `scheduler` is stepped after the update.
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

    The peak for 512 and 4,000 is 6.9877e-4. Two mistakes are common: `LambdaLR` multiplies this rate with
    `lr` (with 1e-3 the peak is 7e-7), and step 0 taken for step 1 uses the first rate twice. It is an inverse
    square root, no cosine; a cosine is `train.Cosine`.
    """
    noam = Noam(warmup=warmup_steps)

    def factor(base: float) -> Any:
        if base <= 0:
            raise InputError(
                f"the optimizer's lr is {base}; expected a number above 0 (it is overridden anyway)"
            )
        return lambda step: noam.rate(step + 1, peak=0.0, steps=0, width=d_model) / base

    return LambdaLR(optimizer, [factor(group["lr"]) for group in optimizer.param_groups])


class LabelSmoothingLoss(nn.Module):
    """KL divergence from a target that gives `smoothing` to the other words; a perfect prediction has loss 0.

    Takes logits (or log-probabilities, which are logits of themselves), returns the mean over real targets.
    `nn.KLDivLoss` needs log-probabilities: given raw logits, the loss falls to -800 and below.
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
    src: Any,
    tgt: Any,
    *,
    seed: int = 0,
    epoch: int = 0,
    delete: float = 0.1,
    synonyms: float = 0.1,
    swap: float = 0.05,
    letters: float = 0.02,
    lexicon: Mapping[str, Sequence[str]] = SYNONYMS,
    special: Sequence[int] = (0, 1, 2),
) -> tuple[Any, Any]:
    """Sources with words deleted, replaced, swapped or mistyped, a function of the seed; targets as they are.

    `src` is a text, or a list of texts; or the ids of one, (T,), or of several, (B, T), as lists or tensors.
    Ids are deleted and swapped; for synonyms and typing errors one needs the words. The `special` ids
    (padding, begin, end) keep their places, and rows of a (B, T) tensor are padded with the first of them to
    the length they had. No source becomes empty. To translate targets back into new sources there is
    `clearhead.data.back_translate(targets, translate)`.
    """
    change = Augment(delete=delete, synonyms=synonyms, swap=swap, letters=letters, lexicon=lexicon)

    def one(row: Any, number: int) -> Any:
        if isinstance(row, str):
            return change(row, seed=seed, row=number, epoch=epoch)
        ids = row.tolist() if isinstance(row, Tensor) else list(row)
        changed = change.ids(ids, seed=seed, row=number, epoch=epoch, special=special)
        return row.new_tensor(changed) if isinstance(row, Tensor) else changed

    if isinstance(src, str) or (len(src) and _is_id(src[0])):
        return one(src, 0), tgt
    rows = [one(row, number) for number, row in enumerate(src)]
    if not isinstance(src, Tensor):
        return rows, tgt
    padded = torch.full_like(src, special[0])
    for row, before, after in zip(padded, src, rows, strict=True):
        start = len(row) - len(after) if before[0] == special[0] else 0  # padding goes where the row has it
        row[start : start + len(after)] = after
    return padded, tgt


def _is_id(item: Any) -> bool:
    return isinstance(item, int) or (isinstance(item, Tensor) and item.ndim == 0)
