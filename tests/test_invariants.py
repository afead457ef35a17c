"""Properties that hold for any data."""

import numpy as np
import pytest
from hypothesis import assume, given
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
