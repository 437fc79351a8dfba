"""Ids in, masks out: boolean, True = may attend. Combine them with &.

Textbooks write masks in three ways, and attention reads each of them (`to_allowed`):

    booleans             True = may attend
    numbers 0 and 1      1 = blocked: as in `scores + mask * -1e9`
    numbers 0 and -inf   added to the scores: -inf (or -1e9) = blocked
"""

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
    # Booleans are an error although False equals 0: nobody adds them, so they mean something else.
    if given.dtype == np.bool_ or not np.isin(given, (0, -np.inf)).all():
        raise ValueError("expected a mask of 0 and -inf; for 0 and 1 there is mask_from_blocked")
    return np.isin(given, 0)


def to_allowed(mask: ArrayLike) -> Mask:
    """A mask of any of the three kinds -> boolean, True = may attend.

    A mask of numbers does not show what a 1 means. So numbers that leave some query without any key are an
    error: that is how a mask of 1 = may attend looks when it is read as 1 = blocked (the last row of a
    triangle, a sentence without padding). Booleans may block whole rows.
    """
    given: NDArray[Any] = np.asarray(mask)
    if isinstance(mask, Blocked):
        return mask_from_blocked(given)
    if given.dtype == np.bool_:
        return given
    if np.any(given < 0):
        return mask_from_additive(np.where(given < -1e4, -np.inf, given))
    allowed = mask_from_blocked(given)
    if not np.atleast_1d(allowed).any(axis=-1).all():
        raise ValueError(
            "a mask of numbers is read as 1 = blocked, and this one leaves a query nothing to attend to; "
            "if 1 means 'may attend', give mask == 1, otherwise mask_from_blocked(mask)"
        )
    return allowed


def looks_like_padding(allowed_BK: Mask) -> bool:
    """Could (T, T) be the padding of T sentences? Real tokens up to a point in all rows, or from one on.

    With as many sentences as tokens the shape does not say whether rows are sentences or queries. Rows that
    are all alike mean the same either way, and the triangle is the look-ahead mask.
    """
    edges_B = np.abs(np.diff(allowed_BK.astype(np.int8), axis=1)).sum(axis=1)
    empty_B = ~allowed_BK.any(axis=1)
    one_side = any((allowed_BK[:, end] | empty_B).all() for end in (0, -1))
    alike = (allowed_BK == allowed_BK[:1]).all()
    ahead = np.array_equal(allowed_BK, np.tri(allowed_BK.shape[1], dtype=np.bool_))
    return bool(one_side and (edges_B <= 1).all() and not alike and not ahead)


# Masks of 1 = blocked, as many textbooks write them. Their class records what a 1 means.


class Blocked(NDArray[np.float32]):
    """An array of 1 = blocked and 0 = may attend, which attention converts. Two of them join with |.

    Whatever else is done to it (`1 - mask`, `mask * -1e9`) gives a plain array, read as in `to_allowed`.
    """

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **more: Any) -> Any:
        joins = ufunc in (np.maximum, np.logical_or, np.bitwise_or)
        if not joins or not all(isinstance(x, Blocked) for x in inputs):
            return getattr(ufunc, method)(*(np.asarray(x) for x in inputs), **more)
        if all(isinstance(x, BlockedPadding) for x in inputs):
            return np.maximum(*(np.asarray(x) for x in inputs)).view(BlockedPadding)
        # Padding (B, T) is the same for every query: (B, 1, T).
        padded = [isinstance(x, BlockedPadding) and x.ndim == 2 for x in inputs]
        plain = (np.asarray(x[:, None] if lift else x) for x, lift in zip(inputs, padded, strict=True))
        return np.maximum(*plain).view(Blocked)


class BlockedPadding(Blocked):
    """A `Blocked` whose two axes are known to be (sentences, tokens), not (queries, keys)."""


def create_padding_mask(seq: ArrayLike, pad_token: int = 0) -> BlockedPadding:
    """ids (B, T) -> (B, T), 1 = padding. Attention stretches it over the heads and the queries.

    A plain array (B, T) added to scores (B, T, T) raises, or, with as many sentences as tokens, blocks the
    words of other sentences. This one is known by its class, and so is what it gives joined with `|`.
    """
    padded: NDArray[Any] = np.asarray(seq) == pad_token
    return padded.astype(np.float32).view(BlockedPadding)


def create_look_ahead_mask(size: int) -> Blocked:
    """(T, T), 1 above the diagonal: the future is blocked."""
    return np.triu(np.ones((size, size), np.float32), k=1).view(Blocked)
