"""NadarayaWatsonRegressor, used as scikit-learn users do."""

import copy
import tracemalloc

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LinearRegression, RidgeCV
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    cross_val_predict,
    cross_val_score,
)
from sklearn.neighbors import KNeighborsRegressor, RadiusNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skattn import NadarayaWatsonRegressor
from skattn._smoother.local_linear import FLAT
from skattn.kernels import KERNELS

BANDWIDTHS = [0.5, 1.0, 2.0]
GRID = {"nadarayawatsonregressor__bandwidth": BANDWIDTHS}


@pytest.fixture(scope="module")
def diabetes():
    return load_diabetes(return_X_y=True)


def search(**parameters):
    pipeline = make_pipeline(StandardScaler(), NadarayaWatsonRegressor())
    return GridSearchCV(pipeline, GRID, **parameters)


def by_hand(X, y, queries, bandwidth, weights=None):
    squared = (((queries[:, None] - X) / bandwidth) ** 2).sum(axis=2)
    kernel = np.exp(-squared / 2) * (1.0 if weights is None else weights)
    return kernel @ y / kernel.sum(axis=1)


def test_grid_search_in_a_pipeline_finds_the_best_bandwidth(diabetes):
    X, y = diabetes
    fitted = search().fit(X, y)
    assert fitted.best_params_ == {"nadarayawatsonregressor__bandwidth": 1.0}
    scores = [
        cross_val_score(make_pipeline(StandardScaler(), NadarayaWatsonRegressor(h)), X, y).mean()
        for h in BANDWIDTHS
    ]
    assert_allclose(fitted.cv_results_["mean_test_score"], scores, rtol=1e-12)
    scaled = StandardScaler().fit_transform(X)
    assert_allclose(fitted.predict(X[:7]), by_hand(scaled, y, scaled[:7], 1.0), rtol=1e-12)


def test_diabetes_errors_are_between_those_of_ridge_and_of_the_mean(diabetes):
    X, y = diabetes
    attention = cross_val_score(search(), X, y).mean()
    neighbors = cross_val_score(
        make_pipeline(StandardScaler(), KNeighborsRegressor(20)), X, y
    ).mean()
    ridge = cross_val_score(make_pipeline(StandardScaler(), RidgeCV()), X, y).mean()
    assert 0.4 < attention < ridge
    assert abs(attention - neighbors) < 0.05


def test_two_jobs_give_the_scores_of_one(diabetes):
    X, y = diabetes
    one, two = search().fit(X, y), search(n_jobs=2).fit(X, y)
    assert_array_equal(one.cv_results_["mean_test_score"], two.cv_results_["mean_test_score"])
    X, y = X[:100, :3], y[:100]
    assert_array_equal(
        cross_val_score(NadarayaWatsonRegressor(n_jobs=2), X, y, n_jobs=2),
        cross_val_score(NadarayaWatsonRegressor(), X, y),
    )


def test_sample_weights_are_routed_to_fit_and_score(diabetes, rng):
    X, y = diabetes
    weights = rng.integers(0, 3, len(y)).astype(float)
    grid = {"bandwidth": [0.02, 0.05, 0.1]}
    with sklearn.config_context(enable_metadata_routing=True):
        regressor = NadarayaWatsonRegressor().set_fit_request(sample_weight=True)
        regressor.set_score_request(sample_weight=True)
        routed = GridSearchCV(regressor, grid, cv=2).fit(X, y, sample_weight=weights)
    repeated = np.repeat(np.arange(len(y)), weights.astype(int))
    groups = np.repeat(np.arange(len(y)) < len(y) // 2, weights.astype(int))
    plain = GridSearchCV(NadarayaWatsonRegressor(), grid, cv=GroupKFold(2))
    plain.fit(X[repeated], y[repeated], groups=groups)
    scores, expected = (
        np.sort([s.cv_results_[f"split{i}_test_score"] for i in range(2)], axis=0)
        for s in (routed, plain)
    )
    assert_allclose(scores, expected, rtol=1e-10)
    assert_allclose(routed.predict(X), plain.predict(X), rtol=1e-10)


def test_sample_weights_are_routed_through_a_pipeline(diabetes, rng):
    X, y = diabetes
    weights = rng.integers(0, 3, len(y)).astype(float)
    with sklearn.config_context(enable_metadata_routing=True):
        regressor = NadarayaWatsonRegressor(1.0).set_fit_request(sample_weight=True)
        scaler = StandardScaler().set_fit_request(sample_weight=True)
        routed = make_pipeline(scaler, regressor).fit(X, y, sample_weight=weights)
    repeated = np.repeat(np.arange(len(y)), weights.astype(int))
    plain = make_pipeline(StandardScaler(), NadarayaWatsonRegressor(1.0))
    plain.fit(X[repeated], y[repeated])
    assert_allclose(routed.predict(X), plain.predict(X), rtol=1e-10)


def test_frames_are_taken_by_position_and_their_names_remembered(diabetes):
    X, y = diabetes
    names = [f"measurement {i}" for i in range(10)]
    expected = NadarayaWatsonRegressor().fit(X, y).predict(X[:5])
    pandas = pd.DataFrame(X, columns=names, index=np.arange(442)[::-1])
    polars = pl.DataFrame(X, schema=names)
    for frame, target in ((pandas, pd.Series(y)), (polars, pl.Series(y))):
        model = NadarayaWatsonRegressor().fit(frame, target)
        assert_array_equal(model.feature_names_in_, names)
        assert_array_equal(model.predict(frame[:5]), expected)
        assert search().fit(frame, target).best_params_ == search().fit(X, y).best_params_
        with pytest.raises(ValueError, match="feature names"):
            model.predict(frame[names[::-1]])


def test_scotts_rule_is_in_the_units_of_each_feature(diabetes):
    X, y = diabetes
    quartiles = np.quantile(X, [0.25, 0.75], axis=0, method="inverted_cdf")
    spread = np.minimum(X.std(axis=0, ddof=1), (quartiles[1] - quartiles[0]) / 1.349)
    spread = np.where(quartiles[1] > quartiles[0], spread, X.std(axis=0, ddof=1))
    expected = 1.06 * spread * len(X) ** (-1 / 14)
    assert_allclose(NadarayaWatsonRegressor("scott").fit(X, y).bandwidth_, expected, rtol=1e-12)


def test_leave_one_out_predictions_come_in_the_order_of_the_rows(rng):
    X, y = rng.standard_normal((30, 2)), rng.standard_normal(30)
    weights = rng.integers(0, 3, 30)
    model = NadarayaWatsonRegressor(0.5).fit(X, y, sample_weight=weights)
    expected = [
        by_hand(X, y, X[[i]], 0.5, np.maximum(weights - (np.arange(30) == i), 0))[0]
        for i in range(30)
    ]
    assert_allclose(model.predict(None), expected, rtol=1e-11)
    shares = model.attention_weights(None)
    assert_array_equal(shares[:, weights == 0], 0.0)
    assert_array_equal(np.diag(shares)[weights == 1], 0.0)
    assert (np.diag(shares)[weights == 2] > 0.0).all()


def test_importances_leave_out_all_rows_of_the_same_features():
    X, y = [[0.0], [1.0], [1.0], [2.0]], [0.0, 10.0, 20.0, 5.0]
    model = NadarayaWatsonRegressor(1.0).fit(X, y, sample_weight=[0.5, 1.5, 0.5, 0.5])
    assert_allclose(model.predict(None)[[1, 2]], 2.5)  # of the rows at 0 and 2 alone


def test_top_weights_are_those_of_the_full_matrix(diabetes):
    X, y = diabetes
    model = NadarayaWatsonRegressor(0.05).fit(X, y)
    full, top = model.attention_weights(X[:20]), model.attention_weights(X[:20], top_k=4)
    assert isinstance(top, csr_array)
    assert_array_equal(np.diff(top.indptr), 4)
    order = np.argsort(-full, axis=1, kind="stable")[:, :4]
    assert_array_equal(top.indices.reshape(20, 4), order)
    assert_allclose(top.data.reshape(20, 4), np.take_along_axis(full, order, 1), rtol=1e-12)
    left_out = model.attention_weights(None, top_k=1)
    assert (left_out.indices != np.arange(442)).all()


@pytest.mark.parametrize("degree", [0, 1])
def test_effective_dof_is_the_trace_of_the_smoother_matrix(degree, diabetes):
    X, y = diabetes
    model = NadarayaWatsonRegressor(0.05, degree=degree).fit(X, y)
    diagonal = np.diag(model.attention_weights(X))
    assert_allclose(model.leverage(), diagonal, rtol=1e-9)
    assert_allclose(model.effective_dof_, diagonal.sum(), rtol=1e-9)


def test_displays_do_not_compute_the_trace(diabetes, monkeypatch):
    model = NadarayaWatsonRegressor().fit(*diabetes)
    monkeypatch.setattr(NadarayaWatsonRegressor, "leverage", lambda self: pytest.fail("computed"))
    assert "NadarayaWatsonRegressor" in model._repr_html_()


def test_results_are_single_precision_only_when_all_data_are(rng):
    X, y = rng.standard_normal((50, 2)), rng.standard_normal(50)
    X32, y32 = np.float32(X), np.float32(y)
    assert NadarayaWatsonRegressor().fit(X32, y32).predict(X32).dtype == np.float32
    assert NadarayaWatsonRegressor().fit(X32, y32).predict(None).dtype == np.float32
    for rows, targets, queries in (
        (X, y32, X32),
        (X32, y, X32),
        (X32, y32, X),
        (X32, [1] * 50, X32),
    ):
        model = NadarayaWatsonRegressor().fit(rows, targets)
        assert model.predict(queries).dtype == np.float64


def test_callers_arrays_are_not_written_to(rng):
    X, y, weights = rng.standard_normal((40, 2)), rng.standard_normal(40), np.ones(40)
    copies = X.copy(), y.copy(), weights.copy()
    model = NadarayaWatsonRegressor(kernel="tricube").fit(X, y, sample_weight=weights)
    model.predict(X)
    model.attention_weights(X, top_k=2)
    for array, original in zip((X, y, weights), copies, strict=True):
        assert_array_equal(array, original)
    X[:], y[:] = 0.0, 0.0  # nor does the model hold on to them
    assert_array_equal(model.predict(copies[0]), model.fit(*copies[:2]).predict(copies[0]))


@pytest.mark.parametrize("kernel", KERNELS)
def test_rules_of_thumb_give_every_kernel_about_the_same_fit(kernel, wave):
    X, y = wave
    gaussian = NadarayaWatsonRegressor("scott").fit(X, y)
    other = NadarayaWatsonRegressor("scott", kernel=kernel).fit(X, y)
    assert 0.5 < other.effective_dof_ / gaussian.effective_dof_ < 2.0
    assert np.abs(other.predict(X) - gaussian.predict(X)).max() < 0.5 * y.std()


@pytest.mark.parametrize(
    "what", ["predict", "neighbors", "top weights", "tied top weights", "far", "selection"]
)
def test_memory_stays_at_blocks_of_the_matrix(what, rng):
    # the matrix of weights would take 128 MB
    X, y = rng.standard_normal((4000, 3)), rng.standard_normal(4000)
    model = NadarayaWatsonRegressor(0.5).fit(X, y)
    ties = NadarayaWatsonRegressor(np.inf).fit(X, y)
    narrow = NadarayaWatsonRegressor(0.01, kernel="biweight").fit(X, y)
    calls = {
        "predict": lambda: model.predict(X),
        "neighbors": lambda: model.effective_neighbors(X),
        "top weights": lambda: model.attention_weights(X, top_k=5),
        "tied top weights": lambda: ties.attention_weights(X, top_k=5),
        "far": lambda: narrow.predict(X + 5.0),
        "selection": lambda: NadarayaWatsonRegressor(anisotropic=False, max_queries=100).fit(X, y),
    }
    tracemalloc.start()
    try:
        calls[what]()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 16e6


# Local lines


def test_infinite_bandwidths_at_degree_one_are_linear_regression(plane, rng):
    X, y, queries = plane
    weights = rng.random(40)
    model = NadarayaWatsonRegressor(np.inf, degree=1).fit(X, y, sample_weight=weights)
    ols = LinearRegression().fit(X, y, sample_weight=weights)
    assert_allclose(model.predict(queries), ols.predict(queries), rtol=1e-9)
    assert_allclose(model.predict_gradient(queries), np.tile(ols.coef_, (9, 1)), rtol=1e-9)
    assert_allclose(model.effective_dof_, 3.0, rtol=1e-9)


def test_single_key_in_the_support_is_its_target_at_degree_one():
    X, y = np.array([[0.0], [1.0], [2.0]]), np.array([5.0, -1.0, 4.0])
    for kernel in ("epanechnikov", "gaussian"):
        model = NadarayaWatsonRegressor(1e-3, kernel=kernel, degree=1).fit(X, y)
        assert_allclose(model.predict([[0.0002], [1.0], [50.0]]), [5.0, -1.0, 4.0], rtol=1e-9)
        assert_array_equal(model.predict_gradient([[1.0]]), [[0.0]])


def test_lines_with_fewer_rows_than_features_go_through_the_rows(rng):
    X, y = rng.standard_normal((4, 9)), rng.standard_normal(4)
    model = NadarayaWatsonRegressor(3.0, degree=1).fit(X, y)
    assert_allclose(model.predict(X), y, rtol=1e-7)
    assert np.isfinite(model.predict(10.0 * X)).all()
    assert_allclose(model.effective_dof_, 4.0, rtol=1e-7)


@pytest.mark.parametrize(("d", "bandwidth"), [(1, 0.05), (2, 0.3), (4, 0.3), (6, 0.3)])
def test_weights_of_lines_are_exact_where_few_rows_matter(d, bandwidth, rng):
    # covariances are nearly singular there, and arms long
    X, y, queries = (rng.standard_normal(shape) for shape in ((100, d), 100, (60, d)))
    queries *= 2.0
    model = NadarayaWatsonRegressor(bandwidth, degree=1).fit(X, y)
    weights = model.attention_weights(queries)
    scale = np.abs(weights).sum(axis=1)
    assert (np.abs(weights.sum(axis=1) - 1.0) / scale).max() < 1e-9
    # rounding is multiplied by 1 / FLAT at most: see skattn/smoother/_lines.py
    assert (np.abs(weights @ y - model.predict(queries)) / scale).max() < 2e-16 / FLAT
    std = model.predict(queries, return_std=True)[1]
    alone = [model.predict(query[None], return_std=True)[1][0] for query in queries]
    if d <= 4:  # in more dimensions, the lines themselves are sensitive to the last digit
        assert_allclose(std, alone, rtol=1e-6)


@pytest.mark.parametrize("name", ["loo", "gcv", "aicc"])
@pytest.mark.parametrize("adaptive", [None, "query", "key"])
@pytest.mark.parametrize("degree", [0, 1])
def test_criterion_is_that_of_the_fitted_model(name, adaptive, degree, wave):
    X, y = wave
    model = NadarayaWatsonRegressor(name, degree=degree, adaptive=adaptive).fit(X, y)
    trace, residuals = model.effective_dof_, y - model.predict(X)
    if adaptive is not None:  # a row is not its own neighbor; as a query, it is
        number = model.n_neighbors_
        assert 1 <= number <= 39
        at = [number] if number == 39 else [number, number + 1]
        curve = model.criterion_curve(at, criterion=name)
    else:
        curve = model.criterion_curve(model.bandwidth_, criterion=name)
    assert_allclose(curve[0], model.criterion_, rtol=1e-9)
    if name == "loo":
        assert_allclose(model.criterion_, np.mean((y - model.predict(None)) ** 2), rtol=1e-9)
    elif adaptive is None and name == "gcv":
        assert_allclose(model.criterion_, np.mean(residuals**2) / (1 - trace / 40) ** 2, rtol=1e-8)
    elif adaptive is None:
        penalty = (1 + trace / 40) / (1 - (trace + 2) / 40)
        assert_allclose(model.criterion_, np.log(np.mean(residuals**2)) + penalty, rtol=1e-8)


def test_local_lines_have_less_bias_at_the_boundary_than_means():
    X = np.linspace(0.0, 1.0, 100)[:, None]
    y = np.exp(X[:, 0])
    errors = [
        np.abs(NadarayaWatsonRegressor(0.1, degree=degree).fit(X, y).predict([[0.0]]) - 1.0)[0]
        for degree in (0, 1)
    ]
    assert errors[1] < 0.1 * errors[0]


# Adaptive bandwidths


def squared_distances(queries, X, bandwidth):
    return (((queries[:, None] - X) / bandwidth) ** 2).sum(axis=2)


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("kernel", ["gaussian", "epanechnikov", "student"])
def test_radius_of_a_query_reaches_its_nth_neighbor(plane, kernel, degree):
    X, y, queries = plane
    relative = np.array([1.0, 2.0])
    model = NadarayaWatsonRegressor(
        relative, kernel=kernel, degree=degree, adaptive="query", n_neighbors=6
    ).fit(X, y)
    radii = np.sort(np.sqrt(squared_distances(queries, X, relative)), axis=1)[:, 5]
    fixed = [
        NadarayaWatsonRegressor(relative * radius, kernel=kernel, degree=degree).fit(X, y)
        for radius in radii
    ]
    for method in ("predict", "attention_weights", "effective_neighbors"):
        expected = [getattr(one, method)(q[None])[0] for one, q in zip(fixed, queries, strict=True)]
        assert_allclose(getattr(model, method)(queries), expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("kernel", ["gaussian", "student"])
def test_radii_of_keys_are_distances_to_their_nth_neighbors(plane, kernel):
    X, y, queries = plane
    model = NadarayaWatsonRegressor(0.5, kernel=kernel, adaptive="key", n_neighbors=6).fit(X, y)
    distances = np.sqrt(squared_distances(X, X, 0.5))
    radii = np.sort(distances, axis=1)[:, 6]  # the first is the row itself
    squared = squared_distances(queries, X, 0.5) / radii**2
    kernels = {"gaussian": lambda u2: np.exp(-0.5 * u2), "student": lambda u2: (1 + u2 / 7.0) ** -4}
    weights = kernels[kernel](squared) / radii**2
    weights /= weights.sum(axis=1, keepdims=True)
    assert_allclose(model.attention_weights(queries), weights, rtol=1e-9, atol=1e-15)
    assert_allclose(model.predict(queries), weights @ y, rtol=1e-9)


def test_one_number_of_neighbors_is_only_a_scale_of_the_bandwidth(plane, configuration):
    X, y, queries = plane
    if "adaptive" not in configuration:
        return
    one = NadarayaWatsonRegressor(1.0, **configuration).fit(X, y)
    other = NadarayaWatsonRegressor(1024.0, **configuration).fit(X, y)
    assert_allclose(other.predict(queries), one.predict(queries), rtol=1e-9)
    assert_allclose(other.predict(None), one.predict(None), rtol=1e-9)


@pytest.mark.parametrize("adaptive", ["query", "key"])
@pytest.mark.parametrize("degree", [0, 1])
def test_all_other_rows_may_be_neighbors(wave, adaptive, degree):
    X, y = wave
    model = NadarayaWatsonRegressor(1.0, adaptive=adaptive, n_neighbors=39, degree=degree)
    weights = model.fit(X, y).attention_weights(X)
    assert_allclose(weights.sum(axis=1), 1.0, rtol=1e-10)
    assert model.n_neighbors_ == 39
    assert np.isfinite(model.predict(None)).all()


@pytest.mark.parametrize("adaptive", ["query", "key"])
@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.filterwarnings("ignore:.*copies of others")
def test_ties_and_copies_do_not_make_a_radius_of_zero(adaptive, degree):
    X = np.repeat([0.0, 1.0, 3.0], [5, 1, 4])[:, None]
    y = np.arange(10.0)
    model = NadarayaWatsonRegressor(1.0, adaptive=adaptive, n_neighbors=2, degree=degree).fit(X, y)
    for queries in (X, [[0.5], [2.0], [1e9]], None):
        assert np.isfinite(model.predict(queries)).all()
    for n_neighbors in (None, 1):
        model.set_params(n_neighbors=n_neighbors, bandwidth="loo").fit(X, y)
        assert np.isfinite(model.predict(X)).all()


@pytest.mark.parametrize("adaptive", ["query", "key"])
def test_the_criterion_is_that_of_what_is_fitted_where_features_are_smoothed_out(adaptive, rng):
    X = rng.uniform(size=(60, 2))
    y = np.sin(6.0 * X[:, 0]) + 0.1 * rng.standard_normal(60)
    model = NadarayaWatsonRegressor([0.3, np.inf], adaptive=adaptive, n_neighbors=5).fit(X, y)
    error = np.mean((y - model.predict(None)) ** 2)
    assert_allclose(model.criterion_curve([5]), error, rtol=1e-10)


def test_rows_of_no_weight_leave_nothing_out(rng):
    X, y = rng.uniform(size=(40, 1)), rng.standard_normal(40)
    weights = rng.integers(0, 2, 40)
    model = NadarayaWatsonRegressor(0.1, adaptive="key", n_neighbors=4)
    model.fit(X, y, sample_weight=weights)
    absent = weights == 0
    assert_allclose(model.predict(None)[absent], model.predict(X[absent]), rtol=1e-12)


def test_importances_stay_importances_when_copies_are_merged(rng):
    x, y = rng.uniform(size=20), rng.standard_normal((2, 20))
    X, targets = np.tile(x, 4)[:, None], np.tile(y.ravel(), 2)
    curves = [
        NadarayaWatsonRegressor(0.2).fit(X, targets, sample_weight=w).criterion_curve([0.2])
        for w in (np.full(80, 0.5), np.full(80, 0.55))
    ]
    assert_allclose(curves[0], curves[1], rtol=1e-12)


# Fitting again, and in searches


def test_refit_forgets_what_was_selected(wave):
    X, y = wave
    model = NadarayaWatsonRegressor(adaptive="query").fit(X, y)
    assert 1 <= model.n_neighbors_ < 40
    assert model.criterion_ > 0.0
    model.set_params(adaptive=None, bandwidth=0.3).fit(X, y)
    assert not hasattr(model, "n_neighbors_")
    assert not hasattr(model, "criterion_")
    fresh = NadarayaWatsonRegressor(0.3).fit(X, y)
    assert_array_equal(model.predict(X), fresh.predict(X))
    assert set(vars(model)) == set(vars(fresh))
    model.set_params(adaptive="key", n_neighbors=4).fit(X, y)
    assert model.n_neighbors_ == 4
    assert not hasattr(model, "criterion_")


def test_fitting_leaves_every_parameter_alone(wave):
    X, y = wave
    relative = np.array([2.0])
    model = NadarayaWatsonRegressor(relative, degree=1, adaptive="query", kernel="tricube")
    before = copy.deepcopy(model.get_params())
    model.fit(X, y)
    model.bandwidth_[:] = -1.0  # the caller's array is not what is stored
    assert model.get_params() == before
    assert model.bandwidth is relative
    assert model.n_neighbors is None


def test_grid_search_over_the_degree_prefers_lines_for_a_linear_target(rng):
    X = rng.uniform(0.0, 1.0, (80, 2))
    y = X @ [3.0, -2.0] + 0.05 * rng.standard_normal(80)
    degrees = {"nadarayawatsonregressor__degree": [0, 1]}
    adaptive = {
        "nadarayawatsonregressor__adaptive": ["query"],
        "nadarayawatsonregressor__n_neighbors": [20],
    }
    pipeline = make_pipeline(StandardScaler(), NadarayaWatsonRegressor(1.0))
    search = GridSearchCV(pipeline, [degrees, degrees | adaptive], cv=3).fit(X, y)
    assert search.best_params_["nadarayawatsonregressor__degree"] == 1
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_cross_validated_predictions_are_those_of_the_folds(plane, configuration):
    X, y, _ = plane
    model = NadarayaWatsonRegressor(0.4, **configuration)
    folds = KFold(4, shuffle=True, random_state=0)
    predicted = cross_val_predict(model, X, y, cv=folds)
    for train, test in folds.split(X):
        alone = clone(model).fit(X[train], y[train])
        assert_array_equal(predicted[test], alone.predict(X[test]))
    assert np.isfinite(cross_val_score(model, X, y, cv=folds)).all()


def test_uniform_window_is_radius_neighbors(rng):
    X, y = rng.random((200, 2)), rng.random(200)
    queries = rng.random((100, 2))
    ours = NadarayaWatsonRegressor(bandwidth=0.2, kernel="uniform").fit(X, y).predict(queries)
    theirs = RadiusNeighborsRegressor(radius=0.2).fit(X, y).predict(queries)
    assert_allclose(ours, theirs, rtol=1e-12)
