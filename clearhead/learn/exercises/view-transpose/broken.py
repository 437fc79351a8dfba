def split_heads(x, heads):
    batch, tokens, width = x.shape
    return x.view(batch, heads, tokens, width // heads)
