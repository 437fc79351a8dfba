import math

import torch
from torch import nn


class Transformer(nn.Module):
    """Encoder-decoder. Id 0 is padding on both sides."""

    def __init__(self, source, target, width=32, heads=4, hidden=64, depth=2, longest=64):
        super().__init__()
        self.source, self.target = nn.Embedding(source, width), nn.Embedding(target, width)
        made = {"dropout": 0.0, "batch_first": True}
        self.encoder = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, hidden, **made) for _ in range(depth)
        )
        self.decoder = nn.ModuleList(
            nn.TransformerDecoderLayer(width, heads, hidden, **made) for _ in range(depth)
        )
        self.head = nn.Linear(width, target)
        even = torch.arange(0, width, 2)
        angles = torch.arange(longest)[:, None] / 10000 ** (even / width)
        waves = torch.stack([angles.sin(), angles.cos()], -1).flatten(1)
        self.register_buffer("waves", waves, persistent=False)

    def embed(self, table, ids):
        """Vectors of the ids times sqrt(width), plus the waves of their positions."""
        raise NotImplementedError("implement embed(table, ids)")

    def encode(self, src):
        """src (batch, S) -> (batch, S, width). Padding must not be attended to."""
        raise NotImplementedError("implement encode(src)")

    def decode(self, tgt, memory, src):
        """tgt (batch, T), memory = encode(src) -> logits (batch, T, target).

        No position may attend to a later one, or to padding of the source.
        """
        raise NotImplementedError("implement decode(tgt, memory, src)")

    def forward(self, src, tgt):
        return self.decode(tgt, self.encode(src), src)
