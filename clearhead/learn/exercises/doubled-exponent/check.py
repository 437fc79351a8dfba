"""Checks of the fixed file. A failure explains itself in English and Chinese; titles: exercise.yaml."""

import numpy as np

from clearhead.primer.numpy import positional_encoding


def equals_the_formula(user):
    difference = np.abs(user.positions(40, 16) - positional_encoding(40, 16))
    right = int((difference.max(0) < 1e-9).sum())
    assert right == 16, (f"{right} of 16 columns are right", f"16 列中只有 {right} 列正确")


def the_slowest_wave_is_about_sixty_thousand_long(user):
    angle = np.arcsin(user.positions(2, 512)[1, 510])
    assert 60_000 < 2 * np.pi / angle < 61_000, (
        f"its length is {2 * np.pi / angle:.3g}",
        f"最长的波长为 {2 * np.pi / angle:.3g}",
    )
