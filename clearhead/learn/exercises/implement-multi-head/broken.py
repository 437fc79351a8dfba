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
        """Queries from query (batch, Q, width), keys and values from memory (batch, K, width).

        Returns (batch, Q, width). mask broadcasts to (batch, heads, Q, K): True means "may attend".
        """
        # 1. queries from `query`, keys and values from `memory`, each split into heads
        # 2. attention in every head
        # 3. concatenate the heads, then self.out
        raise NotImplementedError("implement forward(query, memory, mask)")
