def block(x, norm1, attention, norm2, feed_forward):
    x = norm1(x)
    x = x + attention(x)
    x = norm2(x)
    return x + feed_forward(x)
