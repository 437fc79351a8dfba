"""Embedding: texts in, one vector per text out, pooled as the checkpoint's modules.json says.

Texts of similar length share a batch of about `TOKENS` tokens, so that little is computed for padding.
Shape suffixes: B batch, T tokens, N texts, D width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import InputError
from ..nn import Pool, TransformerModel, pool_states
from ..text import Tokenizer

# Names of sentence-transformers.
POOLS: dict[str, Pool] = {"cls": "first", "max": "max", "mean": "mean", "lasttoken": "last"}
MODULES = {"Transformer", "Pooling", "Normalize"}
DEFAULT_POOLING: dict[str, Any] = {
    "modes": ["mean"],
    "normalize": True,
}  # if the checkpoint has no modules.json
TOKENS = 384  # per batch: its activations fit into the processor's cache


@torch.no_grad()
def embed(
    model: TransformerModel, tokenizer: Tokenizer, texts: Sequence[str], recipe: dict[str, Any] | None
) -> Tensor:
    """One vector per text, (N, D), in the order of the texts."""
    recipe = recipe or DEFAULT_POOLING
    unknown = {*recipe["modes"]} - {*POOLS}, {*recipe.get("modules", ())} - MODULES
    if any(unknown):
        raise InputError(f"modules.json asks for {', '.join(set.union(*unknown))}, which is not supported")
    limit = recipe.get("max_seq_length")
    rows = [_cut(encoding.ids, limit, tokenizer.specials) for encoding in tokenizer.encode_batch(texts)]
    vectors: list[Tensor] = [torch.empty(0)] * len(rows)
    device = next(model.parameters()).device
    for batch in batches([len(row) for row in rows]):
        ids_BT, mask_BT = _padded([rows[i] for i in batch], device)
        states_BTD = model.hidden(ids_BT, mask_BT)
        parts = [pool_states(states_BTD, POOLS[mode], mask_BT) for mode in recipe["modes"]]
        for i, vector in zip(batch, torch.cat(parts, dim=-1), strict=True):
            vectors[i] = vector
    width = model.spec.head_tower.width * len(recipe["modes"])
    found = torch.stack(vectors) if vectors else torch.zeros(0, width)
    return F.normalize(found, dim=-1) if recipe["normalize"] else found


def batches(lengths: Sequence[int], tokens: int = TOKENS) -> Iterator[list[int]]:
    """Indices of rows of similar length; longest first, so that running out of memory happens at once."""
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    at = 0
    while at < len(order):
        count = max(1, tokens // max(1, lengths[order[at]]))
        yield order[at : at + count]
        at += count


def _cut(ids: list[int], limit: int | None, specials: frozenset[int]) -> list[int]:
    """Truncate to the checkpoint's limit as sentence-transformers does: the end token stays."""
    if limit is None or len(ids) <= limit:
        return ids
    tail = 0
    while tail < len(ids) and ids[-1 - tail] in specials:
        tail += 1
    return ids[: limit - tail] + ids[len(ids) - tail :]


def _padded(rows: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor | None]:
    """Padded ids, and a mask of the real ones; None if there is no padding."""
    length = max(map(len, rows))
    if all(len(row) == length for row in rows):
        return torch.tensor(rows, device=device), None
    ids_BT = torch.tensor([[*row, *[0] * (length - len(row))] for row in rows], device=device)
    ends_B = torch.tensor([len(row) for row in rows])
    return ids_BT, (torch.arange(length)[None] < ends_B[:, None]).to(device)
