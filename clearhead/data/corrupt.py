"""Corruption: ids in, a corrupted text and its targets out. For denoising objectives.

    mask_words     some tokens masked, replaced or left, each to be predicted (BERT, Devlin 2018)
    drop_spans     spans replaced by numbered sentinels, the spans are the target (T5, Raffel 2019)
    NOISES         mask, delete, infill, permute, rotate; the whole text is the target (BART, Lewis 2019)

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
    labels: Ids  # the original token where it is to be predicted, IGNORE_INDEX elsewhere


def mask_words(
    ids: Sequence[int], rng: Random, *, mask: int, vocab: int, special: frozenset[int], share: float = 0.15
) -> MaskedIds:
    """`share` of the ordinary tokens become labels: 80 % are masked, 10 % replaced, 10 % left as they are."""
    ordinary = [i for i, token in enumerate(ids) if token not in special]
    chosen = (
        sample_without_replacement(ordinary, max(1, round(share * len(ordinary))), rng) if ordinary else []
    )
    corrupted, labels = list(ids), [IGNORE_INDEX] * len(ids)
    for i in chosen:
        labels[i] = ids[i]
        chance = rng.random()
        if chance < 0.8:
            corrupted[i] = mask
        elif chance < 0.9:
            corrupted[i] = _random_ordinary_token(rng, vocab, special)
    return MaskedIds(corrupted, labels)


def drop_spans(
    ids: Sequence[int], rng: Random, *, sentinels: Sequence[int], share: float = 0.15, mean: float = 3.0
) -> tuple[Ids, Ids]:
    """Drop spans of about `mean` tokens, `share` of the text in all: (text with sentinels, the spans)."""
    count = min(len(ids) - 1, max(1, round(share * len(ids)))) if len(ids) > 1 else 0
    spans = min(max(1, round(count / mean)), count, len(ids) - count, len(sentinels) - 1)
    if spans < 1:
        return list(ids), [sentinels[0]]
    span_lengths = _random_partition(count, spans, rng)
    gap_lengths = _random_partition(len(ids) - count, spans, rng)
    source: Ids = []
    target: Ids = []
    at = 0
    for i, (gap, span) in enumerate(zip(gap_lengths, span_lengths, strict=True)):
        source += [*ids[at : at + gap], sentinels[i]]
        target += [sentinels[i], *ids[at + gap : at + gap + span]]
        at += gap + span
    return source, [*target, sentinels[spans]]


def noise_mask(ids: Sequence[int], rng: Random, mask: int, share: float) -> Ids:
    return [mask if rng.random() < share else token for token in ids]


def noise_delete(ids: Sequence[int], rng: Random, mask: int, share: float) -> Ids:
    return [token for token in ids if rng.random() >= share] or list(ids[:1])


def noise_infill(ids: Sequence[int], rng: Random, mask: int, share: float) -> Ids:
    """Replace spans of 0 to 6 tokens by one mask each: their length is part of what is learned."""
    remaining, out, at = round(share * len(ids)), [], 0
    while at < len(ids):
        if remaining > 0 and rng.random() < share:
            size = min(int(rng.random() * 7), remaining)
            out.append(mask)
            at += size
            remaining -= max(size, 1)
            if size:
                continue
        if at < len(ids):
            out.append(ids[at])
            at += 1
    return out


def noise_permute(ids: Sequence[int], rng: Random, mask: int, share: float) -> Ids:
    """Permute pieces of the text; a piece is about a tenth of it, and at least one token."""
    size = max(1, len(ids) // 10)
    pieces = [list(ids[at : at + size]) for at in range(0, len(ids), size)]
    return [token for piece in sample_without_replacement(pieces, len(pieces), rng) for token in piece]


def noise_rotate(ids: Sequence[int], rng: Random, mask: int, share: float) -> Ids:
    start = int(rng.random() * len(ids)) if ids else 0
    return [*ids[start:], *ids[:start]]


NOISES: dict[str, Callable[[Sequence[int], Random, int, float], Ids]] = {
    "mask": noise_mask,
    "delete": noise_delete,
    "infill": noise_infill,
    "permute": noise_permute,
    "rotate": noise_rotate,
}


def sample_without_replacement(items: Sequence[object], count: int, rng: Random) -> list:  # type: ignore[type-arg]
    """`count` distinct items in random order; uses only `random()`, the same in every version of Python."""
    remaining = list(items)
    if count > len(remaining):
        raise InputError(f"{count} of {len(remaining)} items were requested")
    for i in range(count):
        j = i + int(rng.random() * (len(remaining) - i))
        remaining[i], remaining[j] = remaining[j], remaining[i]
    return remaining[:count]


def _random_ordinary_token(rng: Random, vocab: int, special: frozenset[int]) -> int:
    while True:
        token = int(rng.random() * vocab)
        if token not in special:
            return token


def _random_partition(total: int, count: int, rng: Random) -> list[int]:
    """`count` positive integers whose sum is `total`."""
    cuts = sorted(sample_without_replacement(range(1, total), count - 1, rng))
    return [end - start for start, end in zip([0, *cuts], [*cuts, total], strict=True)]
