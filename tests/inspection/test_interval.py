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


def test_errors_name_value_rule_and_remedy():
    with pytest.raises(ValueError, match=r"intervals must have shape .*got \(3, 3\) and \(3,\)"):
        PredictionIntervalDisplay.from_predictions(TARGETS, np.ones((3, 3)))
    with pytest.raises(ValueError, match="order must be 'width' or 'middle'; got 'size'"):
        PredictionIntervalDisplay.from_predictions(TARGETS, INTERVALS, order="size")
