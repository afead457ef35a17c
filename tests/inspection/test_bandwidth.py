"""The criterion against the bandwidth."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skattn import NadarayaWatsonRegressor, ParametricAttentionRegressor
from skattn.inspection import BandwidthDisplay


@pytest.mark.parametrize("criterion", ["loo", "gcv", "aicc"])
@pytest.mark.parametrize("degree", [0, 1])
def test_curves_are_the_estimators(wave, ax, criterion, degree):
    estimator = NadarayaWatsonRegressor(criterion, degree=degree)
    display = BandwidthDisplay.from_estimator(estimator, *wave, ax=ax)
    assert not hasattr(estimator, "bandwidth_")
    model = estimator.fit(*wave)
    bandwidths, values = display.line_.get_data()
    assert_allclose(bandwidths, np.geomspace(1 / 16, 16, 41) * model.bandwidth_)
    assert_allclose(values, model.criterion_curve(bandwidths, criterion))
    assert_allclose(display.fitted_line_.get_xdata()[0], model.bandwidth_[0])
    assert_allclose(display.minimum_.get_xydata(), [[model.bandwidth_[0], model.criterion_]])
    dof = NadarayaWatsonRegressor(bandwidths[5], degree=degree).fit(*wave).effective_dof_
    assert_allclose(display.dof_line_.get_ydata()[5], dof)
    assert display.ax_ is ax
    assert len(ax.lines) == 3
    assert ax.get_xlabel() == "bandwidth"


def test_several_features_share_a_multiple(rng):
    X = rng.uniform(size=(80, 3))
    y = np.sin(6.0 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(80)
    display = BandwidthDisplay.from_estimator(
        NadarayaWatsonRegressor(), X, y, multiples=[2.0, 0.5, 1.0], effective_dof=False
    )
    model = NadarayaWatsonRegressor().fit(X, y)
    assert np.isinf(model.bandwidth_[2])
    assert_array_equal(display.bandwidths, [0.5, 1.0, 2.0])
    assert_allclose(display.values[1], model.criterion_)
    assert display.dof_ax_ is None
    assert display.dof_line_ is None
    assert display.ax_.get_xlabel() == "multiple of the bandwidths"


def test_weights_and_groups_count(wave):
    X, y = wave
    groups = np.arange(len(X)) // 4
    estimator = NadarayaWatsonRegressor()
    display = BandwidthDisplay.from_estimator(
        estimator, X, y, sample_weight=1 + groups % 2, groups=groups
    )
    model = estimator.fit(X, y, sample_weight=1 + groups % 2, groups=groups)
    assert_allclose(display.values.min(), model.criterion_)
    assert_allclose(display.effective_dof[20], model.effective_dof_)


def test_a_given_bandwidth_is_judged_by_leave_one_out(wave):
    display = BandwidthDisplay.from_estimator(NadarayaWatsonRegressor(0.3), *wave)
    assert display.criterion == "loo"
    assert display.fitted == 0.3


def test_pipelines_are_fitted_up_to_the_regressor(wave):
    X, y = wave
    weights, groups = 1 + np.arange(len(X)) % 2, np.arange(len(X)) // 4
    pipeline = make_pipeline(StandardScaler(), NadarayaWatsonRegressor())
    display = BandwidthDisplay.from_estimator(pipeline, X, y, sample_weight=weights, groups=groups)
    assert not hasattr(pipeline[0], "scale_")
    expected = BandwidthDisplay.from_estimator(
        pipeline[-1], StandardScaler().fit_transform(X), y, sample_weight=weights, groups=groups
    )
    assert_array_equal(display.bandwidths, expected.bandwidths)
    assert_array_equal(display.values, expected.values)
    assert_array_equal(display.effective_dof, expected.effective_dof)
    alone = BandwidthDisplay.from_estimator(make_pipeline(NadarayaWatsonRegressor("gcv")), X, y)
    assert alone.criterion == "gcv"
    assert alone.fitted == NadarayaWatsonRegressor("gcv").fit(X, y).bandwidth_[0]


def test_a_fitted_search_stands_for_what_it_found(wave):
    pipeline = make_pipeline(StandardScaler(), NadarayaWatsonRegressor())
    search = GridSearchCV(pipeline, {"nadarayawatsonregressor__bandwidth": [0.1, 0.4]})
    with pytest.raises(TypeError, match=r"got GridSearchCV\. Pass .* fitted search"):
        BandwidthDisplay.from_estimator(search, *wave)
    search.fit(*wave)
    display = BandwidthDisplay.from_estimator(search, *wave, effective_dof=False)
    assert display.fitted == search.best_params_["nadarayawatsonregressor__bandwidth"]


@pytest.mark.parametrize("estimator", [ParametricAttentionRegressor(), LinearRegression()])
@pytest.mark.parametrize("wrap", [lambda it: it, lambda it: make_pipeline(StandardScaler(), it)])
def test_other_regressors_have_no_bandwidth_to_draw(wave, estimator, wrap):
    words = rf"estimator must have criterion_curve; got {type(estimator).__name__}\. Pass"
    with pytest.raises(TypeError, match=words + r" a NadarayaWatsonRegressor, or a pipeline"):
        BandwidthDisplay.from_estimator(wrap(estimator), *wave)


def test_the_minimum_is_seen_beside_far_larger_values():
    bandwidths, values = np.geomspace(0.1, 10.0, 5), np.array([np.inf, 1000.0, 1.0, 2.0, 3.0])
    display = BandwidthDisplay(bandwidths=bandwidths, values=values, fitted=1.0).plot()
    assert_array_equal(display.line_.get_ydata(), values)
    assert 3.0 < display.ax_.get_ylim()[1] < 20.0
    assert_array_equal(display.minimum_.get_xydata(), [[1.0, 1.0]])


def test_errors_name_value_rule_and_remedy(wave):
    X, y = wave
    with pytest.raises(ValueError, match=r"multiples must be positive finite numbers; got \[0"):
        BandwidthDisplay.from_estimator(NadarayaWatsonRegressor(), X, y, multiples=[0.0, 1.0])
    with pytest.raises(ValueError, match=r"got adaptive='query'. Use criterion_curve"):
        BandwidthDisplay.from_estimator(NadarayaWatsonRegressor(adaptive="query"), X, y)
    with pytest.raises(ValueError, match=r"bandwidth_ is infinite.*Give a finite"):
        BandwidthDisplay.from_estimator(NadarayaWatsonRegressor(np.inf), X, y)
    with pytest.raises(ValueError, match=r"criterion must be one of .* got 'bic'"):
        BandwidthDisplay.from_estimator(NadarayaWatsonRegressor(), X, y, criterion="bic")
