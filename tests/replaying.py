"""The three ways a decode step may run: through the model every time, as users have it, or replayed at once.

The laws of generation hold in all of them: mark a test with `usefixtures("replay")`, or use `replayed(mode)`.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from clearhead.generate.replay import replayer

OFF, DEFAULT, AT_ONCE = MODES = ("replay off", "replay as shipped", "replay from the first step")


@contextmanager
def replayed(mode: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if mode == OFF:
            patch.setenv("CLEARHEAD_REPLAY", "0")
        if mode == AT_ONCE:  # two steps are still recorded, however few are left
            patch.setattr(replayer, "MIN_STEPS", 0)
        yield
