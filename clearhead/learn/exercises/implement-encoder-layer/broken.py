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
        """x is (batch, tokens, width); real is (batch, tokens), True for real tokens, False for padding."""
        # 1. self-attention; nn.MultiheadAttention takes key_padding_mask, where True means "ignore"
        # 2. residual and norm1
        # 3. feed-forward: up, ReLU, down
        # 4. residual and norm2
        raise NotImplementedError("implement forward(x, real)")
