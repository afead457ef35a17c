"""Selected numbers of neighbours, and bandwidths of lines: least criterion of all."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from skattn import NadarayaWatsonRegressor
from skattn._attention import Resources
from skattn._bandwidth import CRITERIA, SelectionSettings, neighbors_curve, select_neighbors
from skattn._geometry.training_set import TrainingSet
from skattn.kernels import KERNELS

seeds = st.integers(0, 2**32 - 1)
adaptives = st.sampled_from(["query", "key"])
few = settings(max_examples=5)

ignore_copies = pytest.mark.filterwarnings("ignore:.*are copies of others:UserWarning")


def judged_by(name="loo", kernel="gaussian", degree=0, max_queries=4000):
    return SelectionSettings(CRITERIA[name], KERNELS[kernel], max_queries, Resources(), degree)


def training_set_of(X, y, weights=None, groups=None):
    weights = np.ones(len(X)) if weights is None else np.asarray(weights, float)
    return TrainingSet.canonical(X, y.reshape(len(y), -1), weights, groups)


def problem(seed, n, d=1):
    """Places of uneven density; a function that is steep where they are dense."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * np.exp(rng.standard_normal((n, 1)))
    noise = [0.1, 0.4, 1.0][seed % 3]
    return X, np.sin(3.0 * np.arctan(2.0 * X).sum(axis=1)) + noise * rng.standard_normal(n)


def by_hand(X, y, number, adaptive, name):
    """A criterion by its formulas, Gaussian kernel, distinct rows."""
    n, d = X.shape
    distances = np.sqrt(((X[:, None] - X) ** 2).sum(axis=2))
    ladder = np.sort(distances, axis=1)  # the first is the row itself
    own = np.eye(n, dtype=bool)
    if adaptive == "query":
        radii = ladder[:, number][:, None]
    elif name == "loo":  # without the query, the radius of a key that counted it reaches one on
        counted = distances <= ladder[:, number] * (1.0 + 1e-12)
        after = ladder[:, min(number + 1, n - 1)]  # none beyond the farthest
        radii = np.where(counted, after, ladder[:, number])
    else:
        radii = np.broadcast_to(ladder[:, number], (n, n))
    with np.errstate(divide="ignore"):
        logs = -0.5 * (distances / radii) ** 2
        if adaptive == "key":
            logs = logs - d * np.log(radii)
        if name == "loo":
            logs = np.where(own, -np.inf, logs)
    weights = np.exp(logs - logs.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    squares = ((y - weights @ y) ** 2).mean()
    if name == "loo":
        return squares
    trace = np.trace(weights)
    if name == "gcv":
        return squares / (1.0 - trace / n) ** 2
    return np.log(squares) + (1.0 + trace / n) / (1.0 - (trace + 2.0) / n)


# ---------------------------------------------------------------------------------------------
# The curve


@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize("name", CRITERIA)
@pytest.mark.parametrize("adaptive", ["query", "key"])
def test_curve_is_that_of_the_formulas(adaptive, name, d):
    X, y = problem(d, 40, d)
    numbers = np.array([20, 3, 9, 38, 5])  # in any order
    found = neighbors_curve(training_set_of(X, y), judged_by(name), adaptive, np.ones(d), numbers)
    expected = [by_hand(X, y, number, adaptive, name) for number in numbers]
    assert_allclose(found, expected, rtol=1e-8)


@pytest.mark.parametrize("kernel", ["gaussian", "epanechnikov"])
@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("adaptive", ["query", "key"])
def test_curve_is_the_error_of_refits(adaptive, degree, kernel):
    rng = np.random.default_rng(0)  # no outliers: lines of fewer keys than directions have a unit
    X, y = rng.random((30, 2)), rng.standard_normal(30)
    for number in (8, 15):
        model = NadarayaWatsonRegressor(
            1.0, kernel=kernel, degree=degree, adaptive=adaptive, n_neighbors=number
        )
        errors = [
            y[i] - model.fit(np.delete(X, i, 0), np.delete(y, i)).predict(X[i : i + 1])[0]
            for i in range(30)
        ]
        curve = model.fit(X, y).criterion_curve([number])
        assert_allclose(curve, np.mean(np.square(errors)), rtol=1e-6)
        assert_allclose(curve, np.mean((y - model.predict(None)) ** 2), rtol=1e-9)


@pytest.mark.parametrize("adaptive", ["query", "key"])
def test_curve_with_groups_leaves_groups_out(adaptive):
    X, y = problem(1, 60, 2)
    groups = np.arange(60) % 9
    model = NadarayaWatsonRegressor(1.0, adaptive=adaptive, n_neighbors=8)
    model.fit(X, y, groups=groups)
    curve = model.criterion_curve([8])
    assert_allclose(curve, np.mean((y - model.predict(None)) ** 2), rtol=1e-9)
    if adaptive == "query":  # the eighth of those that are not left out
        errors = []
        for group in range(9):
            left = groups == group
            rest = model.fit(X[~left], y[~left])
            errors.append((y[left] - rest.predict(X[left])) ** 2)
        assert_allclose(curve, np.concatenate(errors).mean(), rtol=1e-8)


# ---------------------------------------------------------------------------------------------
# The least of all


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("name", CRITERIA)
@pytest.mark.parametrize("adaptive", ["query", "key"])
def test_of_few_rows_the_number_is_the_best_of_all(adaptive, name, degree):
    for seed, n in ((0, 12), (1, 40), (2, 64)):
        table, criterion = training_set_of(*problem(seed, n)), judged_by(name, degree=degree)
        _, number, value = select_neighbors(table, criterion, adaptive, [np.ones(1)], None)
        curve = neighbors_curve(table, criterion, adaptive, np.ones(1), np.arange(1, n))
        assert number == 1 + np.argmin(curve)
        assert_allclose(value, curve.min(), rtol=1e-12)


@pytest.mark.parametrize("kernel", ["gaussian", "epanechnikov"])
@pytest.mark.parametrize("adaptive", ["query", "key"])
def test_of_many_rows_no_number_of_a_grid_is_better(adaptive, kernel):
    worse = {}
    for seed in (0, 1) if kernel == "gaussian" else (2,):
        table, criterion = training_set_of(*problem(seed, 300)), judged_by("loo", kernel)
        _, number, value = select_neighbors(table, criterion, adaptive, [np.ones(1)], None)
        numbers = np.unique(np.geomspace(1, 299, 40).astype(int))
        curve = neighbors_curve(table, criterion, adaptive, np.ones(1), numbers)
        if value > curve.min() * (1.0 + 1e-12):
            worse[seed] = (number, value, numbers[np.argmin(curve)], curve.min())
    assert worse == {}


def test_beyond_64_the_number_is_nearly_the_best_of_all():
    # numbers are a ladder, refined around its minima: a wiggle may hide between
    for seed in (2, 5, 8):  # much noise, many neighbours
        table = training_set_of(*problem(seed, 150))
        _, number, value = select_neighbors(table, judged_by(), "query", [np.ones(1)], None)
        curve = neighbors_curve(table, judged_by(), "query", np.ones(1), np.arange(1, 150))
        assert_allclose(value, curve[number - 1], rtol=1e-12)
        assert value <= curve.min() * (1.0 + 1e-3)


def test_the_better_of_several_relative_bandwidths_is_chosen():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 2))
    y = np.sin(3.0 * X[:, 0]) + 0.1 * rng.standard_normal(80)
    choices = [np.ones(2), np.array([1.0, 30.0]), np.array([30.0, 1.0])]
    table, criterion = training_set_of(X, y), judged_by()
    bandwidth, _, value = select_neighbors(table, criterion, "query", choices, None)
    assert_array_equal(bandwidth, choices[1])
    each = [select_neighbors(table, criterion, "query", [one], None) for one in choices]
    assert value == min(one[2] for one in each)
    given = select_neighbors(table, criterion, "query", choices, 5)
    assert given[1] == 5
    curve = [neighbors_curve(table, criterion, "query", one, np.array([5]))[0] for one in choices]
    assert_allclose(given[2], min(curve), rtol=1e-12)
    alone = select_neighbors(table, criterion, "query", choices[:1], 5)
    assert_allclose(alone[2], curve[0], rtol=1e-12)


def test_an_adaptive_bandwidth_follows_the_density():
    # dense and wiggly on one side, sparse and smooth on the other: no bandwidth fits both
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.random(100), 20.0 + 80.0 * rng.random(100)])
    signal = np.where(x < 1.0, np.sin(12.0 * x), np.sin(0.15 * x))
    y = signal + 0.3 * rng.standard_normal(200)
    fixed = NadarayaWatsonRegressor().fit(x[:, None], y)
    error = ((fixed.predict(x[:, None]) - signal) ** 2).mean()
    for adaptive in ("query", "key"):
        fitted = model(adaptive).fit(x[:, None], y)
        assert fitted.criterion_ < 0.9 * fixed.criterion_
        assert ((fitted.predict(x[:, None]) - signal) ** 2).mean() < 0.6 * error


# ---------------------------------------------------------------------------------------------
# Properties of any data


def model(adaptive, **parameters):
    return NadarayaWatsonRegressor(adaptive=adaptive, **parameters)


def data(seed, d, n=40):
    """Rows on a lattice, so that shifting and scaling are exact; a smooth function and noise."""
    rng = np.random.default_rng(seed)
    X = np.round(256.0 * rng.standard_normal((n, d))) / 64.0
    return X, np.sin(X[:, 0]) + 0.3 * rng.standard_normal(n)


@given(adaptives, seeds, st.integers(0, 1), st.integers(1, 2))
@few
@ignore_copies
def test_weights_are_repetitions(adaptive, seed, degree, d):
    X, y = data(seed, d, 24)
    weights = np.random.default_rng(seed).integers(0, 4, len(y))
    parameters = {"degree": degree, "anisotropic": False}
    one = model(adaptive, **parameters).fit(X, y, weights)
    other = model(adaptive, **parameters).fit(np.repeat(X, weights, axis=0), np.repeat(y, weights))
    assert one.n_neighbors_ == other.n_neighbors_
    assert_allclose(one.criterion_, other.criterion_, rtol=1e-9)
    assert_allclose(one.bandwidth_, other.bandwidth_, rtol=1e-12)
    assert_allclose(one.predict(X[:5]), other.predict(X[:5]), rtol=1e-8, atol=1e-9)


@given(adaptives, seeds, st.integers(0, 1), st.integers(1, 2))
@few
def test_order_of_rows_does_not_matter(adaptive, seed, degree, d):
    X, y = data(seed, d, 24)
    order = np.random.default_rng(seed).permutation(len(y))
    one = model(adaptive, degree=degree).fit(X, y)
    other = model(adaptive, degree=degree).fit(X[order], y[order])
    assert one.n_neighbors_ == other.n_neighbors_
    assert one.criterion_ == other.criterion_
    assert_array_equal(one.bandwidth_, other.bandwidth_)
    assert_array_equal(one.predict(X[:5]), other.predict(X[:5]))


@given(adaptives, seeds, st.integers(0, 1), st.integers(-30, 30), st.integers(-1000, 1000))
@few
def test_units_and_origin_do_not_matter(adaptive, seed, degree, exponent, offset):
    X, y = data(seed, 2)
    unit = np.array([2.0**exponent, 1.0])
    parameters = {"degree": degree, "anisotropic": False}
    one = model(adaptive, **parameters).fit(X, y)
    other = model(adaptive, **parameters).fit((X + offset) * unit, 4.0 * y - 64.0)
    assert one.n_neighbors_ == other.n_neighbors_
    assert_allclose(other.bandwidth_, one.bandwidth_ * unit, rtol=1e-12)
    assert_allclose(other.criterion_, 16.0 * one.criterion_, rtol=1e-9)
    predicted = other.predict((X[:7] + offset) * unit)
    assert_allclose(predicted, 4.0 * one.predict(X[:7]) - 64.0, atol=1e-8)


@given(adaptives, seeds, st.floats(0.01, 100.0))
@few
def test_importances_matter_by_their_ratios_only(adaptive, seed, factor):
    X, y = data(seed, 1)
    weights = np.random.default_rng(seed).uniform(0.5, 1.5, len(y))
    one = model(adaptive).fit(X, y, weights)
    other = model(adaptive).fit(X, y, factor * weights)
    assert one.n_neighbors_ == other.n_neighbors_
    assert_allclose(one.criterion_, other.criterion_, rtol=1e-9)


@pytest.mark.parametrize("adaptive", ["query", "key"])
def test_constant_features_and_targets(adaptive, wave):
    X, y = wave
    both = np.column_stack([X, np.full(40, 7.0)])
    one, two = model(adaptive).fit(X, y), model(adaptive).fit(both, y)
    assert one.n_neighbors_ == two.n_neighbors_
    assert_allclose(one.criterion_, two.criterion_, rtol=1e-9)
    assert_array_equal(model(adaptive).fit(X, np.full(40, 2.0)).predict([[0.3], [9.0]]), 2.0)
    assert_allclose(model(adaptive).fit(np.ones((40, 2)), y).predict([[1.0, 1.0]]), y.mean())


# ---------------------------------------------------------------------------------------------
# Bandwidths of lines


def curve_of_lines(seed, most=60):
    """From 15 rows of one feature, uneven or with ties; much or little noise."""
    rng = np.random.default_rng(seed)
    x = rng.random(int(rng.integers(15, most + 1)))
    if seed % 3 == 1:
        x = np.round(x, 2)
    elif seed % 3 == 2:
        x = x**3
    noise = [0.05, 0.3, 1.0, 2.0][seed % 4]
    return x[:, None], np.sin(rng.uniform(1.0, 12.0) * x) + noise * rng.standard_normal(len(x))


def worse_than_a_grid(name, kernel, problems, most=60):
    """Problems of one feature for which one of 200 bandwidths is better than that selected."""
    worse = {}
    for seed in problems:
        X, y = curve_of_lines(seed, most)
        fitted = NadarayaWatsonRegressor(name, kernel=kernel, degree=1).fit(X, y)
        gaps = np.diff(np.unique(X))
        grid = 1.00123 * np.geomspace(np.quantile(gaps, 0.05) / 4.0, 100.0 * np.ptp(X), 200)
        curve = fitted.criterion_curve(grid, criterion=name)
        lowest = curve.min()
        if not fitted.criterion_ <= lowest + 1e-3 * abs(lowest):
            worse[seed] = (fitted.bandwidth_, fitted.criterion_, grid[np.argmin(curve)], lowest)
        if name == "loo":
            errors = np.mean((y - fitted.predict(None)) ** 2)
            assert_allclose(errors, fitted.criterion_, rtol=1e-6)
    return worse


@pytest.mark.parametrize(
    ("name", "kernel", "problems"),
    [
        ("loo", "gaussian", range(20)),
        ("gcv", "gaussian", range(20, 24)),
        ("aicc", "gaussian", range(26, 30)),
        ("loo", "student", range(32, 35)),
    ],
)
@ignore_copies
def test_bandwidth_of_lines_is_as_good_as_any_of_a_grid(name, kernel, problems):
    assert worse_than_a_grid(name, kernel, problems) == {}


# whose criterion jumps where a line gains or loses a key
@pytest.mark.parametrize(
    ("kernel", "problems"), [("epanechnikov", (42, 43)), ("tricube", (42, 43))]
)
@ignore_copies
def test_bandwidth_of_compact_lines_is_as_good_as_any_of_a_grid(kernel, problems):
    assert worse_than_a_grid("loo", kernel, problems, most=80) == {}


@pytest.mark.parametrize(("name", "noise"), [("loo", 0.0), ("gcv", 0.02), ("aicc", 0.02)])
def test_a_linear_feature_is_smoothed_out(name, noise):
    rng = np.random.default_rng(0)
    X = rng.random((120, 2))
    y = np.sin(9.0 * X[:, 0]) + 2.0 * X[:, 1] + noise * rng.standard_normal(120)
    fitted = NadarayaWatsonRegressor(name, degree=1).fit(X, y)
    assert fitted.bandwidth_[0] < 0.3
    assert fitted.bandwidth_[1] == np.inf
    assert_allclose(fitted.predict_gradient(X)[:, 1], 2.0, atol=0.1)
    constant = NadarayaWatsonRegressor(name).fit(X, y)  # means need a bandwidth for it
    assert np.isfinite(constant.bandwidth_[1])


def test_smoothing_a_linear_feature_out_is_tried():
    # with noise, a wide bandwidth may do a little better; smoothed out is never better than found
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = rng.random((60, 2))
        y = np.sin(6.0 * X[:, 0]) + 2.0 * X[:, 1] + 0.3 * rng.standard_normal(60)
        fitted = NadarayaWatsonRegressor(degree=1).fit(X, y)
        narrow = fitted.bandwidth_[0] * np.geomspace(0.3, 3.0, 25)
        curve = fitted.criterion_curve(np.column_stack([narrow, np.full(25, np.inf)]))
        assert fitted.criterion_ <= curve.min() * (1.0 + 1e-6)


@pytest.mark.parametrize("name", CRITERIA)
def test_a_plane_is_one_neighbourhood(name):
    rng = np.random.default_rng(1)
    X = rng.random((80, 2))
    y = X @ [1.0, -2.0] + 0.1 * rng.standard_normal(80)
    fitted = NadarayaWatsonRegressor(name, degree=1).fit(X, y)
    columns = np.column_stack([np.ones(80), X])
    coefficients, *_ = np.linalg.lstsq(columns, y, rcond=None)
    hat = columns @ np.linalg.pinv(columns)
    if np.isinf(fitted.bandwidth_).all():
        assert_allclose(fitted.predict(X), columns @ coefficients, atol=1e-9)
        assert_allclose(fitted.effective_dof_, 3.0, rtol=1e-9)
    residuals = y - columns @ coefficients
    least = {
        "loo": np.mean((residuals / (1.0 - np.diag(hat))) ** 2),
        "gcv": np.mean(residuals**2) / (1.0 - 3.0 / 80) ** 2,
        "aicc": np.log(np.mean(residuals**2)) + (1.0 + 3.0 / 80) / (1.0 - 5.0 / 80),
    }[name]
    assert fitted.criterion_ <= least + 1e-9 * abs(least)
    curve = fitted.criterion_curve([[np.inf, np.inf]], criterion=name)
    assert_allclose(curve, least, rtol=1e-9)


def test_bandwidths_of_lines_are_not_beaten_by_their_neighbourhood():
    rng = np.random.default_rng(3)
    X = rng.random((60, 2))
    y = np.sin(7.0 * X[:, 0]) * np.cos(4.0 * X[:, 1]) + 0.1 * rng.standard_normal(60)
    for name in CRITERIA:
        fitted = NadarayaWatsonRegressor(name, degree=1).fit(X, y)
        factors = np.exp(0.7 * rng.standard_normal((60, 2)))
        curve = fitted.criterion_curve(fitted.bandwidth_ * factors, criterion=name)
        assert fitted.criterion_ <= curve.min() + 1e-9 * abs(curve.min())
