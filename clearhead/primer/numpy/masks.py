"""Ids in, masks out: boolean, True = may attend. Combine them with &."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .arrays import Ids, Mask


def padding_mask(ids: Ids, pad: int = 0) -> Mask:
    """ids (B, T) -> (B, 1, 1, T), True at real tokens; the ones are for the heads and the queries.

    A frequent mistake is to leave the mask at (B, T): with B = T it fits and masks other sentences.
    """
    if ids.ndim != 2:
        raise ValueError(f"ids must have the shape (sentences, tokens), given {ids.shape}")
    real_BT: Mask = ids != pad
    return real_BT[:, None, None, :]


def causal_mask(size: int) -> Mask:
    """(T, T), True on and below the diagonal: a token sees itself and the past, not the future."""
    return np.tri(size, dtype=np.bool_)


def mask_from_blocked(mask: ArrayLike) -> Mask:
    """A mask of 0 = may attend and 1 = blocked (or False and True) -> True = may attend."""
    given: NDArray[Any] = np.asarray(mask)
    if not np.isin(given, (0, 1)).all():
        raise ValueError("expected a mask of 0 and 1; for 0 and -inf there is mask_from_additive")
    return np.isin(given, 0)


def mask_from_additive(mask: ArrayLike) -> Mask:
    """A mask to be added to the scores, 0 = may attend and -inf = blocked -> True = may attend."""
    given: NDArray[Any] = np.asarray(mask)
    # Booleans are refused although False equals 0: nobody adds them, so they mean something else.
    if given.dtype == np.bool_ or not np.isin(given, (0, -np.inf)).all():
        raise ValueError("expected a mask of 0 and -inf; for 0 and 1 there is mask_from_blocked")
    return np.isin(given, 0)


# The notes' own masks, 1 = blocked. They know what their ones mean, so that no door can misread them.


class Blocked(NDArray[np.float32]):
    """An array of 1 = blocked and 0 = may attend, which attention converts. Two of them join with |.

    Whatever else is done to it (`1 - mask`, `mask * -1e9`) gives a plain array without a meaning.
    """

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **more: Any) -> Any:
        plain = [np.asarray(x) for x in inputs]
        joins = ufunc in (np.maximum, np.logical_or, np.bitwise_or)
        if not joins or not all(isinstance(x, Blocked) for x in inputs):
            return getattr(ufunc, method)(*plain, **more)
        return np.maximum(*plain).view(Blocked)


def create_padding_mask(seq: ArrayLike, pad_token: int = 0) -> Blocked:
    """ids (B, T) -> (B, T), 1 = padding; write `mask[:, None, :]` for scores of shape (B, Q, K).

    In the notes (B, T) was added to (B, T, T) as it stood: with as many sentences as tokens it fits, and
    blocks the words of other sentences. Here that shape is refused, and the message says what to write.
    """
    padded: NDArray[Any] = np.asarray(seq) == pad_token
    return padded.astype(np.float32).view(Blocked)


def create_look_ahead_mask(size: int) -> Blocked:
    """(T, T), 1 above the diagonal: the future is blocked."""
    return np.triu(np.ones((size, size), np.float32), k=1).view(Blocked)
