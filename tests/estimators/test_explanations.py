"""Gradients, and which training rows determine a prediction."""

import copy
import pickle
import sys

import numpy as np
import pandas as pd
import pytest
from definitions import attention_of, attention_weights, lines
from numpy.testing import assert_allclose, assert_array_equal

from skattn import NadarayaWatsonRegressor


def test_smoothed_out_feature_matters_linearly_at_degree_one(plane):
    X, y, queries = plane
    model = NadarayaWatsonRegressor([0.4, np.inf], degree=1).fit(X, y)
    attention, _ = attention_weights(attention_of(queries[:, :1] / 0.4, X[:, :1] / 0.4))
    values, slopes = lines(attention, X, y, queries)
    assert_allclose(model.predict(queries), values[:, 0], rtol=1e-9)
    assert_allclose(model.predict_gradient(queries), slopes[:, :, 0], rtol=1e-8)
    assert (np.abs(model.predict_gradient(queries)[:, 1]) > 1e-3).all()
    mean = NadarayaWatsonRegressor([0.4, np.inf]).fit(X, y)
    assert_array_equal(mean.predict_gradient(queries)[:, 1], 0.0)


def test_constant_features_have_no_slope_and_change_nothing(plane, configuration):
    X, y, queries = plane
    more, at = (np.insert(rows, 1, 1.7e9, axis=1) for rows in (X, queries))
    model = NadarayaWatsonRegressor([0.5, 1.0, 0.5], **configuration).fit(more, y)
    expected = NadarayaWatsonRegressor(0.5, **configuration).fit(X, y)
    if configuration.get("adaptive") != "key":  # whose weights have the number of features
        assert_allclose(model.predict(at), expected.predict(queries), rtol=1e-9)
        assert_allclose(
            model.predict_interval(at, 0.8), expected.predict_interval(queries, 0.8), rtol=1e-8
        )
    assert_allclose(model.predict_gradient(at)[:, 1], 0.0, atol=1e-12)
    model.set_params(bandwidth=[0.5, np.inf, 0.5]).fit(more, y)
    assert_array_equal(model.predict_gradient(at)[:, 1], 0.0)
    assert_allclose(model.predict(at), expected.predict(queries), rtol=1e-9)


def test_gradients_are_in_units_of_target_per_feature(plane, configuration):
    X, y, queries = plane
    units = np.array([2.0**10, 2.0**-7])
    expected = NadarayaWatsonRegressor(0.5, **configuration).fit(X, y).predict_gradient(queries)
    model = NadarayaWatsonRegressor(0.5 * units, **configuration).fit(X * units, 8.0 * y)
    found = model.predict_gradient(queries * units)
    assert_allclose(found, 8.0 * expected / units, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("copies", [1, 2], ids=["distinct", "tied"])
@pytest.mark.parametrize("kernel", ["gaussian", "epanechnikov"])
def test_gradient_far_from_all_rows_is_flat_at_degree_zero(plane, kernel, copies, rng):
    X, y, _ = plane
    X, y = np.repeat(X, copies, axis=0), np.repeat(y, copies)
    y += rng.standard_normal(len(y))
    model = NadarayaWatsonRegressor(0.1, kernel=kernel).fit(X, y)
    queries = np.geomspace(1e2, 1e12, 11)[:, None] * rng.standard_normal((11, 2))
    assert_allclose(model.predict_gradient(queries), 0.0, atol=1e-9)


@pytest.mark.parametrize("n_outputs", [None, 2])
def test_explanation_is_the_top_of_the_attention_weights(plane, configuration, n_outputs, rng):
    X, y, queries = plane
    y = y if n_outputs is None else np.column_stack([y, rng.standard_normal(40)])
    model = NadarayaWatsonRegressor([0.4, 0.7], **configuration).fit(X, y)
    for asked, where in ((queries, queries), (None, X)):
        told = model.explain(asked, top_k=4)
        top = model.attention_weights(asked, top_k=4)
        assert_array_equal(told.rows, top.indices.reshape(-1, 4))
        assert_allclose(told.weights, top.data.reshape(-1, 4), rtol=1e-12)
        assert_array_equal(told.targets, y[told.rows])
        differences = (X[told.rows] - where[:, None]) / [0.4, 0.7]
        assert_allclose(told.differences, differences, rtol=1e-12)
        assert_allclose(told.predictions, model.predict(asked), rtol=1e-12)
    assert (model.explain(None, top_k=40).rows[:, 0] != np.arange(40)).any()


def test_explanations_of_all_rows_sum_to_the_prediction(plane, configuration):
    X, y, queries = plane
    model = NadarayaWatsonRegressor(0.4, **configuration).fit(X, y)
    told = model.explain(queries, top_k=10**6)
    assert_array_equal(np.sort(told.rows), np.tile(np.arange(40), (9, 1)))
    assert_allclose((told.weights * told.targets).sum(axis=1), told.predictions, rtol=1e-9)
    assert (np.diff(np.abs(told.weights)) <= 0.0).all()


def test_places_without_a_row_are_marked():
    X, y = np.array([[0.0], [0.5], [9.0]]), np.array([1.0, 2.0, 5.0])
    told = NadarayaWatsonRegressor(1.0, kernel="uniform").fit(X, y).explain([[0.2], [9.0]], 2)
    assert_array_equal(told.rows, [[0, 1], [2, -1]])
    assert_array_equal(told.weights, [[0.5, 0.5], [1.0, 0.0]])
    assert_array_equal(told.targets, [[1.0, 2.0], [5.0, np.nan]])
    assert_array_equal(told.differences[:, :, 0], [[-0.2, 0.3], [0.0, np.nan]])
    frame = told.to_frame()
    assert_array_equal(frame["row"], [0, 1, 2])
    assert_array_equal(frame["query"], [0, 0, 1])
    assert frame.notna().all(axis=None)


def test_frames_have_a_line_for_each_query_and_row(plane):
    X, y, queries = plane
    named, at = (pd.DataFrame(rows, columns=["age", "dose"]) for rows in (X, queries))
    model = NadarayaWatsonRegressor([0.4, np.inf]).fit(named, pd.Series(y, name="cost"))
    told = model.explain(at, top_k=3)
    frame = told.to_frame()
    assert list(frame.columns) == [
        "query",
        "row",
        "weight",
        "target",
        "difference_age",
        "difference_dose",
    ]
    assert_array_equal(frame["query"], np.repeat(np.arange(9), 3))
    assert_array_equal(frame["row"], told.rows.ravel())
    assert_array_equal(frame["weight"], told.weights.ravel())
    assert_array_equal(frame["target"], y[told.rows.ravel()])
    assert_array_equal(frame["difference_age"], told.differences[:, :, 0].ravel())
    assert_array_equal(frame["difference_dose"], 0.0)
    unnamed = NadarayaWatsonRegressor(0.4).fit(X, np.column_stack([y, -y]))
    frame = unnamed.explain(queries, top_k=2).to_frame()
    assert list(frame.columns) == [
        "query",
        "row",
        "weight",
        "target_0",
        "target_1",
        "difference_x0",
        "difference_x1",
    ]
    assert_array_equal(frame["target_1"], -frame["target_0"])


def test_frames_need_pandas_and_say_so(wave, monkeypatch):
    told = NadarayaWatsonRegressor(0.1).fit(*wave).explain([[0.5]])
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        told.to_frame()
    assert told.rows.shape == (1, 5)


def test_explanations_are_pickled_and_copied(wave):
    told = NadarayaWatsonRegressor(0.1).fit(*wave).explain([[0.5], [0.9]], top_k=2)
    for duplicate in (pickle.loads(pickle.dumps(told)), copy.deepcopy(told)):
        assert duplicate.to_frame().equals(told.to_frame())
        assert set(duplicate) == set(told)
