"""Lines: an argument of the command line in; its texts out: itself or, for `-`, the lines of stdin."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from ..errors import InputError, reason
from ..readfile import open_regular


def texts_of(word: str) -> Iterator[str]:
    """The text itself; for `-` the lines of stdin as they come, empty ones left out."""
    if word != "-":
        yield word
        return
    for line in sys.stdin:
        if line.strip():
            yield line.rstrip("\n")


def lines_of(file: str) -> list[str]:
    """Every line of a text file, empty ones included, so that line numbers stay; `-` is stdin."""
    if file == "-":
        return [line.rstrip("\n") for line in sys.stdin]
    if not Path(file).is_file():
        raise InputError(f"{file} is not a file; give a text file with one text per line, or - for stdin")
    try:
        with open_regular(file) as opened:
            return opened.read().decode("utf-8").splitlines()
    except OSError as error:
        raise InputError(f"{file} cannot be read: {reason(error)}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not UTF-8 text (byte {error.start}); save it as UTF-8") from None
