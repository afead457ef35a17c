"""Derivatives of predictions and leverages in the logarithms of the bandwidths."""

from dataclasses import replace

import numpy as np
import pytest
from definitions import KINKED, SLOPED, attention_of, column, differences, kernel_of, regression_of
from numpy.testing import assert_allclose, assert_array_equal

from skattn._attention import Products, Resources
from skattn._geometry.training_set import Exclusion
from skattn._smoother import bandwidth_slopes, predict


def excluded_of(kind, counts):
    every = np.arange(len(counts))
    if kind == "units":
        return Exclusion(every, every + 1, 1.0 - 1.0 / counts)
    if kind == "groups":
        stop = np.minimum(every // 3 * 3 + 3, len(every))
        return Exclusion(every // 3 * 3, stop, np.zeros(len(every)))
    return Exclusion(every, every + 1, np.ones(len(every)))


@pytest.mark.parametrize("kind", ["units", "groups", "nothing"])
@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("name", SLOPED)
def test_slopes_are_the_derivatives_of_predictions(name, degree, kind, rng):
    X, values = rng.standard_normal((80, 3)), rng.standard_normal((80, 2))
    theta = np.log([0.8, 1.2, 1.7])
    if np.isfinite(kernel_of(name).support):
        theta = theta + np.log(3.0)  # each row has neighbours for a line
    counts = rng.integers(1, 3, 80).astype(float)
    excluded = excluded_of(kind, counts)

    def at(log_bandwidth):
        scaled = X / np.exp(log_bandwidth)
        attention = attention_of(scaled, scaled, name, counts, excluded)
        return regression_of(attention, values, (scaled, scaled) if degree else None)

    def predicted(log_bandwidth):
        return predict(at(log_bandwidth), Resources())

    found = bandwidth_slopes(at(theta), Resources(block_bytes=10_000))
    prediction, leverage, _ = predicted(theta)
    assert_allclose(found.prediction, prediction, atol=1e-10)
    assert_allclose(found.leverage, leverage, atol=1e-10)
    scale = np.abs(found.prediction_slope).max()
    assert scale > 0.1
    tolerance = (1e-4 if name in KINKED else 1e-6) * max(1.0, scale)
    for j, slope in enumerate(differences(lambda t: predicted(t)[0], theta)):
        assert_allclose(found.prediction_slope[:, :, j], slope, atol=tolerance)
    if kind == "nothing":
        for j, slope in enumerate(differences(lambda t: predicted(t)[1], theta)):
            assert_allclose(found.leverage_slope[:, j], slope, atol=tolerance)
    else:
        assert np.isfinite(found.leverage_slope).all()


def test_slopes_do_not_depend_on_the_coordinates_of_the_lines(rng):
    X, values = rng.standard_normal((80, 3)), rng.standard_normal((80, 2))
    attention = attention_of(X, X, excluded=excluded_of("units", np.ones(80)))
    regression = regression_of(attention, values, (X, X))
    mixed = X @ np.array([[1.0, 0.3, 0.0], [0.0, 2.0, 0.5], [0.2, 0.0, 0.7]]) + 4.0
    other = replace(regression, products=Products(values, mixed), regressors=mixed)
    one, two = (bandwidth_slopes(each, Resources()) for each in (regression, other))
    for name in ("prediction", "prediction_slope", "leverage"):
        assert_allclose(getattr(one, name), getattr(two, name), atol=1e-9)


@pytest.mark.parametrize("degree", [0, 1])
def test_queries_outside_every_support_have_no_slope(degree):
    queries, keys = column(0.4, 10.0), column(0.0, 0.5, 1.0)
    regressors = (queries, keys) if degree else None
    regression = regression_of(attention_of(queries, keys, "biweight"), keys**2, regressors)
    found = bandwidth_slopes(regression, Resources())
    assert_allclose(found.prediction[1], 1.0)
    assert_array_equal(found.prediction_slope[1], 0.0)
