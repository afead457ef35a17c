"""Quantiles under attention weights: the definition, by sorting."""

import numpy as np
import pytest
from definitions import attention_of, quantiles, regression_of
from numpy.testing import assert_allclose, assert_array_equal

from skattn import NadarayaWatsonRegressor
from skattn._attention import Resources
from skattn._uncertainty import weighted_quantiles


def same_place(weights):
    """A query at the place of all keys: attention weights are the shares of the sample weights."""
    zeros = np.zeros((len(weights), 1))
    return regression_of(attention_of(zeros[:1], zeros, weights=weights), zeros)


@pytest.mark.parametrize("name", ["gaussian", "epanechnikov", "uniform"])
def test_quantiles_are_those_of_sorted_values(name, rng):
    X, queries = rng.random((90, 2)), rng.random((30, 2))
    y = np.round(rng.standard_normal((90, 2)), 1)  # ties
    weights = rng.integers(0, 4, 90)
    levels = np.array([0.0, 0.01, 0.25, 0.5, 0.9, 0.99, 1.0])
    model = NadarayaWatsonRegressor(0.25, kernel=name).fit(X, y, weights)
    found = model.predict_quantiles(queries, levels)
    for row, attention in zip(found, model.attention_weights(queries), strict=True):
        some = attention > 0.0  # levels 0 and 1 are the extremes among rows with a weight
        for output in range(2):
            expected = quantiles(attention[some], y[some, output], levels)
            assert_array_equal(row[:, output], expected)
    assert (np.diff(found, axis=1) >= 0.0).all()


def test_levels_that_are_shares_are_reached(rng):
    # sums of n equal weights are rounded, and yet reach i / n at the i-th value
    for n in (3, 7, 10, 49, 1000):
        values = rng.permutation(n).astype(float)[:, None]
        levels = np.arange(1, n + 1) / n
        found, _ = weighted_quantiles(same_place(np.ones(n)), Resources(), values, levels)
        assert_array_equal(found[0, :, 0], np.arange(n))


def test_quantiles_around_lines_are_those_of_residuals(rng):
    X, queries = rng.random((80, 1)), rng.random((20, 1))
    y = 5.0 * X[:, 0] + rng.standard_normal(80)
    model = NadarayaWatsonRegressor(0.3, degree=1).fit(X, y)
    levels = [0.1, 0.5, 0.9]
    residuals = y - model.predict(None)
    attention = NadarayaWatsonRegressor(0.3).fit(X, y).attention_weights(queries)
    expected = [quantiles(weights, residuals, levels) for weights in attention]
    found = model.predict_quantiles(queries, levels) - model.predict(queries)[:, None]
    assert_allclose(found, expected, atol=1e-12)


def test_quantiles_do_not_depend_on_threads_and_blocks(rng):
    keys, values = rng.random((900, 2)), rng.standard_normal((900, 2))
    queries = rng.random((600, 2))
    regression = regression_of(attention_of(queries / 0.2, keys / 0.2), values)
    levels = np.array([0.1, 0.6])
    expected, _ = weighted_quantiles(regression, Resources(), values, levels)
    for resources in (Resources(n_threads=2), Resources(block_bytes=1)):
        assert_array_equal(weighted_quantiles(regression, resources, values, levels)[0], expected)
