import torch


def attend(q, k, v, keep):
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    scores = scores.masked_fill(~keep, torch.finfo(scores.dtype).min)
    return scores.softmax(-1)
