"""Slopes of means and own weights in log-bandwidths."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skattn._attention import Resources, attend, attend_slopes
from skattn._geometry import Own
from skattn.kernels import KERNELS

SLOPED = [name for name, kernel in KERNELS.items() if kernel.has_slope]


def problem(rng, n=80, d=3):
    X, values = rng.standard_normal((n, d)), rng.standard_normal((n, 2))
    weights = rng.integers(1, 3, n).astype(float)
    return X, values, np.log(weights), 1.0 - 1.0 / weights


def differences(function, log_bandwidth, step=1e-5):
    """Central differences of what a function of log-bandwidths returns, features last."""
    for j in range(log_bandwidth.size):
        shift = step * (np.arange(log_bandwidth.size) == j)
        above, below = function(log_bandwidth + shift), function(log_bandwidth - shift)
        yield (above - below) / (2 * step)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", SLOPED)
def test_slopes_are_the_derivatives_of_attend(name, dtype, rng):
    X, values, log_weights, kept = problem(rng)
    kernel, theta = KERNELS[name], np.log([0.8, 1.2, 1.7])
    if np.isfinite(kernel.support):
        theta = theta + np.log(2.5)
    every = np.arange(len(X))
    tolerance = 1e-5 if dtype == np.float64 else 2e-3
    for own in (Own(every, every + 1, kept), Own(every, every + 1, np.ones(len(X)))):

        def attended(log_bandwidth, own=own):
            scaled = X / np.exp(log_bandwidth)
            return attend(scaled, scaled, values, kernel, log_weights, own=own)

        scaled = X / np.exp(theta)
        resources = Resources(dtype=np.dtype(dtype), block_bytes=10_000)
        sloped = attend_slopes(
            scaled, scaled, values, kernel, log_weights, own=own, resources=resources
        )
        exact = attended(theta)
        assert_allclose(sloped.mean, exact.mean, atol=1e-12 if dtype == np.float64 else 1e-5)
        assert_allclose(sloped.own_weight, exact.own_weight, atol=1e-5)
        for j, slope in enumerate(differences(lambda t: attended(t).mean, theta)):
            assert_allclose(sloped.mean_slope[:, :, j], slope, atol=tolerance)
        if own.kept.all():
            for j, slope in enumerate(differences(lambda t: attended(t).own_weight, theta)):
                assert_allclose(sloped.own_slope[:, j], slope, atol=tolerance)


def test_queries_beyond_reach_have_the_nearest_mean_and_no_slope():
    keys, values = np.array([[0.0], [1.0]]), np.array([[-1.0], [1.0]])
    sloped = attend_slopes(np.array([[1e5]]), keys, values, KERNELS["gaussian"], np.zeros(2))
    assert_array_equal(sloped.mean, 1.0)
    assert_array_equal(sloped.mean_slope, 0.0)


@pytest.mark.parametrize("name", ["gaussian", "laplace", "student", "biweight"])
@pytest.mark.parametrize("distance", [3.0, 60.0, 2000.0])
def test_slopes_of_far_queries(name, distance, rng):
    keys, values = rng.standard_normal((30, 2)), rng.standard_normal((30, 1))
    queries = distance * np.array([[1.0, 0.5], [-0.3, 1.0], [0.7, -0.7]])
    theta = np.array([0.1, -0.2])

    def means(log_bandwidth):
        scale = np.exp(log_bandwidth)
        return attend(queries / scale, keys / scale, values, KERNELS[name], np.zeros(30)).mean

    scale = np.exp(theta)
    sloped = attend_slopes(queries / scale, keys / scale, values, KERNELS[name], np.zeros(30))
    assert_allclose(sloped.mean, means(theta), rtol=1e-9, atol=1e-12)
    for j, slope in enumerate(differences(means, theta, step=1e-7)):
        assert_allclose(sloped.mean_slope[:, :, j], slope, rtol=1e-3, atol=1e-5)


def test_irrelevant_feature_has_no_slope(rng):
    X, values, log_weights, _ = problem(rng)
    X[:, 1] = 4.0
    sloped = attend_slopes(X, X, values, KERNELS["student"], log_weights)
    assert_allclose(sloped.mean_slope[:, :, 1], 0.0, atol=1e-12)
