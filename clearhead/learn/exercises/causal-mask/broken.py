import torch


def attend(q, k, v):
    size = q.shape[1]
    mask = torch.full((size, size), float("-inf")).triu(1)
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    scores = scores.masked_fill(mask == 0, -1e9)
    weights = scores.softmax(-1)
    return weights @ v, weights
