"""The dense engine gives the numbers of the plain definition, in blocks of any size."""

import numpy as np
import pytest
from definitions import (
    KERNEL_CASES,
    SLOPED,
    attention_of,
    attention_weights,
    differences,
    retained_shares,
)
from numpy.testing import assert_allclose, assert_array_equal

from skattn._attention import Products, Resources, Want, attend
from skattn._geometry.training_set import Exclusion

RESOURCES = {
    "default": (Resources(algorithm="dense"), 1e-12),
    "two threads, small blocks": (Resources(n_threads=2, block_bytes=20_000), 1e-12),
    "one row at a time": (Resources(block_bytes=1), 1e-12),
    "float32": (Resources(dtype=np.dtype(np.float32)), 5e-5),
    "exact": (Resources(algorithm="exact"), 1e-12),
}


def problem(name, d, spread, left_out):
    rng = np.random.default_rng([d, int(10 * spread), left_out])
    keys, queries = spread * rng.standard_normal((120, d)), spread * rng.standard_normal((70, d))
    start, retained = np.arange(70), rng.choice([0.0, 0.5], 70)
    excluded = Exclusion(start, start + rng.integers(0, 4, 70), retained) if left_out else None
    weights = rng.integers(1, 4, 120).astype(float)
    return attention_of(1.3 * queries, keys, name, weights, excluded), rng.standard_normal((120, 2))


@pytest.mark.parametrize("left_out", [False, True])
@pytest.mark.parametrize("spread", [0.3, 3.0, 30.0, 300.0])
@pytest.mark.parametrize("d", [1, 2, 5])
@pytest.mark.parametrize("name", KERNEL_CASES)
def test_moments_are_those_of_the_definition(name, d, spread, left_out):
    attention, values = problem(name, d, spread, left_out)
    weights, log_sums = attention_weights(attention)
    outside, shares = np.isneginf(log_sums), retained_shares(attention)
    for resources, tolerance in RESOURCES.values():
        moments = attend(attention, Products(values), Want.SQUARES, resources)
        total = moments.total[:, None]
        assert_allclose(moments.sums / total, weights @ values, rtol=0, atol=tolerance)
        squares = weights**2 / np.where(shares > 0.0, shares, 1.0) @ values
        assert_allclose(moments.squares / total**2, squares, rtol=0, atol=tolerance)
        assert_array_equal(moments.outside, outside)
        found = (moments.log_shift + np.log(moments.total) - attention.log_offset)[~outside]
        assert_allclose(found, log_sums[~outside], rtol=1e-13, atol=tolerance)
        own = (weights * (shares < 1.0)).sum(axis=1)
        assert_allclose(moments.own / moments.total, own, rtol=0, atol=tolerance)


# ---------------------------------------------------------------------------------------------
# Slopes


def sloped(attention, values, resources=Resources()):
    """Means and own weights, and their derivatives in log-bandwidths."""
    moments = attend(attention, Products(values), Want.SLOPES, resources)
    total = moments.total[:, None]
    mean, own, by_log = moments.sums / total, moments.own / moments.total, moments.slopes[:, 0]
    slopes = moments.slopes[:, 1:] / total[:, :, None]
    slopes = slopes - mean[:, :, None] * (by_log / total)[:, None]
    return mean, slopes, own, -own[:, None] * by_log / total


@pytest.mark.parametrize("algorithm", ["dense", "exact"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", SLOPED)
def test_slopes_are_the_derivatives_of_the_means(name, dtype, algorithm, rng):
    X, values = rng.standard_normal((80, 3)), rng.standard_normal((80, 2))
    counts, every = rng.integers(1, 3, 80).astype(float), np.arange(80)
    theta = np.log([0.8, 1.2, 1.7])
    if np.isfinite(attention_of(X, X, name).kernel.support):
        theta = theta + np.log(2.5)
    tolerance = 1e-5 if dtype == np.float64 else 2e-3
    for retained in (1.0 - 1.0 / counts, np.ones(80)):
        excluded = Exclusion(every, every + 1, retained)

        def at(log_bandwidth, excluded=excluded):
            scaled = X / np.exp(log_bandwidth)
            return attention_of(scaled, scaled, name, counts, excluded)

        resources = Resources(dtype=np.dtype(dtype), block_bytes=10_000, algorithm=algorithm)
        mean, slopes, own, own_slopes = sloped(at(theta), values, resources)

        def means(t, at=at):
            return attention_weights(at(t))[0] @ values

        def owns(t, at=at):
            return np.diag(attention_weights(at(t))[0])

        assert_allclose(mean, means(theta), atol=1e-12 if dtype == np.float64 else 1e-5)
        assert_allclose(own, owns(theta), atol=1e-5)
        for j, slope in enumerate(differences(means, theta)):
            assert_allclose(slopes[:, :, j], slope, atol=tolerance)
        if retained.all() and algorithm == "dense":
            for j, slope in enumerate(differences(owns, theta)):
                assert_allclose(own_slopes[:, j], slope, atol=tolerance)


def test_queries_beyond_reach_have_the_nearest_mean_and_no_slope():
    keys = np.array([[0.0], [1.0]])
    mean, slopes, _, _ = sloped(attention_of(np.array([[1e5]]), keys), 2.0 * keys - 1.0)
    assert_array_equal(mean, 1.0)
    assert_array_equal(slopes, 0.0)


@pytest.mark.parametrize("name", ["gaussian", "laplace", "student", "biweight"])
@pytest.mark.parametrize("distance", [3.0, 60.0, 2000.0])
def test_slopes_of_far_queries(name, distance, rng):
    keys, values = rng.standard_normal((30, 2)), rng.standard_normal((30, 1))
    queries = distance * np.array([[1.0, 0.5], [-0.3, 1.0], [0.7, -0.7]])

    def at(theta):
        return attention_of(queries / np.exp(theta), keys / np.exp(theta), name)

    def means(theta):
        moments = attend(at(theta), Products(values))
        return moments.sums / moments.total[:, None]

    theta = np.array([0.1, -0.2])
    mean, slopes, _, _ = sloped(at(theta), values)
    assert_allclose(mean, means(theta), rtol=1e-9, atol=1e-12)
    for j, slope in enumerate(differences(means, theta, step=1e-7)):
        assert_allclose(slopes[:, :, j], slope, rtol=1e-3, atol=1e-5)


def test_a_constant_feature_has_no_slope(rng):
    X = rng.standard_normal((80, 3))
    X[:, 1] = 4.0
    _, slopes, _, _ = sloped(attention_of(X, X, "student"), rng.standard_normal((80, 2)))
    assert_allclose(slopes[:, :, 1], 0.0, atol=1e-12)
