import torch
from torch import nn


class EncoderLayer(nn.Module):
    """Post-norm, as in the paper of 2017: norm(x + part(x)), twice."""

    def __init__(self, width, heads, hidden):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x, real=None):
        padding = None if real is None else ~real
        mixed, _ = self.attention(x, x, x, key_padding_mask=padding, need_weights=False)
        x = self.norm1(x + mixed)
        return self.norm2(x + self.down(self.up(x).relu()))
