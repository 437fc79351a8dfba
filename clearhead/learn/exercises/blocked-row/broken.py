import torch


def attend(q, k, v, keep):
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    weights = scores.masked_fill(~keep, -1e9).softmax(-1)
    return weights @ v, weights
