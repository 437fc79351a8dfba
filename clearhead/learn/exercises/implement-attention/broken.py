import torch


def attention(q, k, v, mask=None):
    """softmax(q kᵀ / sqrt(d_k)) v. Returns the output and the weights.

    q is (..., queries, d_k), k is (..., keys, d_k), v is (..., keys, d_v).
    mask is boolean and broadcasts to (..., queries, keys): True means "may attend".
    """
    # 1. scores: the dot product of every query with every key, divided by sqrt(d_k)
    # 2. where the mask is False, the score becomes -inf
    # 3. softmax over the keys
    # 4. the weighted sum of the values
    raise NotImplementedError("implement attention(q, k, v, mask)")
