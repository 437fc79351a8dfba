"""Random numbers as a function of a key (numbers and strings), never as a stream."""

from __future__ import annotations

import hashlib

import torch


def generator(seed: int, *purpose: str | int) -> torch.Generator:
    """The same key gives the same random numbers, whatever was generated before."""
    words = "/".join(map(str, (seed, *purpose)))
    digest = hashlib.sha256(words.encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little", signed=True))
