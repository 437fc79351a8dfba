def weights(q, k):
    scores = q @ k.transpose(-2, -1) / q.shape[-1]
    return scores.softmax(-1)
