def split_heads(q, k, v, heads):
    def split(x):
        batch, length, width = x.shape
        return x.reshape(batch, length, heads, width // heads).transpose(1, 2)

    return [split(x) for x in (q, k, v)]
