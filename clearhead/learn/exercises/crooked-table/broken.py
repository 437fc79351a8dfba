def cell(word, width=8):
    return f"{word:{width}s}"
