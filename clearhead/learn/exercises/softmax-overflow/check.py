"""Checks of the fixed file. A failure explains itself in English and Chinese; titles: exercise.yaml."""

import warnings

import numpy as np

warnings.simplefilter("ignore")


def small_scores(user):
    weights = user.softmax(np.array([[1.5625, 3.85, 3.1375]]))
    assert np.allclose(weights, [[0.0638, 0.6282, 0.3081]], atol=1e-4), (
        f"got {weights.round(4).tolist()}",
        f"得到 {weights.round(4).tolist()}",
    )


def huge_scores(user):
    weights = user.softmax(np.array([1000.0, 1000.0]))
    assert np.array_equal(weights, [0.5, 0.5]), (
        f"softmax([1000, 1000]) is {weights.tolist()}",
        f"softmax([1000, 1000]) 得到 {weights.tolist()}",
    )


def very_negative_scores(user):
    weights = user.softmax(np.array([-1000.0, -1000.0, -2000.0]))
    assert np.allclose(weights, [0.5, 0.5, 0.0]), (
        f"softmax([-1000, -1000, -2000]) is {weights.tolist()}",
        f"softmax([-1000, -1000, -2000]) 得到 {weights.tolist()}",
    )


def each_row_by_itself(user):
    rows = user.softmax(np.array([[1000.0, 0.0], [0.0, 0.0]]))
    assert np.allclose(rows, [[1, 0], [0.5, 0.5]]), (f"got {rows.tolist()}", f"得到 {rows.tolist()}")
