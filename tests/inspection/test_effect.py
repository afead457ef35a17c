"""Leaving a row out, against a refit without it."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skattn import NadarayaWatsonRegressor, ParametricAttentionRegressor
from skattn.inspection import leave_row_out_effect


def refitted(model, X, y, queries, **fit):
    """Differences to refits without each row, at the same bandwidths."""
    before, effects = model.predict(queries), []
    for row in range(len(X)):
        kept = np.arange(len(X)) != row
        weights = {name: values[kept] for name, values in fit.items()}
        same = NadarayaWatsonRegressor(
            model.bandwidth_, kernel=model.kernel, degree=getattr(model, "degree", 0)
        )
        effects.append(before - same.fit(X[kept], y[kept], **weights).predict(queries))
    return np.stack(effects, axis=1)


@pytest.mark.parametrize("kernel", ["gaussian", "epanechnikov"])
@pytest.mark.parametrize("degree", [0, 1])
def test_equals_a_refit_without_the_row(wave, kernel, degree):
    X, y = wave
    queries = [[0.0], [0.31], [0.9]]
    for targets in (y, np.column_stack([y, X[:, 0]])):
        model = NadarayaWatsonRegressor(0.08, kernel=kernel, degree=degree).fit(X, targets)
        expected = refitted(model, X, targets, queries)
        assert_allclose(leave_row_out_effect(model, queries), expected, atol=1e-6)


def test_formula_of_the_docstring(wave, rng):
    X, y = wave
    weights = rng.integers(0, 4, len(X))
    model = NadarayaWatsonRegressor(0.08).fit(X[::-1], y[::-1], sample_weight=weights)
    w, f = model.attention_weights([[0.4]])[0], model.predict([[0.4]])[0]
    effects = leave_row_out_effect(model, [[0.4]])[0]
    assert_allclose(effects, w * (y[::-1] - f) / (1.0 - w), atol=1e-12)
    assert_allclose(effects[weights == 0], 0.0, atol=1e-12)
    expected = refitted(model, X[::-1], y[::-1], [[0.4]], sample_weight=weights)
    assert_allclose(effects, expected[0], atol=1e-12)


def test_learned_metric_is_held(wave):
    pytest.importorskip("torch")
    X, y = wave
    model = ParametricAttentionRegressor("diagonal", degree=0).fit(X, y)
    expected = refitted(model.to_nadaraya_watson(), X, y, [[0.4]])
    assert_allclose(leave_row_out_effect(model, [[0.4]]), expected, atol=1e-9)
    lines = ParametricAttentionRegressor().fit(X, y)
    effects = leave_row_out_effect(lines, [[0.4]])[0]
    assert np.argmax(np.abs(effects)) in lines.explain([[0.4]]).rows


def test_chosen_rows_and_pipelines(wave):
    X, y = wave
    pipeline = make_pipeline(StandardScaler(), NadarayaWatsonRegressor(0.2)).fit(X, y)
    everything = leave_row_out_effect(pipeline, X[:3])
    rows = np.array([[5, -1], [0, 1], [2, 39]])
    effects = leave_row_out_effect(pipeline, X[:3], rows)
    expected = np.where(rows < 0, 0.0, np.take_along_axis(everything, rows, 1))
    assert_allclose(effects, expected, atol=1e-12)
    told = pipeline[-1].explain(pipeline[:-1].transform(X[:3])).rows
    assert leave_row_out_effect(pipeline, X[:3], told).shape == told.shape


def test_a_row_alone_in_the_support_leaves_the_nearest(wave):
    X, y = wave
    model = NadarayaWatsonRegressor(0.01, kernel="epanechnikov").fit(X, y)
    effects = leave_row_out_effect(model, [[0.001]])[0]
    assert_allclose(effects[0], y[0] - y[1])
    assert_array_equal(effects[1:], 0.0)


@pytest.mark.parametrize("adaptive", ["query", "key"])
def test_radii_are_held(wave, adaptive):
    X, y = wave
    model = NadarayaWatsonRegressor(1.0, adaptive=adaptive, n_neighbors=6).fit(X, y)
    w, f = model.attention_weights([[0.4]])[0], model.predict([[0.4]])[0]
    assert_allclose(leave_row_out_effect(model, [[0.4]])[0], w * (y - f) / (1 - w), atol=1e-12)


def test_single_precision_does_not_cancel(wave):
    X, y = (values.astype(np.float32) for values in wave)
    model = NadarayaWatsonRegressor(0.08).fit(X, y + np.float32(1e4))
    exact = NadarayaWatsonRegressor(0.08).fit(X.astype(float), y.astype(float) + 1e4)
    query = np.float32([[0.4]])
    expected = leave_row_out_effect(exact, query.astype(float))
    effects = leave_row_out_effect(model, query)
    assert effects.dtype == np.float32
    assert_allclose(effects, expected, atol=1e-3)


def test_weight_is_no_importance():
    X, y = [[0.0], [0.2], [1.0]], [1.0, 1.0, 4.0]
    model = NadarayaWatsonRegressor(1.0).fit(X, y)
    weights = model.attention_weights([[0.1]])[0]
    effects = np.abs(leave_row_out_effect(model, [[0.1]])[0])
    assert_array_equal(np.argmin(weights), np.argmax(effects))


def test_errors_name_value_rule_and_remedy(wave):
    model = NadarayaWatsonRegressor(0.1).fit(*wave)
    for rows in ([[40]], [[-2]], [[0.5]], [0], [[0], [1]]):
        with pytest.raises(ValueError, match=r"rows must be positions of the 40 .*\(1, n_rows\)"):
            leave_row_out_effect(model, [[0.4]], rows)
    with pytest.raises(
        TypeError, match=r"must have attention_weights; got LinearRegression\. Pass"
    ):
        leave_row_out_effect(LinearRegression().fit(*wave), [[0.4]])
    alone = NadarayaWatsonRegressor(1.0).fit([[0.0]], [1.0])
    with pytest.raises(ValueError, match=r"need another one.*n_samples=1.*Fit on more rows"):
        leave_row_out_effect(alone, [[0.4]])
