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
        return table(ids) * math.sqrt(table.embedding_dim) + self.waves[: ids.shape[1]]

    def encode(self, src):
        x = self.embed(self.source, src)
        for layer in self.encoder:
            x = layer(x, src_key_padding_mask=src == 0)
        return x

    def decode(self, tgt, memory, src):
        x, length = self.embed(self.target, tgt), tgt.shape[1]
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        for layer in self.decoder:
            x = layer(x, memory, tgt_mask=future, memory_key_padding_mask=src == 0)
        return self.head(x)

    def forward(self, src, tgt):
        return self.decode(tgt, self.encode(src), src)
