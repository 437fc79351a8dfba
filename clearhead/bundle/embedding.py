"""Embedding: texts in, one vector per text out, pooled as the checkpoint's modules.json says.

Shape suffixes: B batch, T tokens, N and M texts, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..engine import drop_stale_products
from ..errors import InputError
from ..nn import Pool, pool_states
from .batching import length_batches, pad_rows
from .parts import BundleParts

# Names of sentence-transformers.
POOLS: dict[str, Pool] = {"cls": "first", "max": "max", "mean": "mean", "lasttoken": "last"}
MODULES = {"Transformer", "Pooling", "Normalize"}
DEFAULT_POOLING: dict[str, Any] = {
    "modes": ["mean"],
    "normalize": True,
}  # if the checkpoint has no modules.json


@torch.no_grad()
def embed(bundle: BundleParts, texts: Sequence[str], *, batch_size: int | None = None) -> Tensor:
    """One vector per text, (N, D), in the order of the texts."""
    if bundle.spec.source_tower is not None:
        raise InputError("this model has an encoder and a decoder; sentence vectors need an encoder alone")
    model, tokenizer = bundle.model, bundle._tokenizer("embed")
    recipe = bundle.pooling or DEFAULT_POOLING
    unknown = {*recipe["modes"]} - {*POOLS}, {*recipe.get("modules", ())} - MODULES
    if any(unknown):
        raise InputError(f"modules.json asks for {', '.join(set.union(*unknown))}, which is not supported")
    drop_stale_products(model)
    limit = _limit(bundle)
    rows = [_cut(encoding.ids, limit, tokenizer.specials) for encoding in tokenizer.encode_batch(texts)]
    vectors: list[Tensor] = [torch.empty(0)] * len(rows)
    for batch in length_batches([len(row) for row in rows], batch_size):
        ids_BT, mask_BT = pad_rows([rows[i] for i in batch], bundle.device)
        states = model.states(ids_BT, mask_BT)
        parts = [pool_states(states.x_BTD, POOLS[mode], states.real_BT) for mode in recipe["modes"]]
        for i, vector in zip(batch, torch.cat(parts, dim=-1), strict=True):
            vectors[i] = vector
    width = model.spec.head_tower.width * len(recipe["modes"])
    found = torch.stack(vectors) if vectors else torch.zeros(0, width)
    return F.normalize(found, dim=-1) if recipe["normalize"] else found


def cosines(a: Tensor, b: Tensor) -> Tensor:
    """The cosines of the angles between the vectors of two lists, (N, M); one vector is a list of one."""
    a_ND, b_MD = (F.normalize(x if x.ndim == 2 else x[None], dim=-1) for x in (a, b))
    if a_ND.shape[1] != b_MD.shape[1]:
        raise InputError(
            f"vectors of {a_ND.shape[1]} and of {b_MD.shape[1]} numbers; expected the same width"
        )
    return a_ND @ b_MD.T


def count_cut(bundle: BundleParts, texts: Sequence[str]) -> tuple[int, int | None]:
    """How many texts `embed` does not read to their end, and how many tokens it reads."""
    limit, tokenizer = _limit(bundle), bundle._tokenizer("embed")
    return sum(limit is not None and len(each) > limit for each in tokenizer.encode_batch(texts)), limit


def _limit(bundle: BundleParts) -> int | None:
    """As in sentence-transformers: what the checkpoint says, and never more than the model has positions."""
    limits = ((bundle.pooling or {}).get("max_seq_length"), bundle.spec.max_length)
    return min((limit for limit in limits if limit is not None), default=None)


def _cut(ids: list[int], limit: int | None, specials: frozenset[int]) -> list[int]:
    """Truncate to the checkpoint's limit as sentence-transformers does: the end token stays."""
    if limit is None or len(ids) <= limit:
        return ids
    tail = 0
    while tail < len(ids) and ids[-1 - tail] in specials:
        tail += 1
    return ids[: limit - tail] + ids[len(ids) - tail :]
