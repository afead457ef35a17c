"""Queries far from every key, against exact rational arithmetic."""

from fractions import Fraction

import numpy as np
import pytest
from definitions import attention_of
from numpy.testing import assert_allclose

from skattn import NadarayaWatsonRegressor
from skattn._attention import BlockReader, Products, Resources, attend


def exact_squares(query, keys):
    """Squared distances of a query to keys, without rounding."""
    q = [Fraction(float(c)) for c in query]
    return [sum((a - Fraction(float(b))) ** 2 for a, b in zip(q, key, strict=True)) for key in keys]


@pytest.mark.parametrize("distance", [1e2, 1e4, 1e7, 1e12, 1e20])
def test_gaussian_weights_far_away_are_exact(distance, rng):
    keys, queries = rng.standard_normal((40, 3)), distance * rng.standard_normal((12, 3))
    reader = BlockReader(attention_of(queries, keys), Resources())
    weights = reader.read(slice(0, 12)).weights
    for query, row in zip(queries, weights, strict=True):
        squares = exact_squares(query, keys)
        logits = -np.array([float(s - min(squares)) for s in squares]) / 2
        expected = np.exp(logits) / np.exp(logits).sum()
        # a key farther by one part in 1e16 of the query's distance is a tie to rounding
        if np.sort(logits)[-2] < -1e-12 * distance:
            assert_allclose(row, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("distance", [2.0, 1e3, 1e9, 1e15])
def test_compact_kernels_find_the_nearest_key(distance, rng):
    keys, queries = 50.0 * rng.standard_normal((60, 4)), distance * rng.standard_normal((40, 4))
    values = np.arange(60.0)[:, None] / 60
    attention = attention_of(50.0 * queries, keys, "epanechnikov")
    moments = attend(attention, Products(values))
    for query, found in zip(50.0 * queries, moments.sums / moments.total[:, None], strict=True):
        assert found[0] == values[int(np.argmin(exact_squares(query, keys))), 0]


@pytest.mark.parametrize("scale", [1.0, 0.1, 1.0 / 3.0, 1e-7, 12345.0])
def test_midpoints_share_whatever_rounding_does(scale, rng):
    # the query is half way between two keys in the caller's units, not in coordinates
    for _ in range(20):
        middle, gap = scale * rng.integers(-50, 50), scale * rng.integers(1, 9)
        X = np.array([[middle - gap], [middle + gap], [middle + 40 * scale * 10]])
        model = NadarayaWatsonRegressor(scale * 0.3, kernel="tricube").fit(X, [0.0, 1.0, 9.0])
        assert_allclose(model.predict([[middle]]), 0.5)
