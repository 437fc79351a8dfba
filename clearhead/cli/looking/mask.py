"""`clearhead look mask`: a mask in, a drawing of it and what is wrong with it out."""

from __future__ import annotations

import json as jsons
import sys
from pathlib import Path

import numpy
import torch
from torch import Tensor

from ...errors import InputError
from ...nn import check_mask
from ..console import OUT, print_json

FORM = (
    'expected rows of 0 and 1 (or 0 and -inf), such as "1 0 0; 1 1 0; 1 1 1", or a .npy, .json or .txt file'
)


def show_mask_check(given: str, *, json: bool) -> None:
    """Exit 1 when something is wrong: a mask that fails its check can stop a script."""
    mask = read_mask(given)
    length, batch = mask.shape[-1], mask.shape[0] if mask.ndim > 2 else 1
    square = mask.ndim < 2 or mask.shape[-2] == length
    causal = square and bool(_allowed(mask).float().mean() < 1)
    found = check_mask(mask, batch=batch, length=length, causal=causal)
    if json:
        print_json({"shape": list(mask.shape), "length": length, "findings": found})
    else:
        for row in _drawn(mask):
            OUT.print(row, markup=False)
        OUT.print(f"{tuple(mask.shape)} · ■ may attend, · may not")
        clean = "nothing wrong: every query has a key" + (", and none in the future" if causal else "")
        for line in found or [clean]:
            OUT.print(line, style="red" if found else "green", markup=False)
    if found:
        sys.exit(1)


def read_mask(given: str) -> Tensor:
    path = Path(given)
    try:
        if path.suffix in (".npy", ".json", ".txt"):
            return _file(path)
        rows = [[_number(x) for x in row.replace(",", " ").split()] for row in given.split(";")]
        return _tensor(rows)
    except (ValueError, OSError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(f"the mask {given[:60]!r} cannot be read ({why}); {FORM}") from None


def _file(path: Path) -> Tensor:
    if path.suffix == ".npy":
        return _tensor(numpy.load(path, allow_pickle=False).tolist())
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        return _tensor(jsons.loads(text))
    return _tensor([[_number(x) for x in row.split()] for row in text.splitlines() if row.strip()])


def _number(word: str) -> float:
    return float({"true": "1", "false": "0"}.get(word.lower(), word))


def _tensor(rows: object) -> Tensor:
    mask = torch.tensor(rows, dtype=torch.float32)
    if mask.ndim < 2 or mask.numel() == 0:
        raise ValueError(f"a mask has two dimensions or more, this has the shape {tuple(mask.shape)}")
    return mask if bool(torch.isinf(mask).any()) else mask.to(torch.long)


def _allowed(mask: Tensor) -> Tensor:
    return mask == 0 if bool(torch.isinf(mask.float()).any()) else mask == 1


def _drawn(mask: Tensor) -> list[str]:
    """The first matrix, cut to the width of the terminal."""
    allowed = _allowed(mask)
    while allowed.ndim > 2:
        allowed = allowed[0]
    return [" ".join("■" if may else "·" for may in row[:40]) for row in allowed[:40].tolist()]
