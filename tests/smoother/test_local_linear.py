"""Local lines are weighted least squares, and fall back to means where there is no line."""

import numpy as np
import pytest
from definitions import (
    COMPACT,
    KERNEL_CASES,
    attention_of,
    attention_weights,
    kernel_function,
    lines,
    smoother_rows,
)
from numpy.testing import assert_allclose, assert_array_equal

from skattn import NadarayaWatsonRegressor
from skattn._attention import Moments, Products, attend
from skattn._geometry.scaling import spread
from skattn._smoother import LocalLinear
from skattn._smoother.local_linear import FLAT, inverse_variances


def model(bandwidth, **parameters):
    return NadarayaWatsonRegressor(bandwidth, degree=1, **parameters)


def problem(rng, n=120, d=2):
    X = rng.standard_normal((n, d))
    y = np.column_stack([np.sin(2.0 * X[:, 0]) + X.sum(axis=1), rng.standard_normal(n)])
    return X, y, 1.2 * rng.standard_normal((40, d))


def reference(queries, X, y, bandwidth, kernel="gaussian", weights=None):
    """Local lines with the plain definition's weights and NumPy's least squares."""
    near = np.isfinite(np.full(X.shape[1], 1.0) * bandwidth)
    scaled = [(rows / bandwidth)[:, near] for rows in (queries, X)]
    attention, _ = attention_weights(attention_of(*scaled, kernel, weights))
    unit = X.std(axis=0)
    return lines(attention, X / unit, y, queries / unit)[0]


# ---------------------------------------------------------------------------------------------
# Reading moments


@pytest.mark.parametrize("ridge", [0.0, 0.1])
def test_lines_are_read_off_moments_about_any_centre(ridge, rng):
    queries, keys = rng.standard_normal((9, 2)), rng.standard_normal((40, 2))
    regressors = rng.standard_normal((9, 3)), rng.standard_normal((40, 3))
    values, attention = rng.standard_normal((40, 2)), attention_of(queries, keys, "student")
    weights, _ = attention_weights(attention)
    moments = attend(attention, Products(values, regressors[1]))
    expected, slopes = lines(weights, regressors[1], values, regressors[0], ridge)
    for center in (moments.center, rng.standard_normal((9, 3))):
        fit = LocalLinear(ridge).read(moments.recentered(center), regressors[0])
        assert_allclose(fit.prediction, expected, atol=1e-11)
        assert_allclose(fit.slope, slopes, atol=1e-10)
        assert not fit.ill_conditioned.any()
    rows = smoother_rows(weights, regressors[1], regressors[0], ridge)
    found = LocalLinear(ridge).smoother_rows(fit, weights, regressors[1])
    assert_allclose(found, rows, atol=1e-11)
    at_keys = fit.lines(regressors[1], output=1)
    assert_allclose(np.einsum("qk,qk->q", weights, at_keys), weights @ values[:, 1], atol=1e-11)


def test_moments_that_rounding_has_spoilt_are_told(rng):
    regressors = 1e6 + rng.standard_normal((40, 1))
    weights = np.full((2, 40), 1.0 / 40.0)
    products = Products(rng.standard_normal((40, 1)), regressors)
    inside = np.zeros(2, bool), np.full(2, np.inf)
    for center, is_spoilt in ((regressors.mean(), False), (0.0, True)):
        sums = weights @ products.columns(np.array([center]))
        moments = Moments(
            np.zeros(2), np.ones(2), sums, np.zeros(2), *inside, np.full((2, 1), center)
        )
        fit = LocalLinear().read(moments, regressors[:2])
        assert_array_equal(fit.ill_conditioned, is_spoilt)


def test_inverse_variances_are_flat_at_zero_and_exact_elsewhere():
    variances = np.array([[0.0, 1e-12, 100.0 * FLAT, 0.3, 1.0]])
    inverse = inverse_variances(variances)
    assert inverse[0, 0] == 0.0
    assert inverse[0, 1] < 1.0 / FLAT
    assert_allclose(inverse[0, 2:] * variances[0, 2:], 1.0, rtol=1e-7)
    assert_allclose(inverse_variances(variances, 0.5), 1.0 / (variances + 0.5))


# ---------------------------------------------------------------------------------------------
# Weighted least squares


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("d", [1, 3])
@pytest.mark.parametrize("name", KERNEL_CASES)
def test_lines_are_weighted_least_squares(name, d, weighted, rng):
    X, y, queries = problem(rng, d=d)
    weights = rng.uniform(0.2, 3.0, 120) if weighted else None
    bandwidth = np.linspace(0.7, 1.1, d) * (1.0 if name not in COMPACT else 2.5 + d / 2)
    queries = queries[np.abs(queries).max(axis=1) < 2.0]
    predicted = model(bandwidth, kernel=kernel_function(name)).fit(X, y, weights).predict(queries)
    expected = reference(queries, X, y, bandwidth, name, weights)
    assert_allclose(predicted, expected, rtol=0, atol=1e-9)


def test_slopes_are_those_of_weighted_least_squares(rng):
    X, y, queries = problem(rng)
    bandwidth = np.array([0.7, 1.1])
    slopes = model(bandwidth).fit(X, y).predict_gradient(queries)
    attention, _ = attention_weights(attention_of(queries / bandwidth, X / bandwidth))
    assert_allclose(slopes, lines(attention, X, y, queries)[1], atol=1e-8)


# ---------------------------------------------------------------------------------------------
# Lines are reproduced, and nothing else


@pytest.mark.parametrize(
    "bandwidth", [0.3, [0.3, 2.0], [0.4, np.inf], [np.inf, 0.4], np.inf, 30.0, 1e3, 1e6]
)
@pytest.mark.parametrize("offset", [0.0, 1e8])
@pytest.mark.parametrize("unit", [1.0, 2.0**-30, 2.0**30])
def test_a_line_is_reproduced(bandwidth, offset, unit, rng):
    X = np.round(rng.random((300, 2)) * 1024) / 1024
    queries = np.round(rng.random((50, 2)) * 1024) / 1024

    def plane(X):
        return 2.0 + 3.0 * X[:, 0] - X[:, 1]

    scale = np.array([unit, 1.0])
    fitted = model(np.asarray(bandwidth) * scale).fit((X + offset) * scale, plane(X))
    predicted = fitted.predict((queries + offset) * scale)
    assert_allclose(predicted, plane(queries), rtol=0, atol=3e-8)
    assert_allclose(fitted.predict_gradient((queries + offset) * scale) * scale, [[3.0, -1.0]] * 50,
                    rtol=1e-6)  # fmt: skip


@pytest.mark.parametrize("far", [1e3, 1e6, 1e9])
def test_a_line_is_reproduced_in_narrow_windows_beside_a_far_block(far, rng):
    near = np.round(rng.random(200) * 1024) / 1024
    x = np.concatenate([near, far + near[:100]])
    queries = np.concatenate([near[:20] + 1 / 2048, far + near[:20] + 1 / 2048])
    queries = queries[(queries % 1.0 > 0.1) & (queries % 1.0 < 0.9)]
    predicted = model(0.05).fit(x[:, None], 0.5 * x).predict(queries[:, None])
    assert_allclose(predicted, 0.5 * queries, rtol=0, atol=1e-8 + 2e-16 * far)
    # and what is local stays so
    curve = model(0.05).fit(x[:, None], np.sin(5.0 * (x % 1.0))).predict(queries[:, None])
    assert_allclose(curve, np.sin(5.0 * (queries % 1.0)), atol=0.1)


def test_all_bandwidths_infinite_is_ordinary_least_squares(rng):
    X, y, queries = problem(rng, d=3)
    expected, _ = lines(np.ones((40, 120)), X, y, queries)
    assert_allclose(model(np.inf).fit(X, y).predict(queries), expected, atol=1e-9)
    assert_allclose(model(1e5).fit(X, y).predict(queries), expected, atol=1e-6)


@pytest.mark.parametrize("name", ["gaussian", "student", "epanechnikov"])
def test_an_infinite_bandwidth_leaves_its_feature_in_the_line(name, rng):
    X, y, queries = problem(rng, d=3)
    bandwidth = np.array([2.0, np.inf, np.inf])
    queries = queries[np.abs(queries[:, 0]) < 2.0]
    predicted = model(bandwidth, kernel=name).fit(X, y).predict(queries)
    assert_allclose(predicted, reference(queries, X, y, bandwidth, name), atol=1e-9)


def test_a_parabola_is_missed_by_the_variance_of_the_kernel():
    x = np.arange(-300, 301)[:, None] / 100.0
    assert_allclose(
        model(0.3).fit(x, x[:, 0] ** 2).predict([[0.0], [0.5]]), [0.09, 0.34], atol=1e-8
    )


# ---------------------------------------------------------------------------------------------
# Where there is no line


def test_the_line_through_two_keys_falls_to_the_nearest_key_smoothly():
    # one effective key at last, with the bandwidth; between, monotonously and without a jump
    X, y = np.array([[0.0], [1.0], [2.0]]), np.array([0.0, 1.0, 5.0])
    bandwidths = 0.12 * 1.002 ** -np.arange(350)
    predicted = np.array([model(h).fit(X, y).predict([[0.3]])[0] for h in bandwidths])
    assert np.isfinite(predicted).all()
    assert_allclose(predicted[bandwidths > 0.1][-1], 0.3, atol=1e-3)
    assert_allclose(predicted[-1], 0.0, atol=1e-12)
    steps = np.diff(predicted)
    assert steps.max() < 1e-9
    assert steps.min() > -0.04


@pytest.mark.parametrize("d", [2, 5])
@pytest.mark.parametrize("name", ["gaussian", "student", "laplace"])
def test_fewer_keys_than_directions_fall_to_means(name, d, rng):
    X, y, queries = rng.standard_normal((20, d)), rng.random(20), rng.standard_normal((30, d))
    bandwidths = 2.0 * 1.2 ** -np.arange(80)
    found = np.array([model(h, kernel=name).fit(X, y).predict(queries) for h in bandwidths])
    assert np.isfinite(found).all()
    if name == "student":  # whose weights of other keys never vanish
        return
    means = NadarayaWatsonRegressor(bandwidths[-1], kernel=name).fit(X, y).predict(queries)
    single = NadarayaWatsonRegressor(bandwidths[-1], kernel=name).fit(X, y)
    alone = single.effective_neighbors(queries) < 1.0 + 1e-13
    assert alone.sum() > 25
    assert_allclose(found[-1][alone], means[alone], atol=1e-3)


def test_one_row_is_a_flat_line():
    fitted = model(1.0).fit([[2.0, 3.0]], [7.0])
    assert_array_equal(fitted.predict([[2.0, 3.0], [-50.0, 1e9]]), 7.0)
    assert_array_equal(fitted.predict_gradient([[2.0, 3.0], [-50.0, 1e9]]), 0.0)


def test_keys_on_a_line_have_no_slope_across_it(rng):
    t = rng.random(60)
    X = np.column_stack([t, t])
    fitted = model(0.3).fit(X, 4.0 * t)
    along, across = np.array([[0.5, 0.5]]), np.array([[0.6, 0.4]])
    assert_allclose(fitted.predict(along), 2.0, atol=1e-8)
    assert_allclose(fitted.predict(across), 2.0, atol=1e-8)
    assert_allclose(fitted.predict_gradient(along), [[2.0, 2.0]], rtol=1e-6)


@pytest.mark.parametrize("name", COMPACT)
def test_outside_the_support_a_line_is_the_nearest_mean(name, rng):
    X, y = rng.random((50, 2)), rng.random(50)
    queries = 1.0 + 5.0 * rng.random((40, 2))
    flat = NadarayaWatsonRegressor(0.1, kernel=name).fit(X, y)
    outside = np.sqrt(((queries[:, None] - X) ** 2).sum(axis=2)).min(axis=1) >= 0.1
    assert outside.sum() > 30
    fitted = model(0.1, kernel=name).fit(X, y)
    assert_allclose(fitted.predict(queries)[outside], flat.predict(queries)[outside], rtol=1e-14)
    assert_array_equal(fitted.predict_gradient(queries)[outside], 0.0)


# ---------------------------------------------------------------------------------------------
# Many features


def test_thirty_features_are_all_in_the_line(rng):
    X, queries, slope = rng.random((200, 30)), rng.random((20, 30)), rng.standard_normal(30)
    for bandwidth in (2.0, np.inf):
        fitted = model(bandwidth).fit(X, X @ slope)
        assert_allclose(fitted.predict(queries), queries @ slope, atol=1e-7)
        assert_allclose(fitted.predict_gradient(queries), [slope] * 20, rtol=1e-6)


def test_lines_within_thirty_principal_components_are_reproduced(rng):
    hidden, mix = rng.standard_normal((300, 30)), rng.standard_normal((30, 35))
    slope = rng.standard_normal(35)
    X, queries = hidden @ mix, rng.standard_normal((20, 30)) @ mix
    for bandwidth in (30.0, np.inf):
        fitted = model(bandwidth).fit(X, X @ slope)
        assert_allclose(fitted.predict(queries), queries @ slope, atol=1e-6)


def test_of_more_than_thirty_features_only_leading_components_have_slopes(rng):
    X = rng.standard_normal((400, 35)) * np.linspace(1.0, 3.0, 35)
    X[:, :20] += 0.3 * rng.standard_normal((400, 1))
    scaled = X / spread(X, np.ones(400))
    centered = scaled - scaled.mean(axis=0)
    _, axes = np.linalg.eigh(np.cov(centered.T))
    components = centered @ axes[:, ::-1]
    for position, is_reproduced in ((0, True), (29, True), (30, False), (34, False)):
        y = components[:, position]
        predicted = model(np.inf).fit(X, y).predict(X)
        assert_allclose(predicted, y if is_reproduced else np.zeros(400), atol=1e-6)


# ---------------------------------------------------------------------------------------------
# Precision


@pytest.mark.parametrize("far", [1e5, 1e6])
def test_queries_of_two_places_at_once_are_as_precise_as_alone(far, rng):
    # the covariance about what the queries of a block have in common is lost in rounding
    near = np.sort(rng.random((200, 1)), axis=0)
    X = np.vstack([near, near + far])
    y = np.vstack([np.sin(4.0 * near), np.cos(4.0 * near)])
    queries = np.vstack([near[40:160:8] + 0.01, near[40:160:8] + far + 0.01])
    fitted = model(0.1).fit(X, y)
    both = fitted.predict(queries)
    attention, _ = attention_weights(attention_of(queries / 0.1, X / 0.1))
    expected, _ = lines(attention, X, y, queries)
    assert_allclose(both, expected, atol=1e-12 * far)
    alone = [fitted.predict(query[None])[0] for query in queries]
    assert_allclose(both, alone, atol=1e-10)
    # as it is without more ado
    pivot = attention.mean(axis=0) @ X / 0.1
    away = (X / 0.1 - pivot)[:, 0]
    first, second = attention @ away, attention @ away**2
    level, cross = attention @ y[:, 0], attention @ (away * y[:, 0])
    slope = (cross - first * level) / (second - first**2)
    naive = level + (queries[:, 0] / 0.1 - pivot - first) * slope
    assert np.abs(naive - expected[:, 0]).max() > 1e-6


def test_slopes_of_two_places_at_once_are_as_precise_as_alone(rng):
    near = rng.random((200, 1))
    X, y = np.vstack([near, near + 1e6]), np.vstack([3.0 * near, -2.0 * near])
    queries = np.vstack(
        [np.linspace(0.2, 0.8, 20)[:, None], np.linspace(0.2, 0.8, 20)[:, None] + 1e6]
    )
    slopes = model(0.1).fit(X, y).predict_gradient(queries)[:, 0, 0]
    assert_allclose(slopes, np.repeat([3.0, -2.0], 20), rtol=1e-7)


def test_a_wide_plane_seen_from_far_keys_of_tiny_weight():
    # keys of little weight far away must not take the digits of those nearby
    x = np.concatenate([np.linspace(0.0, 1.0, 101), [40.0]])
    fitted = model(1.0).fit(x[:, None], 1.0 + 2.0 * x)
    assert_allclose(fitted.predict([[0.5], [1.5], [-30.0]]), [2.0, 4.0, -59.0], rtol=1e-6)
