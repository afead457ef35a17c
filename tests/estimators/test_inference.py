"""Local lines, adaptive bandwidths, and what is read off their weights besides predictions."""

import copy
import pickle
import sys

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_val_score
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skattn import NadarayaWatsonRegressor
from skattn.kernels import KERNELS
from skattn._smoother._lines import FLAT

CONFIGURATIONS = {
    "means": {},
    "lines": {"degree": 1},
    "radii of queries": {"adaptive": "query", "n_neighbors": 7},
    "radii of keys": {"adaptive": "key", "n_neighbors": 7},
    "lines, radii of queries": {"degree": 1, "adaptive": "query", "n_neighbors": 7},
    "lines, radii of keys": {"degree": 1, "adaptive": "key", "n_neighbors": 7},
}
SMOOTH = [name for name in KERNELS if name not in ("uniform", "triangular", "laplace")]


@pytest.fixture(params=CONFIGURATIONS, ids=str)
def configuration(request):
    return CONFIGURATIONS[request.param]


@pytest.fixture
def plane(rng):
    """Forty rows of two features, a curved target, and queries within and beyond them."""
    X = rng.uniform(-1.0, 1.0, (40, 2))
    y = np.sin(2.0 * X[:, 0]) + X[:, 1] ** 2 + 0.3 * rng.standard_normal(40)
    return X, y, rng.uniform(-1.2, 1.2, (9, 2))


def everything(model, X):
    """The results of all methods at some queries, by name."""
    mean, std = model.predict(X, return_std=True)
    told = model.explain(X, top_k=3)
    return {
        "mean": mean,
        "std": std,
        "local std": model.predict(X, return_std="local")[1],
        "quantiles": model.predict_quantiles(X, [0.1, 0.5, 0.9]),
        "interval": model.predict_interval(X, 0.8),
        "local interval": model.predict_interval(X, 0.8, local=True),
        "gradient": model.predict_gradient(X),
        "weights": model.attention_weights(X),
        "neighbors": model.effective_neighbors(X),
        "rows": told.rows,
        "told weights": told.weights,
        "differences": told.differences,
    }


def profile(squared):
    return np.exp(-0.5 * squared)


def squared_distances(queries, X, bandwidth):
    return (((queries[:, None] - X) / bandwidth) ** 2).sum(axis=2)


def line_by_definition(X, y, weights, query):
    """Value and slopes at the query of the weighted least-squares line."""
    root = np.sqrt(weights)[:, None]
    columns = np.column_stack([np.ones(len(X)), X - query])
    solution = np.linalg.lstsq(root * columns, root[:, 0] * y, rcond=None)[0]
    return solution[0], solution[1:]


# Local lines


@pytest.mark.parametrize("sample_weight", [False, True])
def test_degree_one_is_weighted_least_squares_around_each_query(plane, rng, sample_weight):
    X, y, queries = plane
    weights = rng.random(40) if sample_weight else np.ones(40)
    bandwidth = np.array([0.4, 0.7])
    model = NadarayaWatsonRegressor(bandwidth, degree=1).fit(X, y, sample_weight=weights)
    attention = profile(squared_distances(queries, X, bandwidth)) * weights
    lines = [line_by_definition(X, y, *pair) for pair in zip(attention, queries, strict=True)]
    assert_allclose(model.predict(queries), [value for value, _ in lines], rtol=1e-9)
    assert_allclose(model.predict_gradient(queries), [slope for _, slope in lines], rtol=1e-8)


@pytest.mark.parametrize("kernel", KERNELS)
def test_lines_reproduce_linear_targets_inside_and_beyond_the_data(kernel, rng):
    X = rng.uniform(-1.0, 1.0, (60, 2))
    queries = rng.uniform(-1.3, 1.3, (9, 2))
    model = NadarayaWatsonRegressor(1.5, kernel=kernel, degree=1)
    model.fit(X, 3.0 + X @ [2.0, -5.0])
    assert_allclose(model.predict(queries), 3.0 + queries @ [2.0, -5.0], atol=1e-9)
    assert_allclose(model.predict(None), 3.0 + X @ [2.0, -5.0], atol=1e-9)
    assert_allclose(model.predict_gradient(queries), np.tile([2.0, -5.0], (9, 1)), atol=1e-7)
    _, std = model.predict(queries, return_std=True)
    assert_allclose(std, 0.0, atol=1e-9)


def test_infinite_bandwidths_at_degree_one_are_linear_regression(plane, rng):
    X, y, queries = plane
    weights = rng.random(40)
    model = NadarayaWatsonRegressor(np.inf, degree=1).fit(X, y, sample_weight=weights)
    ols = LinearRegression().fit(X, y, sample_weight=weights)
    assert_allclose(model.predict(queries), ols.predict(queries), rtol=1e-9)
    assert_allclose(model.predict_gradient(queries), np.tile(ols.coef_, (9, 1)), rtol=1e-9)
    assert_allclose(model.effective_dof_, 3.0, rtol=1e-9)


def test_standard_errors_at_infinite_bandwidth_are_those_of_least_squares(plane):
    X, y, queries = plane
    model = NadarayaWatsonRegressor(np.inf, degree=1).fit(X, y)
    _, std = model.predict(queries, return_std=True)
    design, at = (np.column_stack([np.ones(len(rows)), rows]) for rows in (X, queries))
    variance = np.mean((y - model.predict(None)) ** 2)  # PRESS / n
    inverse = np.linalg.inv(design.T @ design)
    assert_allclose(std, np.sqrt(variance * np.einsum("qi,ij,qj->q", at, inverse, at)), rtol=1e-9)


def test_smoothed_out_feature_matters_linearly_at_degree_one(plane):
    X, y, queries = plane
    model = NadarayaWatsonRegressor([0.4, np.inf], degree=1).fit(X, y)
    attention = profile(squared_distances(queries[:, :1], X[:, :1], 0.4))
    lines = [line_by_definition(X, y, *pair) for pair in zip(attention, queries, strict=True)]
    assert_allclose(model.predict(queries), [value for value, _ in lines], rtol=1e-9)
    assert (np.abs(model.predict_gradient(queries)[:, 1]) > 1e-3).all()
    mean = NadarayaWatsonRegressor([0.4, np.inf]).fit(X, y)
    assert_array_equal(mean.predict_gradient(queries)[:, 1], 0.0)


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


@pytest.mark.parametrize("d", [2, 31, 45])
def test_lines_of_many_features_reproduce_a_linear_target_of_few_directions(d, rng):
    # beyond 30 features, slopes are along leading principal components only
    factors = rng.standard_normal((120, 2))
    X = factors @ rng.standard_normal((2, d))
    y = factors @ [1.0, -2.0]
    model = NadarayaWatsonRegressor(4.0 * X.std(), degree=1).fit(X, y)
    assert_allclose(model.predict(X[:20]), y[:20], atol=1e-6)
    gradient = model.predict_gradient(X[:5])
    assert_allclose((X[5:10] - X[:5]) @ gradient[0], y[5:10] - y[:5], atol=1e-6)


@pytest.mark.parametrize("configuration", ["means", "lines"])
def test_effective_dof_is_the_trace_and_leverage_the_diagonal(plane, configuration):
    X, y, _ = plane
    model = NadarayaWatsonRegressor(0.4, **CONFIGURATIONS[configuration]).fit(X, y)
    diagonal = np.diag(model.attention_weights(X))
    assert_allclose(model.leverage(), diagonal, rtol=1e-9)
    assert_allclose(model.effective_dof_, diagonal.sum(), rtol=1e-9)


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


@pytest.mark.parametrize("kernel", KERNELS)
def test_leave_one_out_lines_are_those_of_refits(kernel, plane):
    X, y, _ = plane
    model = NadarayaWatsonRegressor(0.6, kernel=kernel, degree=1)
    refits = [
        clone(model).fit(np.delete(X, i, 0), np.delete(y, i)).predict(X[[i]])[0] for i in range(40)
    ]
    # where rows in the support are too few for a line, it leans on the features' spreads
    neighbors = model.fit(X, y).effective_neighbors(None)
    assert (neighbors > 4.0).sum() > 10
    usable = neighbors > 4.0
    assert_allclose(model.predict(None)[usable], np.array(refits)[usable], rtol=1e-7)


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
    kernels = {"gaussian": profile, "student": lambda u2: (1 + u2 / 7.0) ** -4}
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


# Standard errors


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


# Quantiles


@pytest.mark.parametrize("sample_weight", [None, "whole", "fractions"])
def test_quantiles_invert_the_weighted_distribution(plane, rng, sample_weight):
    X, y, queries = plane
    y = np.round(y)  # ties
    weights = {None: None, "whole": rng.integers(0, 4, 40), "fractions": rng.random(40)}
    model = NadarayaWatsonRegressor(0.4).fit(X, y, sample_weight=weights[sample_weight])
    levels = np.linspace(0.0, 1.0, 21)
    expected = [
        np.quantile(y, levels, weights=row, method="inverted_cdf")
        for row in model.attention_weights(queries)
    ]
    present = model.attention_weights(queries).max(axis=0) > 0.0
    found = model.predict_quantiles(queries, levels)
    assert_array_equal(found[:, 1:], np.array(expected)[:, 1:])
    assert_array_equal(found[:, 0], y[present].min())


def test_quantiles_at_degree_one_are_of_the_residuals(plane):
    X, y, queries = plane
    model = NadarayaWatsonRegressor(0.4, degree=1).fit(X, y)
    weights = NadarayaWatsonRegressor(0.4).fit(X, y).attention_weights(queries)
    residuals, levels = y - model.predict(None), [0.05, 0.5, 0.95]
    expected = [np.quantile(residuals, levels, weights=w, method="inverted_cdf") for w in weights]
    found = model.predict_quantiles(queries, levels)
    assert_allclose(found, model.predict(queries)[:, None] + expected, rtol=1e-10)


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


# Intervals


def jackknife_by_refits(model, X, y, weights, groups, queries, coverage):
    """Jackknife+ as it is defined, by a fit without each row."""
    counts = weights if (weights == np.floor(weights)).all() else weights / weights.mean()
    edges, shares = [], []
    for i in range(len(y)):
        without = weights.copy()
        if groups is not None:
            without[groups == groups[i]] = 0.0
        elif counts is weights:
            without[i] -= 1.0
        else:
            without[i] = 0.0
        refit = clone(model).fit(X, y, sample_weight=without)
        size, mean = np.abs(y[i] - refit.predict(X[[i]])[0]), refit.predict(queries)
        edges.append([mean - size, mean + size])
        shares.append(counts[i])
    rank = np.ceil(coverage * (np.sum(shares) + 1.0) - 1e-9) * (1.0 - 1e-12)

    def ranked(values):
        order = np.argsort(values)
        return values[order][np.searchsorted(np.cumsum(np.array(shares)[order]), rank)]

    edges = np.array(edges)
    return np.array([[-ranked(-low), ranked(high)] for low, high in edges.transpose(2, 1, 0)])


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("grouped", [False, True], ids=["alone", "grouped"])
@pytest.mark.parametrize("sample_weight", ["ones", "whole", "fractions"])
@pytest.mark.parametrize("kernel", ["gaussian", "student", "epanechnikov"])
def test_intervals_are_the_jackknife_plus(rng, degree, grouped, sample_weight, kernel):
    X = np.linspace(0.0, 1.0, 24)[:, None] + 0.01 * rng.random((24, 1))
    y, queries = np.sin(6.0 * X[:, 0]) + rng.standard_normal(24), rng.uniform(0.0, 1.0, (7, 1))
    weights = {
        "ones": np.ones(24),
        "whole": rng.integers(1, 4, 24).astype(float),
        "fractions": 0.1 + rng.random(24),
    }[sample_weight]
    groups = rng.integers(0, 9, 24) if grouped else None
    model = NadarayaWatsonRegressor(0.3, degree=degree, kernel=kernel)
    model.fit(X, y, sample_weight=weights, groups=groups)
    for coverage in (0.5, 0.9):
        expected = jackknife_by_refits(model, X, y, weights, groups, queries, coverage)
        assert_allclose(model.predict_interval(queries, coverage), expected, rtol=1e-7)


def test_interval_of_equal_predictions_is_a_quantile_of_the_residuals(rng):
    # with all rows in one place, f without row i is the mean of the others
    y = rng.standard_normal(99)
    model = NadarayaWatsonRegressor(1.0).fit(np.zeros((99, 1)), y)
    others = (y.sum() - y) / 98.0
    size = np.abs(y - others)
    upper, lower = np.sort(others + size)[89], np.sort(others - size)[9]
    assert_allclose(model.predict_interval([[0.0]], 0.9), [[lower, upper]], rtol=1e-10)


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


def test_many_rows_take_small_weights_as_none_and_err_by_little(rng):
    X = rng.uniform(0.0, 1.0, (2400, 1))
    y = np.sin(6.0 * X[:, 0]) + rng.standard_normal(2400)
    queries = np.linspace(0.0, 1.0, 40)[:, None]
    model = NadarayaWatsonRegressor(0.002).fit(X, y)
    weights, mean = model.attention_weights(queries), model.predict(queries)
    without = (mean[:, None] - weights * y) / (1.0 - weights)
    residuals = np.abs(y - model.predict(None))
    rank = int(np.ceil(0.9 * 2401)) - 1
    expected = np.column_stack(
        [
            -np.sort(residuals - without, axis=1)[:, rank],
            np.sort(without + residuals, axis=1)[:, rank],
        ]
    )
    found = model.predict_interval(queries)
    assert np.abs(found - expected).max() <= 0.001 / 0.999 * np.ptp(y)
    held = np.column_stack([mean, mean]) + np.array([-1.0, 1.0]) * np.sort(residuals)[rank]
    assert np.abs(found - held).max() > 0.0  # rows of some weight do move the bounds


# Gradients


@pytest.mark.parametrize("kernel", SMOOTH)
def test_gradient_of_the_mean_is_its_derivative(kernel, plane):
    X, y, queries = plane
    queries = queries[(np.abs(queries) < 1.0).all(axis=1)]
    Y = np.column_stack([y, 1e6 * y**2])
    model = NadarayaWatsonRegressor([0.8, 1.1], kernel=kernel).fit(X, Y)
    step = 1e-5
    for j in range(2):
        ahead, behind = queries.copy(), queries.copy()
        ahead[:, j] += step
        behind[:, j] -= step
        slopes = (model.predict(ahead) - model.predict(behind)) / (2.0 * step)
        found = model.predict_gradient(queries)[:, j]
        assert_allclose(found, slopes, rtol=1e-4, atol=1e-4 * np.abs(slopes).max())


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


# Explanations


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


# scikit-learn


def test_copies_give_bit_for_bit_the_same(plane, configuration):
    X, y, queries = plane
    model = NadarayaWatsonRegressor(0.4, **configuration).fit(X, y)
    expected = everything(model, queries)
    for duplicate in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        for name, result in everything(duplicate, queries).items():
            assert_array_equal(result, expected[name], err_msg=name)
    assert clone(model).get_params() == model.get_params()
    assert not hasattr(clone(model), "bandwidth_")


def test_inference_sets_no_attribute(plane, configuration):
    X, y, queries = plane
    model = NadarayaWatsonRegressor(0.4, **configuration).fit(X, y)
    before = {name: pickle.dumps(value) for name, value in vars(model).items()}
    everything(model, queries)
    assert {name: pickle.dumps(value) for name, value in vars(model).items()} == before


def test_threads_change_nothing(plane, configuration):
    X, y, queries = plane
    queries = np.tile(queries, (40, 1))
    one = everything(NadarayaWatsonRegressor(0.4, **configuration).fit(X, y), queries)
    two = everything(NadarayaWatsonRegressor(0.4, n_jobs=2, **configuration).fit(X, y), queries)
    for name, result in two.items():
        assert_array_equal(result, one[name], err_msg=name)


def test_single_precision_in_is_single_precision_out(plane, configuration):
    X, y, queries = (np.float32(array) for array in plane)
    single = NadarayaWatsonRegressor(0.4, **configuration).fit(X, y)
    double = NadarayaWatsonRegressor(0.4, **configuration).fit(X.astype(float), y.astype(float))
    calls = {
        "mean": lambda m, q: m.predict(q),
        "std": lambda m, q: m.predict(q, return_std=True)[1],
        "local": lambda m, q: m.predict(q, return_std="local")[1],
        "quantiles": lambda m, q: m.predict_quantiles(q, [0.1, 0.9]),
        "interval": lambda m, q: m.predict_interval(q),
        "gradient": lambda m, q: m.predict_gradient(q),
    }
    for name, call in calls.items():
        found = call(single, queries)
        assert found.dtype == np.float32, name
        expected = call(double, queries.astype(float))
        assert expected.dtype == np.float64, name
        assert_allclose(found, expected, rtol=2e-4, atol=2e-4, err_msg=name)


@pytest.mark.parametrize(
    "convert",
    [
        np.asfortranarray,
        lambda X: X[::-1][::-1],
        lambda X: X.astype(np.int64),
        lambda X: X.astype(np.int8),
        lambda X: X.astype(np.int64).tolist(),
        lambda X: pd.DataFrame(X, columns=["a", "b"], index=[7] * len(X)),
        lambda X: pl.DataFrame(X, schema=["a", "b"]),
    ],
    ids=["Fortran order", "negative strides", "integers", "bytes", "lists", "pandas", "polars"],
)
def test_any_container_of_the_same_numbers(convert, configuration, rng):
    X, y = rng.integers(0, 9, (40, 2)).astype(float), rng.integers(0, 5, 40)
    expected = everything(
        NadarayaWatsonRegressor(1.5, **configuration).fit(X, y.astype(float)), X[:7]
    )
    model = NadarayaWatsonRegressor(1.5, **configuration).fit(convert(X), y)
    for name, result in everything(model, convert(X[:7])).items():
        assert_array_equal(result, expected[name], err_msg=name)


def test_memory_maps_and_read_only_arrays_are_not_written_to(plane, configuration, tmp_path):
    X, y, queries = plane
    weights = np.arange(40) % 3 + 0.5
    mapped = []
    for name, array in (("X", X), ("y", y), ("queries", queries), ("weights", weights)):
        array.tofile(tmp_path / name)
        mapped.append(np.memmap(tmp_path / name, mode="r", shape=array.shape, dtype=float))
    rows, targets, at, importance = mapped
    model = NadarayaWatsonRegressor(0.4, **configuration)
    found = everything(model.fit(rows, targets, sample_weight=importance), at)
    expected = everything(model.fit(X, y, sample_weight=weights), queries)
    for name, result in found.items():
        assert_array_equal(result, expected[name], err_msg=name)
    X.flags.writeable = y.flags.writeable = queries.flags.writeable = False
    levels = np.array([0.5])
    levels.flags.writeable = False
    model.fit(X, y).predict_quantiles(queries, levels)


def test_results_are_the_callers_to_write_to(plane, configuration):
    X, y, queries = plane
    model = NadarayaWatsonRegressor(0.4, **configuration).fit(X, y)
    expected = copy.deepcopy(everything(model, queries))
    for result in everything(model, queries).values():
        result[...] = 0
    for name, result in everything(model, queries).items():
        assert_array_equal(result, expected[name], err_msg=name)


def test_one_query_is_a_row_of_the_batch(plane, configuration):
    X, y, queries = plane
    model = NadarayaWatsonRegressor(0.4, **configuration).fit(X, y)
    batch = everything(model, queries)
    for name, result in everything(model, queries[4:5]).items():
        assert_allclose(result, batch[name][4:5], rtol=1e-8, atol=1e-12, err_msg=name)


def test_grid_search_over_the_degree_prefers_lines_for_a_linear_target(rng):
    X = rng.uniform(0.0, 1.0, (80, 2))
    y = X @ [3.0, -2.0] + 0.05 * rng.standard_normal(80)
    grid = {
        "nadarayawatsonregressor__degree": [0, 1],
        "nadarayawatsonregressor__adaptive": [None, "query"],
    }
    pipeline = make_pipeline(StandardScaler(), NadarayaWatsonRegressor(1.0, n_neighbors=20))
    search = GridSearchCV(pipeline, grid, cv=3).fit(X, y)
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


def test_outputs_share_weights_and_nothing_else(plane, configuration, rng):
    X, y, queries = plane
    Y = np.column_stack([y, rng.standard_normal(40), np.full(40, 3.0)])
    together = NadarayaWatsonRegressor(0.4, **configuration).fit(X, Y)
    apart = MultiOutputRegressor(NadarayaWatsonRegressor(0.4, **configuration)).fit(X, Y)
    assert_allclose(together.predict(queries), apart.predict(queries), rtol=1e-9)
    mean, std = together.predict(queries, return_std="local")
    alone = apart.estimators_[1].predict(queries, return_std="local")
    assert_allclose(mean[:, 1], alone[0], rtol=1e-9)
    assert_allclose(std[:, 1], alone[1], rtol=1e-9)
    for local in (False, True):
        found = together.predict_interval(queries, 0.8, local=local)
        if not local:  # which chooses one width of the neighbourhood for all outputs
            alone = apart.estimators_[1].predict_interval(queries, 0.8)
            assert_allclose(found[..., 1], alone, rtol=1e-8, atol=1e-10)
        assert_array_equal(found[..., 2], 3.0)
    column = NadarayaWatsonRegressor(0.4, **configuration).fit(X, y[:, None])
    flat = NadarayaWatsonRegressor(0.4, **configuration).fit(X, y)
    assert_array_equal(column.predict_gradient(queries)[..., 0], flat.predict_gradient(queries))


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
