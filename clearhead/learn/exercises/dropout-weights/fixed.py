import torch
import torch.nn.functional as F


def attend(q, k, v, p, training):
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    weights = scores.softmax(-1)
    return F.dropout(weights, p, training) @ v, weights
