import torch


def padding_mask(ids, pad=0):
    return (ids != pad)[:, None, :]


def attend(q, k, v, ids):
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    scores = scores.masked_fill(padding_mask(ids) == 0, float("-inf"))
    return scores.softmax(-1)
