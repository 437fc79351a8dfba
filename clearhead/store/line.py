"""One line of an error: see errors.py, where these functions live."""

from ..errors import one_line, quoted, reason

__all__ = ["one_line", "quoted", "reason"]
