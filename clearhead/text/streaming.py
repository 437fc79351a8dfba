"""Streaming: token ids in, one by one; text out, whole characters only, that adds up to the whole text."""

from __future__ import annotations

from .tokenizer import Tokenizer

WINDOW = 24  # tokens that are decoded at a time; enough for any character and any decoder
CLEANUP_REACH = 8  # how far back the cleanup of spaces (`do n ' t` -> `don't`) may still change a text


class Detokenizer:
    """`feed` an id, get the text it completes; `end` gives what was held back.

    All pieces together are `tokenizer.decode(ids)`, exactly. Only a window of ids is decoded each time.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._sent = 0  # characters of the window's text that are out
        self._in_bytes = False

    def feed(self, token: int) -> str:
        self._ids.append(token)
        if self._tokenizer.is_byte(token):
            self._in_bytes = True
            return ""  # a run of lone bytes is decoded as a whole, and it may continue
        if self._in_bytes and not self._tokenizer.decode([token]):
            return ""  # a special token, left out before bytes are joined: the run may continue after it
        self._in_bytes = False
        text = self._tokenizer.decode(self._ids)
        held = CLEANUP_REACH if self._tokenizer.cleans_up_spaces else 0
        # An incomplete character shows as this sign at the very end; everything before it is final.
        held = max(held, 1 if text.endswith("\ufffd") else 0)
        piece = text[self._sent : max(self._sent, len(text) - held)]
        self._sent += len(piece)
        if len(self._ids) >= WINDOW:
            self._slide(len(text) - self._sent)
        return piece

    def end(self) -> str:
        piece = self._tokenizer.decode(self._ids)[self._sent :]
        self._ids, self._sent, self._in_bytes = [], 0, False
        return piece

    def _slide(self, unsent: int) -> None:
        """Drop the older half of the window, if the newer half decodes to the same text without it."""
        newer = self._ids[WINDOW // 2 :]
        text = self._tokenizer.decode(newer)
        if len(text) > unsent + CLEANUP_REACH:
            self._ids, self._sent = newer, len(text) - unsent


class Cutter:
    """Text in pieces in; the same out, cut before the first complete stop string, which is not returned."""

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = stops
        self._held = ""
        self.cut = False

    def feed(self, piece: str) -> str:
        if self.cut:
            return ""
        text = self._held + piece
        matches = [(text.find(stop) + len(stop), text.find(stop)) for stop in self._stops if stop in text]
        if matches:
            self.cut, self._held = True, ""
            _, start = min(matches)  # the first to be complete: then the size of the pieces does not matter
            return text[:start]
        self._held = text[len(text) - self._partial_stop(text) :]
        return text[: len(text) - len(self._held)]

    def end(self) -> str:
        held, self._held = self._held, ""
        return held

    def _partial_stop(self, text: str) -> int:
        """How many of the last characters may be the beginning of a stop string."""
        longest = max(map(len, self._stops), default=1) - 1
        sizes = range(min(longest, len(text)), 0, -1)
        return next((n for n in sizes if any(stop.startswith(text[-n:]) for stop in self._stops)), 0)
