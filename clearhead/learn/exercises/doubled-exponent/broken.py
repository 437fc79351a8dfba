import numpy as np


def positions(length, width):
    table = np.zeros((length, width))
    for pos in range(length):
        for i in range(0, width, 2):
            angle = pos / 10000 ** (2 * i / width)
            table[pos, i] = np.sin(angle)
            table[pos, i + 1] = np.cos(angle)
    return table
