import torch


def positional_encoding(length, width):
    even = torch.arange(0, width, 2)
    angles = torch.arange(length)[:, None] / 10000 ** (even / width)
    table = torch.empty(length, width)
    table[:, 0::2], table[:, 1::2] = angles.sin(), angles.cos()
    return table
