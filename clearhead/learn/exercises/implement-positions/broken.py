import torch


def positional_encoding(length, width):
    """A table of shape (length, width), width even:

    PE[pos, 2i]     = sin(pos / 10000 ** (2i / width))
    PE[pos, 2i + 1] = cos(pos / 10000 ** (2i / width))
    """
    # 1. positions 0, 1, 2, ... as a column; the even numbers 0, 2, 4, ... are 2i
    # 2. one angle for each position and each i
    # 3. sines into the even columns, cosines into the odd ones
    raise NotImplementedError("implement positional_encoding(length, width)")
