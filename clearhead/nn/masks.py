"""Masks: which token may attend to which. A mask is a rule over slots; it becomes a tensor only when needed.

One meaning everywhere: True = may attend. Rules combine with `&`, `|`, `~`:

    Causal() & Padding(real_BK)                a decoder over a padded batch
    SlidingWindow(left=2, right=2) | Global(at=(0,))  Longformer
    Everyone() | Global(at=(0,))               all pairs; the local rule of a layer (a window, blocks)
                                               does not apply to token 0

A slot is an index into the sequence, cached tokens included; a position is what the position scheme
counts. They differ when a row starts with padding or holds several documents.
Shape suffixes: B batch, H heads, Q query slots, K key slots.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import InputError


def segment_positions(segment_BK: Tensor) -> Tensor:
    """Positions from segments: how many real tokens of the same text precede each token."""
    real = segment_BK >= 0
    count = real.long().cumsum(1) - 1
    slot = torch.arange(segment_BK.shape[1], device=segment_BK.device).expand_as(segment_BK)
    last_real = torch.where(real, slot, -1).cummax(1).values  # so that holes do not end a text
    before = torch.cat([torch.full_like(last_real[:, :1], -1), last_real[:, :-1]], dim=1)
    starts = real & ((before < 0) | (segment_BK.gather(1, before.clamp(min=0)) != segment_BK))
    first = torch.where(starts, count, 0).cummax(1).values
    return (count - first).clamp(min=0)


class Mask:
    """A rule `allows(b, h, q, k) -> bool tensor` over index tensors that broadcast (as in FlexAttention)."""

    def allows(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        raise NotImplementedError

    def segments(self) -> Tensor | None:
        """(B, K) document numbers, below zero = padding; None if unknown. Positions follow from them."""
        return None

    def parts(self) -> tuple[Mask, ...]:
        """The rules that are combined with `&`, as a tuple."""
        return (self,)

    def globals(self, keys: int) -> Tensor | None:
        """(1 or B, K) flags of global tokens, to which local rules do not apply; None if there are none."""
        return None

    def positions(self) -> Tensor | None:
        """(1 or B, K) positions of the tokens, where they do not follow from the segments."""
        return None

    def check_shape(self, batch: int, queries: int, keys: int) -> None:
        """Raise an error if a tensor of the rule does not have exactly these rows and slots."""

    def __and__(self, other: Mask) -> Mask:
        if isinstance(self, Everyone) or self == other:
            return other
        return self if isinstance(other, Everyone) else _Both(self, other)

    def __or__(self, other: Mask) -> Mask:
        return _Either(self, other)

    def __invert__(self) -> Mask:
        return _Not(self)


@dataclass(frozen=True)
class Everyone(Mask):
    """Every token may attend to every token."""

    def allows(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return (q >= 0) & (k >= 0)

    def parts(self) -> tuple[Mask, ...]:
        return ()


@dataclass(frozen=True)
class Causal(Mask):
    """No token attends to later tokens."""

    def allows(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return k <= q


@dataclass(frozen=True)
class SlidingWindow(Mask):
    """At most `left` tokens back and `right` ahead, and the token itself (Mistral's 4096: left=4095)."""

    left: int
    right: int = 0

    def __post_init__(self) -> None:
        if self.left < 0 or self.right < 0:
            raise InputError(f"{self}: a window reaches zero or more tokens to each side")

    def allows(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return (q - k <= self.left) & (k - q <= self.right)


@dataclass(frozen=True)
class PrefixMask(Mask):
    """The first `length` tokens are seen by all, the rest causally (prefix language model, Raffel 2019)."""

    length: int

    def allows(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return (k < self.length) | (k <= q)


@dataclass(frozen=True)
class Global(Mask):
    """These slots attend to and are attended to by all tokens; join it to a local rule with `|`."""

    at: tuple[int, ...]

    def allows(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        at = torch.tensor(self.at, dtype=torch.long, device=q.device)
        return torch.isin(q, at) | torch.isin(k, at)

    def globals(self, keys: int) -> Tensor:
        return torch.isin(torch.arange(keys), torch.tensor(self.at, dtype=torch.long))[None]

    def check_shape(self, batch: int, queries: int, keys: int) -> None:
        outside = [at for at in self.at if not 0 <= at < keys]
        if outside:
            raise InputError(
                f"global position {outside[0]} is outside the text; it has {keys} tokens, 0 to {keys - 1}"
            )


@dataclass(frozen=True, eq=False)
class Globals(Mask):
    """The same with flags, so that each row has its own: True = global."""

    global_BK: Tensor

    def __post_init__(self) -> None:
        if self.global_BK.dtype != torch.bool or self.global_BK.ndim != 2:
            raise InputError(
                f"Globals takes a boolean (batch, length) tensor, True = global; given "
                f"{_describe(self.global_BK)}"
            )

    def allows(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        row = b if len(self.global_BK) > 1 else torch.zeros_like(b)
        return self.global_BK[row, q] | self.global_BK[row, k]

    def globals(self, keys: int) -> Tensor:
        return self.global_BK

    def check_shape(self, batch: int, queries: int, keys: int) -> None:
        _check_tensor("mask of global tokens", self.global_BK, batch, keys)


@dataclass(frozen=True, eq=False)
class Padding(Mask):
    """Only real tokens may be attended to."""

    real_BK: Tensor

    def __post_init__(self) -> None:
        if self.real_BK.dtype != torch.bool or self.real_BK.ndim != 2:
            raise InputError(
                f"Padding takes a boolean (batch, length) tensor, True = real token; given "
                f"{_describe(self.real_BK)}. See clearhead.nn.mask_adapters for other kinds of mask"
            )

    def allows(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return self.real_BK[b, k]

    def segments(self) -> Tensor:
        return self.real_BK.long() - 1

    def check_shape(self, batch: int, queries: int, keys: int) -> None:
        _check_tensor("padding mask", self.real_BK, batch, keys)


@dataclass(frozen=True, eq=False)
class Documents(Mask):
    """Several texts packed into one row see only themselves; a number below zero marks padding."""

    document_BK: Tensor

    def __post_init__(self) -> None:
        if self.document_BK.dtype != torch.long or self.document_BK.ndim != 2:
            raise InputError(
                f"Documents takes an int64 (batch, length) tensor of document numbers; given "
                f"{_describe(self.document_BK)}"
            )

    def allows(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        theirs = self.document_BK[b, k]
        return (self.document_BK[b, q] == theirs) & (theirs >= 0)

    def segments(self) -> Tensor:
        return self.document_BK

    def check_shape(self, batch: int, queries: int, keys: int) -> None:
        _check_tensor("document mask", self.document_BK, batch, keys)


@dataclass(frozen=True, eq=False)
class CrossDocuments(Mask):
    """Cross-attention between packed rows: a target text sees the source text of the same number."""

    query_BQ: Tensor
    key_BK: Tensor

    def allows(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        theirs = self.key_BK[b, k]
        return (self.query_BQ[b, q] == theirs) & (theirs >= 0)


@dataclass(frozen=True, eq=False)
class Given(Mask):
    """An explicit mask tensor: boolean, (1 or B, 1 or H, Q, K), True = may attend."""

    allowed_BHQK: Tensor

    def allows(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        rows, heads = self.allowed_BHQK.shape[:2]
        b = torch.zeros_like(b[:1]) if rows == 1 else b
        # `h` counts heads only where the mask differs between them; see View.dense.
        by_head = (heads, *(1,) * (q.ndim - 2))
        h = torch.zeros_like(h) if heads == 1 else torch.arange(heads, device=h.device).reshape(by_head)
        return self.allowed_BHQK[b, h, q, k]

    def check_shape(self, batch: int, queries: int, keys: int) -> None:
        given = tuple(self.allowed_BHQK.shape)
        if given[0] not in (1, batch) or given[2:] != (queries, keys):
            raise InputError(
                f"the attention mask is {given}, expected (1 or {batch}, 1 or heads, {queries}, {keys})"
                f": batch, heads, queries, keys"
            )


@dataclass(frozen=True)
class _Both(Mask):
    one: Mask
    two: Mask

    def allows(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return self.one.allows(b, h, q, k) & self.two.allows(b, h, q, k)

    def segments(self) -> Tensor | None:
        one, two = self.one.segments(), self.two.segments()
        if one is None or two is None:
            return two if one is None else one
        both = one * (two.max() + 2) + two  # a distinct number for every pair of numbers
        return both.masked_fill((one < 0) | (two < 0), -1)

    def positions(self) -> Tensor | None:
        one = self.one.positions()
        return self.two.positions() if one is None else one

    def parts(self) -> tuple[Mask, ...]:
        return self.one.parts() + self.two.parts()

    def globals(self, keys: int) -> Tensor | None:
        return _any(self.one.globals(keys), self.two.globals(keys))

    def check_shape(self, batch: int, queries: int, keys: int) -> None:
        self.one.check_shape(batch, queries, keys)
        self.two.check_shape(batch, queries, keys)


@dataclass(frozen=True)
class _Either(Mask):
    one: Mask
    two: Mask

    def allows(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return self.one.allows(b, h, q, k) | self.two.allows(b, h, q, k)

    def globals(self, keys: int) -> Tensor | None:
        return _any(self.one.globals(keys), self.two.globals(keys))

    def check_shape(self, batch: int, queries: int, keys: int) -> None:
        self.one.check_shape(batch, queries, keys)
        self.two.check_shape(batch, queries, keys)


@dataclass(frozen=True)
class _Not(Mask):
    rule: Mask

    def allows(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return ~self.rule.allows(b, h, q, k)

    def check_shape(self, batch: int, queries: int, keys: int) -> None:
        self.rule.check_shape(batch, queries, keys)


def has_bare_global(rule: Mask) -> bool:
    """Whether a `Global` rule stands alone or was combined with `&`, where `|` was meant."""
    if isinstance(rule, _Both):
        return has_bare_global(rule.one) or has_bare_global(rule.two)
    return isinstance(rule, Global | Globals)


def _any(one: Tensor | None, two: Tensor | None) -> Tensor | None:
    if one is None or two is None:
        return two if one is None else one
    return one | two


def _check_tensor(what: str, x: Tensor, batch: int, keys: int) -> None:
    if tuple(x.shape) != (batch, keys):
        raise InputError(f"the {what} is {tuple(x.shape)}, expected ({batch}, {keys}): batch, length")


def _describe(x: Tensor) -> str:
    return f"{str(x.dtype).removeprefix('torch.')} of shape {tuple(x.shape)}"
