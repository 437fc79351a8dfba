import torch
from torch import nn


class MultiHeadAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))

    def split(self, x):
        """(batch, tokens, width) -> (batch, heads, tokens, width / heads)"""
        raise NotImplementedError("implement split(x)")

    def forward(self, query, memory, mask=None):
        """query (batch, Q, width) asks, memory (batch, K, width) answers. Returns (batch, Q, width).

        mask is boolean and broadcasts to (batch, heads, Q, K): True means "may attend".
        """
        # 1. queries from `query`, keys and values from `memory`, each split into heads
        # 2. attention in every head
        # 3. put the heads side by side again, then self.out
        raise NotImplementedError("implement forward(query, memory, mask)")
