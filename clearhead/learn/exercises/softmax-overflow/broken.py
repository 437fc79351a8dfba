import numpy as np


def softmax(x):
    grown = np.exp(x)
    return grown / grown.sum(axis=-1, keepdims=True)
