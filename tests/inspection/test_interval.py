"""Intervals beside what came out."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skattn import NadarayaWatsonRegressor
from skattn.inspection import PredictionIntervalDisplay

TARGETS = np.array([0.5, 5.0, 2.9])
INTERVALS = np.array([[0.0, 1.0], [1.0, 4.0], [1.0, 3.0]])


def test_hits_and_misses_by_width(ax):
    display = PredictionIntervalDisplay.from_predictions(TARGETS, INTERVALS, coverage=0.9, ax=ax)
    ends = np.array(display.intervals_.get_segments())
    assert_array_equal(ends[:, :, 0], [[0, 0], [1, 1], [2, 2]])
    assert_allclose(ends[:, :, 1], [[-0.5, 0.5], [-1.0, 1.0], [-1.5, 1.5]])
    assert_allclose(display.hits_.get_xydata(), [[0, 0.0], [1, 0.9]])
    assert_allclose(display.misses_.get_xydata(), [[2, 2.5]])
    assert display.misses_.get_label() == "1 of 3 missed (coverage 66.7 %, asked for 90 %)"
    assert display.ax_ is ax
    assert len(ax.collections) == 1
    assert len(ax.lines) == 2


def test_intervals_where_they_are_by_middle():
    display = PredictionIntervalDisplay.from_predictions(TARGETS, INTERVALS, order="middle")
    assert_allclose(np.array(display.intervals_.get_segments())[:, :, 1], INTERVALS[[0, 2, 1]])
    assert_allclose(display.misses_.get_xydata(), [[2, 5.0]])


def test_intervals_of_an_estimator_and_coverage_of_all(rng):
    X = rng.uniform(size=(400, 1))
    y = np.column_stack([X[:, 0], np.sin(6.0 * X[:, 0])]) + 0.1 * rng.standard_normal((400, 2))
    model = NadarayaWatsonRegressor().fit(X[:100], y[:100])
    display = PredictionIntervalDisplay.from_estimator(
        model, X[100:], y[100:], coverage=0.8, local=True, target=1, max_rows=50
    )
    lower, upper = model.predict_interval(X[100:], 0.8, local=True)[:, :, 1].T
    assert_array_equal(display.lower, lower)
    covered = np.mean((lower <= y[100:, 1]) & (y[100:, 1] <= upper))
    assert f"coverage {100 * covered:.1f} %, asked for 80 %" in display.misses_.get_label()
    assert len(display.intervals_.get_segments()) == 50
    assert display.ax_.get_xlabel() == "query, by width of the interval (50 of 300 shown)"


def test_tensors_need_no_detaching():
    torch = pytest.importorskip("torch")
    intervals = torch.tensor(INTERVALS, requires_grad=True)
    display = PredictionIntervalDisplay.from_predictions(torch.tensor(TARGETS), intervals)
    assert_array_equal(display.upper, INTERVALS[:, 1])


def test_queries_without_an_interval_are_left_out_and_said(ax):
    bounds = np.vstack([INTERVALS, [[np.nan, np.nan], [np.nan, 1.0]]])
    display = PredictionIntervalDisplay.from_predictions(
        [*TARGETS, 1.0, 1.0], bounds, coverage=0.9, ax=ax
    )
    assert len(display.intervals_.get_segments()) == 3
    assert_allclose(display.misses_.get_xydata(), [[2, 2.5]])
    assert_allclose(display.hits_.get_xydata(), [[0, 0.0], [1, 0.9]])
    words = "1 of 3 missed (coverage 66.7 %, asked for 90 %),\n2 without interval left out"
    assert display.misses_.get_label() == words
    assert [text.get_text() for text in ax.get_legend().get_texts()][-1] == words
    assert ax.get_xlabel() == "query, by width of the interval"
    display.plot(order="middle", max_rows=2)
    assert display.misses_.get_label() == words
    assert display.ax_.get_xlabel() == "query, by middle of the interval (2 of 3 shown)"


def test_queries_outside_the_support_are_no_misses(wave):
    X, y = wave
    model = NadarayaWatsonRegressor(0.1, kernel="epanechnikov", extrapolation="nan").fit(X, y)
    with pytest.warns(UserWarning, match="1 of 2 queries have no training row"):
        display = PredictionIntervalDisplay.from_estimator(model, [[0.5], [5.0]], [0.1, 0.1])
    assert display.misses_.get_label().endswith("1 without interval left out")


def test_targets_that_are_not_known_are_refused():
    words = r"y must be known for every query; got NaN for 1 of 3.*Leave those queries out"
    for bounds in (INTERVALS, np.full((3, 2), np.nan)):
        with pytest.raises(ValueError, match=words):
            PredictionIntervalDisplay.from_predictions([0.5, np.nan, 2.9], bounds)
    lower, upper = INTERVALS.T
    targets = np.array([0.5, np.nan, 2.9])
    display = PredictionIntervalDisplay(targets=targets, lower=lower, upper=upper)
    with pytest.raises(ValueError, match=words):
        display.plot()


def test_some_query_must_have_an_interval():
    words = r"intervals must be known for one query at least; got NaN for all 3.*'nearest'"
    with pytest.raises(ValueError, match=words):
        PredictionIntervalDisplay.from_predictions(TARGETS, np.full((3, 2), np.nan))


def test_errors_name_value_rule_and_remedy():
    with pytest.raises(ValueError, match=r"intervals must have shape .*got \(3, 3\) and \(3,\)"):
        PredictionIntervalDisplay.from_predictions(TARGETS, np.ones((3, 3)))
    with pytest.raises(ValueError, match="order must be 'width' or 'middle'; got 'size'"):
        PredictionIntervalDisplay.from_predictions(TARGETS, INTERVALS, order="size")


def test_styles_may_use_short_names():
    display = PredictionIntervalDisplay.from_predictions(
        TARGETS, INTERVALS, hit_kwargs={"markersize": 3.0}, miss_kwargs={"ms": 10.0, "c": "C4"}
    )
    assert display.hits_.get_markersize() == 3.0
    assert display.misses_.get_markersize() == 10.0
    assert display.misses_.get_color() == "C4"
