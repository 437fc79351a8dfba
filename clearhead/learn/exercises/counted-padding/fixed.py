import torch.nn.functional as F


def loss(logits, target, pad=0):
    return F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=pad)
