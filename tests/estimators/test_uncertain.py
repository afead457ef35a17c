"""Standard errors, quantiles and intervals of estimators."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from skattn import NadarayaWatsonRegressor


def test_standard_errors_at_infinite_bandwidth_are_those_of_least_squares(plane):
    X, y, queries = plane
    model = NadarayaWatsonRegressor(np.inf, degree=1).fit(X, y)
    _, std = model.predict(queries, return_std=True)
    design, at = (np.column_stack([np.ones(len(rows)), rows]) for rows in (X, queries))
    variance = np.mean((y - model.predict(None)) ** 2)  # PRESS / n
    inverse = np.linalg.inv(design.T @ design)
    assert_allclose(std, np.sqrt(variance * np.einsum("qi,ij,qj->q", at, inverse, at)), rtol=1e-9)


def test_standard_errors_are_read_off_the_smoother_matrix(plane, configuration):
    X, y, queries = plane
    model = NadarayaWatsonRegressor(0.4, **configuration).fit(X, y)
    rows = model.attention_weights(queries)
    squares = (y - model.predict(None)) ** 2
    mean, std = model.predict(queries, return_std=True)
    assert_array_equal(mean, model.predict(queries))
    assert_allclose(std, np.sqrt((rows**2).sum(axis=1) * squares.mean()), rtol=1e-9)


def test_local_standard_errors_weight_the_residuals_around_each_row(plane):
    X, y, queries = plane
    kernel_weights = NadarayaWatsonRegressor(0.4).fit(X, y).attention_weights(X)
    for degree in (0, 1):
        model = NadarayaWatsonRegressor(0.4, degree=degree).fit(X, y)
        variances = kernel_weights @ (y - model.predict(None)) ** 2
        _, std = model.predict(queries, return_std="local")
        expected = np.sqrt(model.attention_weights(queries) ** 2 @ variances)
        assert_allclose(std, expected, rtol=1e-9)


def test_standard_errors_are_the_spread_of_predictions_over_samples():
    X = np.linspace(0.0, 1.0, 60)[:, None]
    queries, noise = np.array([[0.0], [0.5]]), np.random.default_rng(0)
    for degree in (0, 1):
        model = NadarayaWatsonRegressor(0.2, degree=degree)
        predictions, errors = [], []
        for _ in range(200):
            mean, std = model.fit(X, noise.standard_normal(60)).predict(queries, return_std=True)
            predictions.append(mean)
            errors.append(std)
        assert_allclose(np.mean(errors, axis=0), np.std(predictions, axis=0), rtol=0.15)


def test_local_standard_errors_follow_the_noise():
    rng = np.random.default_rng(1)
    X = np.linspace(0.0, 1.0, 400)[:, None]
    y = np.where(X[:, 0] < 0.5, 0.1, 2.0) * rng.standard_normal(400)
    for degree in (0, 1):
        model = NadarayaWatsonRegressor(0.05, degree=degree).fit(X, y)
        _, alike = model.predict([[0.25], [0.75]], return_std=True)
        _, local = model.predict([[0.25], [0.75]], return_std="local")
        assert_allclose(alike[0], alike[1], rtol=1e-3)
        assert local[1] > 8.0 * local[0]


def test_leave_one_out_predictions_have_standard_errors(plane, configuration):
    X, y, _ = plane
    model = NadarayaWatsonRegressor(0.4, **configuration).fit(X, y)
    mean, std = model.predict(None, return_std=True)
    assert_array_equal(mean, model.predict(None))
    variance = np.mean((y - mean) ** 2)
    rows = model.attention_weights(None)
    assert_allclose(std, np.sqrt((rows**2).sum(axis=1) * variance), rtol=1e-9)


def test_quantile_levels_come_in_the_callers_order(plane, configuration):
    X, y, queries = plane
    model = NadarayaWatsonRegressor(0.4, **configuration).fit(X, y)
    ordered = model.predict_quantiles(queries, [0.1, 0.5, 0.9])
    assert_array_equal(model.predict_quantiles(queries, [0.9, 0.1, 0.5]), ordered[:, [2, 0, 1]])
    assert_array_equal(model.predict_quantiles(queries, 0.5), ordered[:, [1]])
    assert_array_equal(model.predict_quantiles(queries, np.float32(0.5)), ordered[:, [1]])
    both = NadarayaWatsonRegressor(0.4, **configuration).fit(X, np.column_stack([y, -y]))
    found = both.predict_quantiles(queries, [0.1, 0.5, 0.9])
    assert found.shape == (9, 3, 2)
    assert_allclose(found[..., 0], ordered, rtol=1e-12, atol=1e-12)


def test_left_out_quantiles_are_those_of_refits(plane):
    X, y, _ = plane
    model = NadarayaWatsonRegressor(0.4).fit(X, y)
    refits = [
        clone(model).fit(np.delete(X, i, 0), np.delete(y, i)).predict_quantiles(X[[i]], [0.2, 0.7])
        for i in range(40)
    ]
    assert_array_equal(model.predict_quantiles(None, [0.2, 0.7]), np.concatenate(refits))


@pytest.mark.parametrize("local", [False, True])
def test_intervals_hold_as_many_new_targets_as_promised(configuration, local):
    rng = np.random.default_rng(5)

    def draw(n):
        X = rng.uniform(-1.0, 1.0, (n, 1))
        return X, np.sin(3.0 * X[:, 0]) + (0.2 + (X[:, 0] > 0)) * rng.standard_normal(n)

    X, y = draw(300)
    queries, targets = draw(2000)
    model = NadarayaWatsonRegressor(0.2, **configuration).fit(X, y)
    for coverage in (0.6, 0.9):
        low, high = model.predict_interval(queries, coverage, local=local).T
        assert abs(np.mean((low <= targets) & (targets <= high)) - coverage) < 0.06


def test_local_intervals_are_wide_where_the_noise_is(configuration):
    rng = np.random.default_rng(2)
    X = rng.uniform(-1.0, 1.0, (300, 1))
    y = np.where(X[:, 0] < 0.0, 0.1, 1.0) * rng.standard_normal(300)
    model = NadarayaWatsonRegressor(0.2, **configuration).fit(X, y)
    quiet, noisy = np.diff(model.predict_interval([[-0.6], [0.6]], local=True))[:, 0]
    same, alike = np.diff(model.predict_interval([[-0.6], [0.6]]))[:, 0]
    assert noisy > 4.0 * quiet
    assert 0.6 < alike / same < 1.6


def test_intervals_of_groups_and_lines_are_wider_than_copies_suggest(rng):
    X = np.repeat(rng.uniform(0.0, 1.0, (40, 1)), 3, axis=0)
    y = np.repeat(rng.standard_normal(40), 3)
    groups = np.repeat(np.arange(40), 3)
    for degree in (0, 1):
        model = NadarayaWatsonRegressor(0.01, degree=degree)
        blind = np.diff(model.fit(X, y).predict_interval(X[:9]))
        told = np.diff(model.fit(X, y, groups=groups).predict_interval(X[:9]))
        assert (told > 2.0 * blind).all()


def test_all_rows_in_one_place_are_their_mean(configuration):
    X, y = np.full((12, 2), 4.0), np.arange(12.0)
    model = NadarayaWatsonRegressor(1.0, **configuration).fit(X, y)
    queries = [[4.0, 4.0], [5.0, 4.0], [1e7, -3.0]]
    mean, std = model.predict(queries, return_std=True)
    assert_allclose(mean, 5.5, rtol=1e-9)
    residuals = y - (66.0 - y) / 11.0
    assert_allclose(std, np.sqrt(np.mean(residuals**2) / 12.0), rtol=1e-7)
    assert_array_equal(model.predict_quantiles(queries, [0.0, 1.0])[:, 1] >= 5.5, True)
    assert np.isfinite(model.predict_interval(queries, 0.8)).all()
    assert_allclose(model.predict_gradient(queries), 0.0, atol=1e-8)
