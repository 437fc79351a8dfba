"""Languages by script: texts in; a language code out, as far as scores depend on it."""

from __future__ import annotations

from collections.abc import Sequence

# First and last character of scripts whose words have no spaces between them, and a language of each.
SCRIPTS = {
    "ja": ((0x3040, 0x30FF),),  # kana; Chinese characters alone are taken for Chinese
    "zh": ((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0x20000, 0x2FFFF)),
    "ko": ((0xAC00, 0xD7AF), (0x1100, 0x11FF)),
    "th": ((0x0E00, 0x0E7F),),
}
MAX_TEXTS = 1000


def language_of(texts: Sequence[str]) -> str:
    """zh, ja, ko or th if much of the text is in their script, else en: BLEU counts words there."""
    characters = [ord(c) for text in texts[:MAX_TEXTS] for c in text if c.isalpha()]
    shares = {
        language: sum(first <= c <= last for c in characters for first, last in ranges)
        for language, ranges in SCRIPTS.items()
    }
    if shares["ja"] > 0.05 * len(characters):  # a Japanese text is kana and Chinese characters mixed
        return "ja"
    best = max(shares, key=lambda language: shares[language])
    return best if shares[best] > 0.3 * len(characters) else "en"
