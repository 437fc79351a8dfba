"""Corruption: ids in, a damaged text and what was there out. For models that learn by repairing.

    mask_words     some tokens masked, changed or left, each to be predicted (BERT, Devlin 2018)
    drop_spans     spans replaced by numbered sentinels, the spans are the answer (T5, Raffel 2019)
    NOISES         mask, delete, infill, permute, rotate; the whole text is the answer (BART, Lewis 2019)

Every function uses only the random generator it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

from ..errors import InputError
from .packing import IGNORE_INDEX

Ids = list[int]


class MaskedIds(NamedTuple):
    ids: Ids
    labels: Ids  # the token that was there where one is asked for, IGNORE_INDEX elsewhere


def mask_words(
    ids: Sequence[int], draw: Random, *, mask: int, vocab: int, special: frozenset[int], share: float = 0.15
) -> MaskedIds:
    """`share` of the ordinary tokens become labels: 80 % are masked, 10 % replaced, 10 % left as they are."""
    ordinary = [i for i, token in enumerate(ids) if token not in special]
    chosen = (
        sample_without_replacement(ordinary, max(1, round(share * len(ordinary))), draw) if ordinary else []
    )
    damaged, labels = list(ids), [IGNORE_INDEX] * len(ids)
    for i in chosen:
        labels[i] = ids[i]
        chance = draw.random()
        if chance < 0.8:
            damaged[i] = mask
        elif chance < 0.9:
            damaged[i] = _ordinary(draw, vocab, special)
    return MaskedIds(damaged, labels)


def drop_spans(
    ids: Sequence[int], draw: Random, *, sentinels: Sequence[int], share: float = 0.15, mean: float = 3.0
) -> tuple[Ids, Ids]:
    """Drop spans of about `mean` tokens, `share` of the text in all: (text with sentinels, the spans)."""
    count = min(len(ids) - 1, max(1, round(share * len(ids)))) if len(ids) > 1 else 0
    spans = min(max(1, round(count / mean)), count, len(ids) - count, len(sentinels) - 1)
    if spans < 1:
        return list(ids), [sentinels[0]]
    holes, gaps = _parts(count, spans, draw), _parts(len(ids) - count, spans, draw)
    source: Ids = []
    target: Ids = []
    at = 0
    for i, (gap, hole) in enumerate(zip(gaps, holes, strict=True)):
        source += [*ids[at : at + gap], sentinels[i]]
        target += [sentinels[i], *ids[at + gap : at + gap + hole]]
        at += gap + hole
    return source, [*target, sentinels[spans]]


def noise_mask(ids: Sequence[int], draw: Random, mask: int, share: float) -> Ids:
    return [mask if draw.random() < share else token for token in ids]


def noise_delete(ids: Sequence[int], draw: Random, mask: int, share: float) -> Ids:
    return [token for token in ids if draw.random() >= share] or list(ids[:1])


def noise_infill(ids: Sequence[int], draw: Random, mask: int, share: float) -> Ids:
    """Replace spans of 0 to 6 tokens by one mask each: their length is part of what is learned."""
    left, out, at = round(share * len(ids)), [], 0
    while at < len(ids):
        if left > 0 and draw.random() < share:
            size = min(int(draw.random() * 7), left)
            out.append(mask)
            at += size
            left -= max(size, 1)
            if size:
                continue
        if at < len(ids):
            out.append(ids[at])
            at += 1
    return out


def noise_permute(ids: Sequence[int], draw: Random, mask: int, share: float) -> Ids:
    """Permute pieces of the text; a piece is about a tenth of it, and at least one token."""
    size = max(1, len(ids) // 10)
    pieces = [list(ids[at : at + size]) for at in range(0, len(ids), size)]
    return [token for piece in sample_without_replacement(pieces, len(pieces), draw) for token in piece]


def noise_rotate(ids: Sequence[int], draw: Random, mask: int, share: float) -> Ids:
    start = int(draw.random() * len(ids)) if ids else 0
    return [*ids[start:], *ids[:start]]


NOISES: dict[str, Callable[[Sequence[int], Random, int, float], Ids]] = {
    "mask": noise_mask,
    "delete": noise_delete,
    "infill": noise_infill,
    "permute": noise_permute,
    "rotate": noise_rotate,
}


def sample_without_replacement(things: Sequence[object], count: int, draw: Random) -> list:  # type: ignore[type-arg]
    """`count` distinct items in random order; uses only `random()`, the same in every version of Python."""
    left = list(things)
    if count > len(left):
        raise InputError(f"{count} of {len(left)} things were asked for")
    for i in range(count):
        j = i + int(draw.random() * (len(left) - i))
        left[i], left[j] = left[j], left[i]
    return left[:count]


def _ordinary(draw: Random, vocab: int, special: frozenset[int]) -> int:
    while True:
        token = int(draw.random() * vocab)
        if token not in special:
            return token


def _parts(total: int, count: int, draw: Random) -> list[int]:
    """`count` positive integers whose sum is `total`."""
    cuts = sorted(sample_without_replacement(range(1, total), count - 1, draw))
    return [end - start for start, end in zip([0, *cuts], [*cuts, total], strict=True)]
