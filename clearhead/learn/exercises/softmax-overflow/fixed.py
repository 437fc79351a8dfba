import numpy as np


def softmax(x):
    grown = np.exp(x - x.max(axis=-1, keepdims=True))
    return grown / grown.sum(axis=-1, keepdims=True)
