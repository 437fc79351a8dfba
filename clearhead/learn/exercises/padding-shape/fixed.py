import numpy as np


def attend(q, k, v, ids, pad=0):
    scores = q @ np.swapaxes(k, -2, -1) / np.sqrt(q.shape[-1])
    blocked = (ids == pad).astype(float)[:, None, :]
    scores = scores + blocked * -1e9
    grown = np.exp(scores - scores.max(-1, keepdims=True))
    return grown / grown.sum(-1, keepdims=True)
