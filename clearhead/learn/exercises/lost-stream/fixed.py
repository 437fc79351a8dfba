def block(x, norm1, attention, norm2, feed_forward):
    x = x + attention(norm1(x))
    return x + feed_forward(norm2(x))
