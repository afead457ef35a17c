"""Local lines are weighted least squares, and fall back to means where there is no line."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skattn import NadarayaWatsonRegressor
from skattn._attention import Resources
from skattn._attention._reference import reference_weights
from skattn._bandwidth import spread
from skattn._geometry import Table
from skattn.kernels import KERNELS, get_kernel
from skattn._smoother import Adaptive, Keys, prediction_variance, smooth, smoother_matrix

COMPACT = [name for name, kernel in KERNELS.items() if np.isfinite(kernel.support)]
KERNEL_CASES = [*KERNELS, "callable"]


def kernel_of(name):
    return get_kernel(name if name in KERNELS else lambda squared: -(squared**0.7))


def line(bandwidth, **parameters):
    return NadarayaWatsonRegressor(bandwidth, degree=1, **parameters)


def keys_of(X, y, bandwidth, weights=None, groups=None, kernel="gaussian", degree=1, adaptive=None):
    weights = np.ones(len(X)) if weights is None else np.asarray(weights, float)
    table = Table.canonical(X, y.reshape(len(y), -1), weights, groups)
    bandwidth = np.full(X.shape[1], 1.0) * bandwidth
    scale = spread(table.X, table.weights) if degree == 1 else None
    return Keys.of(table, kernel_of(kernel), bandwidth, scale, adaptive)


def least_squares(weights, X, y, query, unit=1.0):
    """The line through weighted points at a query, and its slopes."""
    root = np.sqrt(weights)[:, None]
    away = (X - query) / unit
    columns = np.column_stack([np.ones(len(X)), away])
    coefficients, *_ = np.linalg.lstsq(root * columns, root * y.reshape(len(y), -1), rcond=None)
    return coefficients[0], coefficients[1:] / np.broadcast_to(unit, X.shape[1:])[:, None]


def reference(queries, X, y, bandwidth, kernel="gaussian", weights=None):
    """Local lines with the plain definition's weights and NumPy's least squares."""
    near = np.isfinite(np.full(X.shape[1], 1.0) * bandwidth)
    scaled = [(rows / bandwidth)[:, near] for rows in (queries, X)]
    logs = np.zeros(len(X)) if weights is None else np.log(weights)
    attention, _ = reference_weights(*scaled, kernel_of(kernel), logs, None)
    unit = X.std(axis=0)
    return np.array(
        [
            least_squares(w, X, y, query, unit)[0]
            for w, query in zip(attention, queries, strict=True)
        ]
    )


def problem(rng, n=120, d=2):
    X = rng.standard_normal((n, d))
    y = np.column_stack([np.sin(2.0 * X[:, 0]) + X.sum(axis=1), rng.standard_normal(n)])
    return X, y, 1.2 * rng.standard_normal((40, d))


def ascending(rng, n, d):
    """Rows in canonical order, so that rows of matrices are those of the caller."""
    X = rng.standard_normal((n, d))
    return X[np.argsort(X[:, 0])]


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
    model = line(bandwidth, kernel=name if name in KERNELS else (lambda squared: -(squared**0.7)))
    predicted = model.fit(X, y, weights).predict(queries)
    expected = reference(queries, X, y, bandwidth, name, weights)
    assert_allclose(predicted, expected, rtol=0, atol=1e-9)


def test_slopes_are_those_of_weighted_least_squares(rng):
    X, y, queries = problem(rng)
    bandwidth = np.array([0.7, 1.1])
    slopes = line(bandwidth).fit(X, y).predict_gradient(queries)
    scaled = queries / bandwidth, X / bandwidth
    attention, _ = reference_weights(*scaled, KERNELS["gaussian"], np.zeros(120), None)
    for slope, weights, query in zip(slopes, attention, queries, strict=True):
        assert_allclose(slope, least_squares(weights, X, y, query)[1], atol=1e-8)


@pytest.mark.parametrize("adaptive", ["query", "key"])
def test_lines_of_adaptive_bandwidths_are_weighted_least_squares(adaptive, rng):
    X, y = ascending(rng, 90, 2), rng.standard_normal((90, 1))
    queries = rng.standard_normal((20, 2))
    distances = np.sqrt(((queries[:, None] - X) ** 2).sum(axis=2))
    if adaptive == "query":
        radii = np.sort(distances, axis=1)[:, 19:20]
    else:
        among = np.sqrt(((X[:, None] - X) ** 2).sum(axis=2))
        radii = np.sort(among, axis=1)[:, 20]
    attention = np.exp(-0.5 * (distances / radii) ** 2) / radii**2
    keys = keys_of(X, y, 1.0, adaptive=Adaptive(adaptive, 20))
    predicted = keys.unit.restore(smooth(keys.at(queries), Resources()).mean, is_mean=False)
    expected = [
        least_squares(w, X, y, query)[0] for w, query in zip(attention, queries, strict=True)
    ]
    assert_allclose(predicted, expected, atol=1e-9)


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
    model = line(np.asarray(bandwidth) * scale).fit((X + offset) * scale, plane(X))
    predicted = model.predict((queries + offset) * scale)
    assert_allclose(predicted, plane(queries), rtol=0, atol=3e-8)
    assert_allclose(model.predict_gradient((queries + offset) * scale) * scale, [[3.0, -1.0]] * 50,
                    rtol=1e-6)  # fmt: skip


@pytest.mark.parametrize("name", KERNEL_CASES)
def test_a_line_is_reproduced_to_eight_digits(name, rng):
    X, queries = rng.random((300, 2)), rng.random((50, 2))
    kernel = name if name in KERNELS else (lambda squared: -(squared**0.7))
    model = line(0.4, kernel=kernel).fit(X, X @ [3.0, -1.0])
    assert_allclose(model.predict(queries), queries @ [3.0, -1.0], rtol=0, atol=1e-8)


@pytest.mark.parametrize("far", [1e3, 1e6, 1e9])
def test_a_line_is_reproduced_in_narrow_windows_beside_a_far_block(far, rng):
    near = np.round(rng.random(200) * 1024) / 1024
    x = np.concatenate([near, far + near[:100]])
    queries = np.concatenate([near[:20] + 1 / 2048, far + near[:20] + 1 / 2048])
    queries = queries[(queries % 1.0 > 0.1) & (queries % 1.0 < 0.9)]
    predicted = line(0.05).fit(x[:, None], 0.5 * x).predict(queries[:, None])
    assert_allclose(predicted, 0.5 * queries, rtol=0, atol=1e-8 + 2e-16 * far)
    # and what is local stays so
    curve = line(0.05).fit(x[:, None], np.sin(5.0 * (x % 1.0))).predict(queries[:, None])
    assert_allclose(curve, np.sin(5.0 * (queries % 1.0)), atol=0.1)


def test_all_bandwidths_infinite_is_ordinary_least_squares(rng):
    X, y, queries = problem(rng, d=3)
    expected = [least_squares(np.ones(120), X, y, query)[0] for query in queries]
    assert_allclose(line(np.inf).fit(X, y).predict(queries), expected, atol=1e-9)
    assert_allclose(line(1e5).fit(X, y).predict(queries), expected, atol=1e-6)


@pytest.mark.parametrize("name", ["gaussian", "student", "epanechnikov"])
def test_an_infinite_bandwidth_leaves_its_feature_in_the_line(name, rng):
    X, y, queries = problem(rng, d=3)
    bandwidth = np.array([2.0, np.inf, np.inf])
    queries = queries[np.abs(queries[:, 0]) < 2.0]
    predicted = line(bandwidth, kernel=name).fit(X, y).predict(queries)
    assert_allclose(predicted, reference(queries, X, y, bandwidth, name), atol=1e-9)


def test_a_parabola_is_missed_by_the_variance_of_the_kernel():
    x = np.arange(-300, 301)[:, None] / 100.0
    assert_allclose(line(0.3).fit(x, x[:, 0] ** 2).predict([[0.0], [0.5]]), [0.09, 0.34], atol=1e-8)


# ---------------------------------------------------------------------------------------------
# Where there is no line


def test_the_line_through_two_keys_falls_to_the_nearest_key_smoothly():
    # one effective key at last, with the bandwidth; between, monotonously and without a jump
    X, y = np.array([[0.0], [1.0], [2.0]]), np.array([0.0, 1.0, 5.0])
    bandwidths = 0.12 * 1.002 ** -np.arange(350)
    predicted = np.array([line(h).fit(X, y).predict([[0.3]])[0] for h in bandwidths])
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
    lines = np.array([line(h, kernel=name).fit(X, y).predict(queries) for h in bandwidths])
    assert np.isfinite(lines).all()
    if name == "student":  # whose weights of other keys never vanish
        return
    means = NadarayaWatsonRegressor(bandwidths[-1], kernel=name).fit(X, y).predict(queries)
    single = NadarayaWatsonRegressor(bandwidths[-1], kernel=name).fit(X, y)
    alone = single.effective_neighbors(queries) < 1.0 + 1e-13
    assert alone.sum() > 25
    assert_allclose(lines[-1][alone], means[alone], atol=1e-3)


def test_one_row_is_a_flat_line():
    model = line(1.0).fit([[2.0, 3.0]], [7.0])
    assert_array_equal(model.predict([[2.0, 3.0], [-50.0, 1e9]]), 7.0)
    assert_array_equal(model.predict_gradient([[2.0, 3.0], [-50.0, 1e9]]), 0.0)


def test_keys_on_a_line_have_no_slope_across_it(rng):
    t = rng.random(60)
    X = np.column_stack([t, t])
    model = line(0.3).fit(X, 4.0 * t)
    along, across = np.array([[0.5, 0.5]]), np.array([[0.6, 0.4]])
    assert_allclose(model.predict(along), 2.0, atol=1e-8)
    assert_allclose(model.predict(across), 2.0, atol=1e-8)
    assert_allclose(model.predict_gradient(along), [[2.0, 2.0]], rtol=1e-6)


@pytest.mark.parametrize("name", COMPACT)
def test_outside_the_support_a_line_is_the_nearest_mean(name, rng):
    X, y = rng.random((50, 2)), rng.random(50)
    queries = 1.0 + 5.0 * rng.random((40, 2))
    flat = NadarayaWatsonRegressor(0.1, kernel=name).fit(X, y)
    outside = np.sqrt(((queries[:, None] - X) ** 2).sum(axis=2)).min(axis=1) >= 0.1
    assert outside.sum() > 30
    model = line(0.1, kernel=name).fit(X, y)
    assert_allclose(model.predict(queries)[outside], flat.predict(queries)[outside], rtol=1e-14)
    assert_array_equal(model.predict_gradient(queries)[outside], 0.0)


@pytest.mark.parametrize("constant", [0.0, 1.7e9, -1e-20])
@pytest.mark.parametrize("bandwidth", [1.0, np.inf])
def test_a_constant_feature_is_ignored(constant, bandwidth, rng):
    X, y, queries = problem(rng)
    given = np.array([0.8, 0.8, bandwidth])
    both = np.column_stack([X, np.full(120, constant)])
    asked = np.column_stack([queries, np.full(40, constant)])
    model, expected = line(given).fit(both, y), line(0.8).fit(X, y)
    assert_allclose(model.predict(asked), expected.predict(queries), atol=1e-11)
    slopes = model.predict_gradient(asked)
    assert_array_equal(slopes[:, 2], 0.0)
    assert_allclose(slopes[:, :2], expected.predict_gradient(queries), rtol=1e-8, atol=1e-9)
    asked[:, 2] += 0.5  # the Gaussian kernel takes the same distance from all
    assert_allclose(model.predict(asked), expected.predict(queries), atol=1e-11)


# ---------------------------------------------------------------------------------------------
# Many features


def test_thirty_features_are_all_in_the_line(rng):
    X, queries, slope = rng.random((200, 30)), rng.random((20, 30)), rng.standard_normal(30)
    for bandwidth in (2.0, np.inf):
        model = line(bandwidth).fit(X, X @ slope)
        assert_allclose(model.predict(queries), queries @ slope, atol=1e-7)
        assert_allclose(model.predict_gradient(queries), [slope] * 20, rtol=1e-6)


def test_lines_within_thirty_principal_components_are_reproduced(rng):
    hidden, mix = rng.standard_normal((300, 30)), rng.standard_normal((30, 35))
    slope = rng.standard_normal(35)
    X, queries = hidden @ mix, rng.standard_normal((20, 30)) @ mix
    for bandwidth in (30.0, np.inf):
        model = line(bandwidth).fit(X, X @ slope)
        assert_allclose(model.predict(queries), queries @ slope, atol=1e-6)


def test_of_more_than_thirty_features_only_leading_components_have_slopes(rng):
    X = rng.standard_normal((400, 35)) * np.linspace(1.0, 3.0, 35)
    X[:, :20] += 0.3 * rng.standard_normal((400, 1))
    scaled = X / spread(X, np.ones(400))
    centered = scaled - scaled.mean(axis=0)
    _, axes = np.linalg.eigh(np.cov(centered.T))
    components = centered @ axes[:, ::-1]
    for position, is_reproduced in ((0, True), (29, True), (30, False), (34, False)):
        y = components[:, position]
        predicted = line(np.inf).fit(X, y).predict(X)
        assert_allclose(predicted, y if is_reproduced else np.zeros(400), atol=1e-6)


# ---------------------------------------------------------------------------------------------
# Rows of the smoother matrix


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("name", KERNEL_CASES)
def test_rows_of_the_smoother_matrix_give_the_predictions(name, degree, rng):
    X, y, queries = problem(rng)
    weights = rng.integers(1, 4, 120)
    keys = keys_of(X, y, 0.6, weights, kernel=name, degree=degree)
    request = keys.at(2.0 * queries)
    matrix, outside = smoother_matrix(request, Resources())
    smoothed = smooth(request, Resources())
    assert_allclose(matrix.sum(axis=1), 1.0, atol=1e-9)
    assert_allclose(matrix @ request.values, smoothed.mean, atol=1e-9)
    assert_array_equal(outside, smoothed.outside)
    if degree == 1:  # weights with which lines pass, and which are no means
        assert matrix.min() < -1e-3
        inner = ~outside & (np.abs(queries).max(axis=1) < 0.8)
        assert_allclose((matrix @ request.line.keys)[inner], request.line.queries[inner], atol=1e-7)


@pytest.mark.parametrize("adaptive", ["query", "key"])
def test_rows_of_adaptive_lines_give_the_predictions(adaptive, rng):
    X, y, queries = problem(rng)
    keys = keys_of(X, y, 1.0, adaptive=Adaptive(adaptive, 15))
    matrix, _ = smoother_matrix(keys.at(queries), Resources())
    assert_allclose(matrix.sum(axis=1), 1.0, atol=1e-10)
    assert_allclose(matrix @ keys.values, smooth(keys.at(queries), Resources()).mean, atol=1e-10)


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("name", KERNEL_CASES)
def test_leverage_is_the_diagonal(name, degree, rng):
    X, y = ascending(rng, 60, 2), rng.random(60)
    keys = keys_of(X, y, 1.0, rng.integers(1, 4, 60), kernel=name, degree=degree)
    matrix, _ = smoother_matrix(keys.at(X), Resources())
    leverage = smooth(keys.rows(), Resources()).leverage
    assert_allclose(leverage, np.diag(matrix), rtol=1e-9, atol=1e-12)
    # of least squares with positive weights, where no row is better fitted than by itself
    assert ((leverage > 0.0) & (leverage <= 1.0 + 1e-8)).all()


@pytest.mark.parametrize("adaptive", ["query", "key"])
def test_leverage_of_adaptive_lines_is_the_diagonal(adaptive, rng):
    X, y = ascending(rng, 60, 2), rng.random(60)
    keys = keys_of(X, y, 1.0, adaptive=Adaptive(adaptive, 9))
    matrix, _ = smoother_matrix(keys.rows(), Resources())
    leverage = smooth(keys.rows(), Resources()).leverage
    assert_allclose(leverage, np.diag(matrix), rtol=1e-9)


@pytest.mark.parametrize("degree", [0, 1])
def test_variances_are_those_of_independent_rows(degree, rng):
    X, y, queries = problem(rng)
    weights, variances = rng.integers(1, 5, 120), rng.random((120, 2))
    order = Table.canonical(X, y, weights.astype(float)).rows
    keys = keys_of(X, y, 0.7, weights, degree=degree)
    found = prediction_variance(keys.at(queries), Resources(), variances[order])
    repeated = [np.repeat(rows, weights, axis=0) for rows in (X, y, variances)]
    plain = NadarayaWatsonRegressor(0.7, degree=degree).fit(*repeated[:2])
    assert_allclose(found, plain.attention_weights(queries) ** 2 @ repeated[2], rtol=1e-8)


def test_variances_without_the_row_itself(rng):
    # of a multiplicity of three, two are left, which share its weight
    X, y = ascending(rng, 30, 1), rng.random(30)
    weights, variances = np.full(30, 3), rng.random((30, 1))
    keys = keys_of(X, y, 0.5, weights)
    found = prediction_variance(keys.leave_one_out(), Resources(), variances)
    for i in (0, 11, 29):
        counts = weights - (np.arange(30) == i)
        rest = [np.repeat(rows, counts, axis=0) for rows in (X, y, variances)]
        row = line(0.5).fit(*rest[:2]).attention_weights(X[i : i + 1])
        assert_allclose(found[i], (row**2 @ rest[2])[0], rtol=1e-8)


# ---------------------------------------------------------------------------------------------
# Leave-one-out


def left_out(X, y, fit, weights=None, groups=None):
    """Predictions of the rows by models fitted without them."""
    predictions = np.empty(len(y))
    for i in range(len(y)):
        counts = np.ones(len(y)) if weights is None else weights.astype(float)
        if groups is not None:
            counts[groups == groups[i]] = 0.0
        elif weights is not None and not (weights == np.round(weights)).all():
            counts[(X[i] == X).all(axis=1)] = 0.0
        else:
            counts[i] -= 1.0
        kept = counts > 0.0
        model = fit(X[kept], y[kept], sample_weight=counts[kept])
        predictions[i] = model.predict(X[i : i + 1])[0]
    return predictions


@pytest.mark.parametrize("kind", ["rows", "multiplicities", "importances", "groups"])
@pytest.mark.parametrize("name", ["gaussian", "student", "epanechnikov"])
@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("bandwidth", [0.3, 1.5])
def test_leave_one_out_is_a_refit_without_the_row(kind, name, degree, bandwidth, rng):
    X = np.round(rng.standard_normal((50, 2)), 0 if kind == "importances" else 8)
    y = np.sin(2.0 * X[:, 0]) + rng.standard_normal(50)
    weights = {"multiplicities": rng.integers(1, 4, 50), "importances": rng.random(50)}.get(kind)
    groups = rng.integers(0, 12, 50) if kind == "groups" else None
    model = NadarayaWatsonRegressor(bandwidth, kernel=name, degree=degree)
    predicted = model.fit(X, y, weights, groups).predict(None)
    expected = left_out(X, y, model.fit, weights, groups)
    assert_allclose(predicted, expected, rtol=0, atol=1e-6 * max(1.0, np.abs(expected).max()))


@pytest.mark.parametrize("kind", ["rows", "multiplicities"])
@pytest.mark.parametrize("adaptive", ["query", "key"])
@pytest.mark.parametrize("degree", [0, 1])
def test_adaptive_leave_one_out_is_a_refit_without_the_row(kind, adaptive, degree, rng):
    X = rng.standard_normal((50, 2))
    y = np.sin(2.0 * X[:, 0]) + rng.standard_normal(50)
    weights = rng.integers(1, 4, 50) if kind == "multiplicities" else None
    model = NadarayaWatsonRegressor(1.0, degree=degree, adaptive=adaptive, n_neighbors=12)
    predicted = model.fit(X, y, weights).predict(None)
    assert_allclose(predicted, left_out(X, y, model.fit, weights), atol=1e-8)


# ---------------------------------------------------------------------------------------------
# How it is computed does not matter


@pytest.mark.parametrize("adaptive", [None, Adaptive("query", 12), Adaptive("key", 12)])
def test_blocks_threads_and_the_order_of_queries_do_not_matter(adaptive, rng):
    X, y = rng.standard_normal((700, 3)), rng.standard_normal((700, 2))
    queries = 1.3 * rng.standard_normal((640, 3))
    keys = keys_of(X, y, 0.8, adaptive=adaptive)
    expected = smooth(keys.at(queries), Resources()).mean
    tolerance = 1e-9 * np.maximum(1.0, np.abs(expected))
    two = smooth(keys.at(queries), Resources(n_threads=2)).mean
    assert_array_equal(two, expected)
    small = smooth(keys.at(queries), Resources(block_bytes=1)).mean
    assert (np.abs(small - expected) <= tolerance).all()
    order = rng.permutation(640)
    shuffled = smooth(keys.at(queries[order]), Resources()).mean
    assert (np.abs(shuffled - expected[order]) <= tolerance[order]).all()
    for chosen in (slice(0, 1), slice(5, 12), slice(100, 300)):
        few = smooth(keys.at(queries[chosen]), Resources()).mean
        assert (np.abs(few - expected[chosen]) <= tolerance[chosen]).all()


@pytest.mark.parametrize("far", [1e5, 1e6])
def test_queries_of_two_places_at_once_are_as_precise_as_alone(far, rng):
    # the covariance about what the queries of a block have in common is lost in rounding
    near = np.sort(rng.random((200, 1)), axis=0)
    X = np.vstack([near, near + far])
    y = np.vstack([np.sin(4.0 * near), np.cos(4.0 * near)])
    queries = np.vstack([near[40:160:8] + 0.01, near[40:160:8] + far + 0.01])
    keys = keys_of(X, y, 0.1)
    both = keys.unit.restore(smooth(keys.at(queries), Resources()).mean, is_mean=False)
    attention, _ = reference_weights(
        queries / 0.1, X / 0.1, KERNELS["gaussian"], np.zeros(400), None
    )
    expected = np.array(
        [least_squares(w, X, y, q)[0] for w, q in zip(attention, queries, strict=True)]
    )
    assert_allclose(both, expected, atol=1e-12 * far)
    alone = [smooth(keys.at(query[None]), Resources()).mean[0] for query in queries]
    assert_allclose(both, keys.unit.restore(np.array(alone), is_mean=False), atol=1e-10)
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
    slopes = line(0.1).fit(X, y).predict_gradient(queries)[:, 0, 0]
    assert_allclose(slopes, np.repeat([3.0, -2.0], 20), rtol=1e-7)


def test_a_wide_plane_seen_from_far_keys_of_tiny_weight(rng):
    # keys of little weight far away must not take the digits of those nearby
    x = np.concatenate([np.linspace(0.0, 1.0, 101), [40.0]])
    model = line(1.0).fit(x[:, None], 1.0 + 2.0 * x)
    assert_allclose(model.predict([[0.5], [1.5], [-30.0]]), [2.0, 4.0, -59.0], rtol=1e-6)
