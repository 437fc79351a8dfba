"""`clearhead look mask`: a mask in, a drawing of it and what is wrong with it out."""

from __future__ import annotations

import json as jsonlib
import sys
from pathlib import Path

import numpy
import torch
from torch import Tensor

from ...errors import InputError
from ...nn import check_mask
from ..console import OUT, print_json

EXPECTED = (
    'expected rows of 0 and 1 (or 0 and -inf), such as "1 0 0; 1 1 0; 1 1 1", or a .npy, .json or .txt file'
)


def show_mask_check(text: str, *, json: bool) -> None:
    """Exit 1 when something is wrong: a mask that fails its check can stop a script."""
    mask = read_mask(text)
    length, batch = mask.shape[-1], mask.shape[0] if mask.ndim > 2 else 1
    square = mask.ndim < 2 or mask.shape[-2] == length
    causal = square and bool(_allowed(mask).float().mean() < 1)
    findings = check_mask(mask, batch=batch, length=length, causal=causal)
    if json:
        print_json({"shape": list(mask.shape), "length": length, "findings": findings})
    else:
        for row in _draw(mask):
            OUT.print(row, markup=False)
        OUT.print(f"{tuple(mask.shape)} · ■ may attend, · may not")
        clean = "nothing wrong: every query has a key" + (", and none in the future" if causal else "")
        for line in findings or [clean]:
            OUT.print(line, style="red" if findings else "green", markup=False)
    if findings:
        sys.exit(1)


def read_mask(text: str) -> Tensor:
    path = Path(text)
    try:
        if path.suffix in (".npy", ".json", ".txt"):
            return _read_file(path)
        rows = [[_number(x) for x in row.replace(",", " ").split()] for row in text.split(";")]
        return _tensor(rows)
    except (ValueError, OSError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(f"the mask {text[:60]!r} cannot be read ({why}); {EXPECTED}") from None


def _read_file(path: Path) -> Tensor:
    if path.suffix == ".npy":
        return _tensor(numpy.load(path, allow_pickle=False).tolist())
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        return _tensor(jsonlib.loads(text))
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


def _draw(mask: Tensor) -> list[str]:
    """The first matrix, cut to the width of the terminal."""
    allowed = _allowed(mask)
    while allowed.ndim > 2:
        allowed = allowed[0]
    return [" ".join("■" if may else "·" for may in row[:40]) for row in allowed[:40].tolist()]
