def split_heads(q, k, v, heads):
    batch, length, width = q.shape
    shape = (batch, length, heads, width // heads)
    return [x.reshape(shape).transpose(1, 2) for x in (q, k, v)]
