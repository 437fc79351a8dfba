import torch


def cross_weights(q, k, heads):
    if q.shape[0] != k.shape[0]:
        raise ValueError(f"{q.shape[0]} queries and {k.shape[0]} sources; expected as many")
    batch, width = q.shape[0], q.shape[-1]
    q = q.reshape(batch, -1, heads, width // heads).transpose(1, 2)
    k = k.reshape(batch, -1, heads, width // heads).transpose(1, 2)
    scores = q @ k.transpose(-2, -1) / (width // heads) ** 0.5
    return scores.softmax(-1)
