import unicodedata


def cell(word, width=8):
    taken = sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in word)
    return word + " " * (width - taken)
