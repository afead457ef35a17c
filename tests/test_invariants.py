"""Properties that hold for any data."""

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from skattn import NadarayaWatsonRegressor
from skattn.kernels import KERNELS

kernels = st.sampled_from(list(KERNELS))
seeds = st.integers(0, 2**32 - 1)
features = st.integers(1, 4)


def data(seed, d, n=25, m=8):
    """Rows with ties in X, targets, queries inside and outside the data."""
    rng = np.random.default_rng(seed)
    X = np.round(rng.standard_normal((n, d)), 1)
    return X, rng.standard_normal(n), 3.0 * rng.standard_normal((m, d))


def model(kernel, bandwidth=0.8, **parameters):
    return NadarayaWatsonRegressor(bandwidth, kernel=kernel, **parameters)


@given(kernels, seeds, features, st.integers(-30, 30), st.integers(-1000, 1000))
def test_units_and_origin_of_features_do_not_matter(kernel, seed, d, exponent, offset):
    X, y, queries = data(seed, d)
    X, queries = np.round(X * 8) / 8, np.round(queries * 8) / 8  # so that shifting is exact
    unit = 2.0**exponent
    expected = model(kernel, 0.75).fit(X, y).predict(queries)
    moved = (
        model(kernel, 0.75 * unit).fit((X + offset) * unit, y).predict((queries + offset) * unit)
    )
    assert_allclose(moved, expected, rtol=0, atol=1e-11)


@given(kernels, seeds, st.floats(0.0, 2 * np.pi))
def test_rotations_do_not_matter(kernel, seed, angle):
    assume(kernel != "uniform")  # rounding decides on the edge of its window
    X, y, queries = data(seed, 2)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    expected = model(kernel).fit(X, y)
    turned = model(kernel).fit(X @ turn, y)
    outside = expected.effective_neighbors(queries) < 1.0 + 1e-9  # nearest keys may be tied
    assert_allclose(
        turned.predict(queries @ turn)[~outside],
        expected.predict(queries)[~outside],
        rtol=0,
        atol=1e-9,
    )


@given(kernels, seeds, st.floats(-1e3, 1e3), st.floats(-1e3, 1e3))
def test_predictions_are_affine_in_the_targets(kernel, seed, a, b):
    X, y, queries = data(seed, 2)
    expected = a * model(kernel).fit(X, y).predict(queries) + b
    moved = model(kernel).fit(X, a * y + b).predict(queries)
    assert_allclose(moved, expected, rtol=1e-11, atol=1e-11)


@given(kernels, seeds, features)
def test_predictions_stay_in_the_range_of_the_targets(kernel, seed, d):
    X, y, queries = data(seed, d)
    fitted = model(kernel).fit(X, y)
    for predictions in (fitted.predict(queries), fitted.predict(None)):
        assert y.min() <= predictions.min()
        assert predictions.max() <= y.max()


@given(kernels, seeds, features)
def test_weights_are_the_prediction(kernel, seed, d):
    X, y, queries = data(seed, d)
    fitted = model(kernel).fit(X, y)
    for rows in (queries, None):
        weights = fitted.attention_weights(rows)
        assert (weights >= 0.0).all()
        assert_allclose(weights.sum(axis=1), 1.0, rtol=1e-12)
        assert_allclose(weights @ y, fitted.predict(rows), rtol=0, atol=1e-12)
        neighbors = fitted.effective_neighbors(rows)
        assert_allclose((weights**2).sum(axis=1) * neighbors, 1.0, rtol=1e-10)
        top = fitted.attention_weights(rows, top_k=len(y))
        assert_allclose(top.toarray(), weights, rtol=0, atol=1e-13)


@given(kernels, seeds, features)
def test_weight_two_is_the_row_twice_and_weight_zero_no_row(kernel, seed, d):
    X, y, queries = data(seed, d)
    weights = np.random.default_rng(seed).integers(0, 4, len(y))
    weights[0] = 2
    repeated = np.repeat(np.arange(len(y)), weights)
    for bandwidth in (0.8, "scott", "silverman"):
        weighted = model(kernel, bandwidth).fit(X, y, sample_weight=weights)
        expanded = model(kernel, bandwidth).fit(X[repeated], y[repeated])
        assert_allclose(weighted.bandwidth_, expanded.bandwidth_, rtol=1e-12)
        # the rules round the bandwidth, which can move a row across the edge of a window
        bandwidth = expanded.bandwidth_
        weighted = model(kernel, bandwidth).fit(X, y, sample_weight=weights)
        expanded = model(kernel, bandwidth).fit(X[repeated], y[repeated])
        assert_allclose(weighted.predict(queries), expanded.predict(queries), rtol=0, atol=1e-11)
        assert_allclose(
            weighted.predict(None)[repeated], expanded.predict(None), rtol=0, atol=1e-10
        )
        assert_allclose(weighted.effective_dof_, expanded.effective_dof_, rtol=1e-10)


@given(kernels, seeds, st.floats(1e-6, 1e6))
def test_scaling_importances_changes_nothing(kernel, seed, factor):
    X, y, queries = data(seed, 2)
    weights = 0.1 + np.random.default_rng(seed).random(len(y))
    assume(not np.all(weights * factor == np.floor(weights * factor)))
    one = model(kernel).fit(X, y, sample_weight=weights)
    other = model(kernel).fit(X, y, sample_weight=weights * factor)
    assert_allclose(other.predict(queries), one.predict(queries), rtol=0, atol=1e-11)
    assert_allclose(other.predict(None), one.predict(None), rtol=0, atol=1e-11)


@given(kernels, seeds, features)
def test_leave_one_out_is_fitting_without_the_row(kernel, seed, d):
    X, y, _ = data(seed, d)
    left_out = model(kernel).fit(X, y).predict(None)
    refits = [
        model(kernel).fit(np.delete(X, i, 0), np.delete(y, i)).predict(X[[i]])[0] for i in range(25)
    ]
    assert_allclose(left_out, refits, rtol=0, atol=1e-9)


@given(kernels, seeds)
def test_leave_one_out_follows_from_leverage(kernel, seed):
    X, y, _ = data(seed, 1)
    fitted = model(kernel).fit(X, y)
    leverage = fitted.leverage()
    usable = leverage < 0.5
    shortcut = (fitted.predict(X) - leverage * y)[usable] / (1.0 - leverage[usable])
    assert_allclose(fitted.predict(None)[usable], shortcut, rtol=0, atol=1e-10)
    assert_allclose(leverage, np.diag(fitted.attention_weights(X)), rtol=0, atol=1e-12)


@given(kernels, seeds, features)
def test_outputs_do_not_mix(kernel, seed, d):
    X, y, queries = data(seed, d)
    Y = np.column_stack([y, 1e6 * y**2, np.full_like(y, 3.0)])
    together = model(kernel).fit(X, Y).predict(queries)
    for output, column in zip(together.T, Y.T, strict=True):
        alone = model(kernel).fit(X, column).predict(queries)
        assert_allclose(output, alone, rtol=1e-12, atol=1e-12 * np.abs(column).max())
    assert_array_equal(together[:, 2], 3.0)


@given(kernels, seeds, features)
def test_wide_bandwidths_give_the_mean_and_narrow_ones_the_nearest(kernel, seed, d):
    X, y, queries = data(seed, d)
    weights = np.random.default_rng(seed).integers(1, 4, len(y))
    mean = np.average(y, weights=weights)
    for bandwidth in (1e9, np.inf):
        wide = model(kernel, bandwidth).fit(X, y, sample_weight=weights)
        assert_allclose(wide.predict(queries), mean, rtol=0, atol=1e-7)
    if kernel in ("student", "laplace"):  # their tails do not vanish relative to each other
        return
    distances = ((queries[:, None] - X) ** 2).sum(axis=2)
    nearest = distances <= distances.min(axis=1, keepdims=True) * (1 + 1e-9)
    expected = (nearest * weights) @ y / (nearest * weights).sum(axis=1)
    narrow = model(kernel, 1e-9).fit(X, y, sample_weight=weights)
    assert_allclose(narrow.predict(queries), expected, rtol=0, atol=1e-9)


@given(kernels, seeds, features)
def test_single_precision_is_close_to_double_far_from_the_origin(kernel, seed, d):
    X, y, queries = data(seed, d, m=40)
    X = np.float32(np.round(8 * X) / 8 + 1000.0)
    queries = np.float32(np.round(8 * queries) / 8 + 1000.0)
    single = model(kernel).fit(X, np.float32(y))
    double = model(kernel).fit(X.astype(float), np.float32(y).astype(float))
    predictions = single.predict(queries)
    assert predictions.dtype == np.float32
    assert_allclose(predictions, double.predict(queries.astype(float)), rtol=0, atol=1e-4)


@given(kernels, seeds, st.floats(-300, 300))
def test_any_finite_query_gets_a_finite_prediction(kernel, seed, exponent):
    X, y, queries = data(seed, 2)
    fitted = model(kernel).fit(X, y)
    with np.errstate(over="ignore"):
        far = np.clip(queries * 10.0**exponent, -1.7e308, 1.7e308)
    predictions = fitted.predict(far)
    assert np.isfinite(predictions).all()
    assert_allclose(predictions, [fitted.predict(row[None])[0] for row in far], atol=1e-9)
    assert np.isfinite(fitted.effective_neighbors(far)).all()


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_line_is_not_reproduced(kernel):
    # degree 0 flattens towards the edge of the data: what the docs warn of
    X = np.linspace(0.0, 1.0, 50)[:, None]
    predictions = model(kernel, 0.3).fit(X, X[:, 0]).predict([[0.0], [1.0]])
    assert predictions[0] > 0.01
    assert predictions[1] < 0.99


# Local lines, adaptive bandwidths, and what else is read off the weights

CONFIGURATIONS = {
    "means": {},
    "lines": {"degree": 1},
    "radii of queries": {"adaptive": "query", "n_neighbors": 4},
    "radii of keys": {"adaptive": "key", "n_neighbors": 4},
    "lines, radii of queries": {"degree": 1, "adaptive": "query", "n_neighbors": 6},
    "lines, radii of keys": {"degree": 1, "adaptive": "key", "n_neighbors": 6},
}
configurations = st.sampled_from(list(CONFIGURATIONS))
few = settings(max_examples=15)
# Edges of windows are decided by rounding, and with them, whether rows are enough for a line.
unbounded = st.sampled_from([name for name in KERNELS if np.isinf(KERNELS[name].support)])


def configured(configuration, kernel="gaussian", bandwidth=0.8, **parameters):
    parameters = CONFIGURATIONS[configuration] | parameters
    return NadarayaWatsonRegressor(bandwidth, kernel=kernel, **parameters)


def near(seed, d, n=25, m=6):
    """As data(), with queries no further out than lines are well determined."""
    X, y, queries = data(seed, d, n, m)
    return X, y, queries / 3.0


def inferred(fitted, X):
    """Everything but the leave-one-out predictions, in units of the targets, by name."""
    mean, std = fitted.predict(X, return_std=True)
    return {
        "mean": mean,
        "std": std,
        "local std": fitted.predict(X, return_std="local")[1],
        "interval": fitted.predict_interval(X, 0.7),
        "local interval": fitted.predict_interval(X, 0.7, local=True),
        "quantiles": fitted.predict_quantiles(X, [0.0, 0.25, 0.5, 1.0]),
    }


def assert_same(found, expected, rtol=1e-8, atol=1e-8):
    for name, result in found.items():
        assert_allclose(result, expected[name], rtol=rtol, atol=atol, err_msg=name)


@few
@given(configurations, unbounded, seeds, features, st.integers(-30, 30), st.integers(-1000, 1000))
def test_units_and_origin_do_not_matter_to_inference(
    configuration, kernel, seed, d, exponent, offset
):
    X, y, queries = near(seed, d)
    X, queries = np.round(X * 8) / 8, np.round(queries * 8) / 8  # so that shifting is exact
    unit = 2.0**exponent
    expected = configured(configuration, kernel, 0.75).fit(X, y)
    moved = configured(configuration, kernel, 0.75 * unit).fit((X + offset) * unit, y)
    assert_same(inferred(moved, (queries + offset) * unit), inferred(expected, queries))
    gradient = moved.predict_gradient((queries + offset) * unit) * unit
    assert_allclose(gradient, expected.predict_gradient(queries), rtol=1e-6, atol=1e-6)


@few
@given(configurations, kernels, seeds, st.floats(0.1, 1e3), st.floats(-1e3, 1e3), st.booleans())
def test_inference_is_affine_in_the_targets(configuration, kernel, seed, a, b, flipped):
    X, y, queries = near(seed, 2)
    expected = inferred(configured(configuration, kernel).fit(X, y), queries)
    sign = -1.0 if flipped else 1.0
    moved = inferred(configured(configuration, kernel).fit(X, sign * a * y + b), queries)
    if flipped:  # lower bounds are upper ones
        del moved["quantiles"]
        for name in ("interval", "local interval"):
            expected[name] = expected[name][:, ::-1]
    for name in moved:
        is_spread = name.endswith("std")
        values = a * expected[name] if is_spread else sign * a * expected[name] + b
        assert_allclose(moved[name], values, rtol=1e-8, atol=1e-8 * (a + abs(b)), err_msg=name)


@few
@given(configurations, kernels, seeds, features)
def test_order_of_rows_does_not_matter_to_inference(configuration, kernel, seed, d):
    X, y, queries = data(seed, d)
    order = np.random.default_rng(seed).permutation(25)
    weights = np.random.default_rng(seed + 1).integers(1, 3, 25)
    one = configured(configuration, kernel).fit(X, y, sample_weight=weights)
    other = configured(configuration, kernel).fit(X[order], y[order], sample_weight=weights[order])
    expected = inferred(one, queries)
    for name, result in inferred(other, queries).items():
        assert_array_equal(result, expected[name], err_msg=name)
    assert_array_equal(other.predict(None), one.predict(None)[order])
    assert_array_equal(other.attention_weights(queries), one.attention_weights(queries)[:, order])
    assert_array_equal(other.leverage(), one.leverage()[order])
    told, expected = other.explain(queries, 3), one.explain(queries, 3)
    assert_array_equal(told.weights, expected.weights)
    named = told.rows >= 0
    assert_array_equal(order[told.rows[named]], expected.rows[named])


@few
@given(configurations, unbounded, seeds, features)
def test_repetition_is_multiplicity_in_inference(configuration, kernel, seed, d):
    X, y, queries = near(seed, d)
    weights = np.random.default_rng(seed).integers(0, 4, 25)
    weights[:3] = 2
    repeated = np.repeat(np.arange(25), weights)
    weighted = configured(configuration, kernel).fit(X, y, sample_weight=weights)
    expanded = configured(configuration, kernel).fit(X[repeated], y[repeated])
    assert_same(inferred(weighted, queries), inferred(expanded, queries))
    assert_allclose(weighted.predict(None)[repeated], expanded.predict(None), atol=1e-8)
    assert_allclose(weighted.effective_dof_, expanded.effective_dof_, rtol=1e-8)
    assert_allclose(
        weighted.effective_neighbors(queries), expanded.effective_neighbors(queries), rtol=1e-8
    )
    summed = np.zeros((len(queries), 25))
    np.add.at(summed.T, repeated, expanded.attention_weights(queries).T)
    assert_allclose(weighted.attention_weights(queries), summed, atol=1e-9)


@few
@given(configurations, kernels, seeds, features, st.booleans())
def test_zero_weight_is_an_absent_row_in_inference(configuration, kernel, seed, d, whole):
    X, y, queries = data(seed, d)
    rng = np.random.default_rng(seed)
    absent = rng.random(25) < 0.3
    weights = np.where(absent, 0.0, rng.integers(1, 3, 25) if whole else 0.1 + rng.random(25))
    y[absent] = 1e6
    weighted = configured(configuration, kernel).fit(X, y, sample_weight=weights)
    without = configured(configuration, kernel)
    without.fit(X[~absent], y[~absent], sample_weight=weights[~absent])
    expected = inferred(without, queries)
    for name, result in inferred(weighted, queries).items():
        assert_array_equal(result, expected[name], err_msg=name)
    assert_array_equal(weighted.attention_weights(queries)[:, absent], 0.0)
    for asked in (queries, None):
        rows = weighted.explain(asked, 25).rows
        assert not np.isin(rows, np.flatnonzero(absent)).any()
    assert_array_equal(weighted.leverage()[absent], 0.0)


@few
@given(configurations, kernels, seeds, features)
def test_a_query_gets_the_same_alone_as_in_a_batch(configuration, kernel, seed, d):
    X, y, queries = data(seed, d)
    fitted = configured(configuration, kernel).fit(X, y)
    batch = inferred(fitted, queries)
    batch["gradient"] = fitted.predict_gradient(queries) if fitted.degree else batch["mean"]
    for i in (0, 7):
        alone = inferred(fitted, queries[i : i + 1])
        alone["gradient"] = (
            fitted.predict_gradient(queries[i : i + 1]) if fitted.degree else alone["mean"]
        )
        for name, result in alone.items():
            scale = np.abs(batch[name][i]).max()
            assert_allclose(
                result[0], batch[name][i], rtol=1e-8, atol=1e-8 * scale + 1e-12, err_msg=name
            )


@few
@given(configurations, kernels, seeds, features, st.floats(-3, 8))
def test_inference_is_finite_however_far_the_query(configuration, kernel, seed, d, exponent):
    X, y, queries = data(seed, d)
    fitted = configured(configuration, kernel).fit(X, y)
    far = np.vstack([queries * 10.0**exponent, np.full((1, d), 1e6 * 0.8)])
    for name, result in inferred(fitted, far).items():
        assert np.isfinite(result).all(), name
    if fitted.degree or kernel != "uniform":
        assert np.isfinite(fitted.predict_gradient(far)).all()
    told = fitted.explain(far, 2)
    assert np.isfinite(told.weights).all()
    assert np.isfinite(told.predictions).all()
    assert np.isfinite(fitted.effective_neighbors(far)).all()


@few
@given(configurations, kernels, seeds, features, st.lists(st.floats(0, 1), min_size=2, max_size=6))
def test_quantiles_grow_with_their_level(configuration, kernel, seed, d, levels):
    X, y, queries = data(seed, d)
    fitted = configured(configuration, kernel).fit(X, y)
    for asked in (queries, None):
        found = fitted.predict_quantiles(asked, np.sort(levels))
        assert (np.diff(found, axis=1) >= 0.0).all()
        if not fitted.degree:
            assert np.isin(found, y).all()
            ends = fitted.predict_quantiles(asked, [0.0, 1.0])
            mean = fitted.predict(asked)
            assert (ends[:, 0] <= mean + 1e-12).all()
            assert (mean <= ends[:, 1] + 1e-12).all()


@few
@given(configurations, kernels, seeds, features, st.booleans())
def test_intervals_are_ordered_and_nested(configuration, kernel, seed, d, local):
    X, y, queries = data(seed, d)
    y = np.column_stack([y, np.round(y)])
    fitted = configured(configuration, kernel).fit(X, y)
    inner = None
    for coverage in (0.55, 0.7, 0.8, 0.95):
        low, high = fitted.predict_interval(queries, coverage, local=local).swapaxes(0, 1)
        assert (low <= high).all()
        if inner is not None:
            slack = 1e-12 * (1.0 + np.abs(inner))
            assert (low <= inner[0] + slack[0]).all()
            assert (inner[1] <= high + slack[1]).all()
        inner = np.array([low, high])


@few
@example("lines", "gaussian", 256, 4)  # a query far out, whose keys differ in two directions only
@given(configurations, kernels, seeds, features)
def test_weights_are_the_prediction_of_any_configuration(configuration, kernel, seed, d):
    X, y, queries = data(seed, d)
    fitted = configured(configuration, kernel).fit(X, y)
    for rows in (queries, None):
        weights, predictions = fitted.attention_weights(rows), fitted.predict(rows)
        scale = np.abs(weights).sum(axis=1)
        assert (np.abs(weights.sum(axis=1) - 1.0) <= 1e-9 * scale).all()
        assert (np.abs(weights @ y - predictions) <= 1e-9 * scale).all()
        if not fitted.degree:
            assert (weights >= 0.0).all()
        top = fitted.attention_weights(rows, top_k=25).toarray()
        assert (np.abs(top - weights) <= 1e-9 * scale[:, None]).all()


@few
@given(kernels, seeds, features, st.sampled_from([None, "query", "key"]))
def test_lines_are_reproduced_where_rows_span_them(kernel, seed, d, adaptive):
    # with varying radii, a compact support may hold too few rows for a line
    assume(adaptive != "key" or np.isinf(KERNELS[kernel].support))
    X, _, queries = near(seed, d)
    slopes = np.random.default_rng(seed + 1).standard_normal(d)
    fitted = model(kernel, 6.0, degree=1, adaptive=adaptive, n_neighbors=20 if adaptive else None)
    fitted.fit(X, 2.0 + X @ slopes)
    assert_allclose(fitted.predict(queries), 2.0 + queries @ slopes, atol=1e-7)
    assert_allclose(fitted.predict_gradient(queries), np.tile(slopes, (6, 1)), atol=1e-5)


@few
@given(seeds, features, st.sampled_from([np.exp, np.arctan, lambda y: y**3]))
def test_quantiles_of_transformed_targets_are_transformed_quantiles(seed, d, transform):
    X, y, queries = data(seed, d)
    for configuration in ("means", "radii of queries", "radii of keys"):
        levels = [0.1, 0.5, 0.99]
        plain = configured(configuration).fit(X, y).predict_quantiles(queries, levels)
        moved = configured(configuration).fit(X, transform(y)).predict_quantiles(queries, levels)
        assert_array_equal(moved, transform(plain))
