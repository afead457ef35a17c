"""Selected bandwidths: global minima of the criterion, for any data, units, weights and groups."""

import warnings

import numpy as np
import pytest
import sklearn
from definitions import objective
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skattn import NadarayaWatsonRegressor
from skattn._bandwidth import CRITERIA
from skattn._bandwidth.search import search_common, search_each
from skattn._geometry.scaling import spread
from skattn._geometry.training_set import Exclusion
from skattn._optimize import LevenbergMarquardt
from skattn.kernels import KERNELS

seeds = st.integers(0, 2**32 - 1)
features = st.integers(1, 2)
criteria = st.sampled_from(list(CRITERIA))
few = settings(max_examples=12)

ignore_copies = pytest.mark.filterwarnings("ignore:.*are copies of others:UserWarning")


def model(bandwidth="loo", **parameters):
    return NadarayaWatsonRegressor(bandwidth, **parameters)


def by_hand(X, y, bandwidths, kernel="gaussian", criterion="loo"):
    """A criterion of one feature at some bandwidths, as the formulas have it."""
    n, squared = len(y), (X - X.T) ** 2
    with np.errstate(divide="ignore", over="ignore"):
        logs = KERNELS[kernel].log_profile(squared / bandwidths[:, None, None] ** 2)
    if criterion == "loo":
        logs[:, np.arange(n), np.arange(n)] = -np.inf
        others = squared + np.diag(np.full(n, np.inf))
        nearest = others <= others.min(axis=1, keepdims=True) * (1.0 + 1e-12)
        empty = np.isneginf(logs).all(axis=2)
        logs = np.where(empty[:, :, None], np.where(nearest, 0.0, -np.inf), logs)
    weights = np.exp(logs - logs.max(axis=2, keepdims=True))
    weights /= weights.sum(axis=2, keepdims=True)
    squares = ((y - weights @ y) ** 2).mean(axis=1)
    trace = np.trace(weights, axis1=1, axis2=2)
    with np.errstate(divide="ignore", invalid="ignore"):
        if criterion == "gcv":
            return np.where(n - trace > 1e-10, squares / (1.0 - trace / n) ** 2, np.inf)
        if criterion == "aicc":
            room = 1.0 - (trace + 2.0) / n
            return np.where(room > 1e-12, np.log(squares) + (1.0 + trace / n) / room, np.inf)
    return squares


# ---------------------------------------------------------------------------------------------
# The minimum is global


def line(seed):
    """From 8 to 80 rows of one feature; ties or outliers in X; much or little noise."""
    rng = np.random.default_rng(seed)
    x = rng.random(int(rng.integers(8, 81)))
    if seed % 4 == 1:
        x = np.round(x, 1)
    elif seed % 4 == 2:
        x[rng.integers(len(x), size=max(1, len(x) // 20))] += rng.choice([-30.0, 5.0, 100.0])
    elif seed % 4 == 3:
        x = np.round(rng.standard_cauchy(len(x)), 1)
    noise = [0.05, 0.2, 0.5, 1.0, 2.0][seed // 4 % 5]
    return x[:, None], np.sin(rng.uniform(1.0, 12.0) * x) + noise * rng.standard_normal(len(x))


def grid(X):
    """400 bandwidths; the factor keeps the edges of supports away from distances on a lattice."""
    values = np.unique(X)
    return 1.00123 * np.geomspace(np.diff(values).min() / 10.0, 10.0 * np.ptp(values), 400)


@pytest.mark.parametrize(
    ("criterion", "kernel", "problems"),
    [
        ("loo", "gaussian", range(100)),
        ("gcv", "gaussian", range(30)),
        ("aicc", "gaussian", range(30)),
        ("loo", "laplace", range(200, 220)),
        ("loo", "student", range(20)),
        ("loo", "epanechnikov", range(20)),
        ("loo", "tricube", range(20)),
        ("loo", "uniform", range(20)),
    ],
)
@ignore_copies
def test_minimum_is_global(criterion, kernel, problems):
    worse = {}
    for seed in problems:
        X, y = line(seed)
        fitted = model(criterion, kernel=kernel).fit(X, y)
        lowest = by_hand(X, y, grid(X), kernel, criterion).min()
        if not fitted.criterion_ <= lowest + 1e-3 * abs(lowest):
            worse[seed] = (fitted.criterion_, lowest)
    assert worse == {}


@pytest.mark.parametrize("criterion", CRITERIA)
@ignore_copies
def test_criterion_is_that_of_the_formulas(criterion):
    for seed in range(10):
        X, y = line(seed)
        fitted = model(criterion).fit(X, y)
        bandwidth = np.minimum(fitted.bandwidth_, 1e9)
        assert_allclose(fitted.criterion_, by_hand(X, y, bandwidth, criterion=criterion), rtol=1e-6)
        curve = fitted.criterion_curve(grid(X), criterion=criterion)
        expected = by_hand(X, y, grid(X), criterion=criterion)
        # where hardly anything is left out, GCV is 0 / 0 but for rounding
        told = expected < (1e3 if criterion == "gcv" else np.inf) * np.var(y)
        told &= grid(X) > 0.2 * np.diff(np.unique(X)).min()
        assert_allclose(curve[told], expected[told], rtol=1e-6)


# ---------------------------------------------------------------------------------------------
# Known answers


def test_sine(wave):
    X, y = wave
    fitted = model().fit(X, y)
    assert_allclose(fitted.bandwidth_, 0.05593, atol=1e-5)
    assert_allclose(fitted.criterion_, 0.120786, atol=1e-6)
    assert_allclose(np.mean((y - fitted.predict(None)) ** 2), fitted.criterion_, rtol=1e-10)


def test_sine_of_huge_targets(wave):
    X, y = wave
    fitted, huge = model().fit(X, y), model().fit(X, 1.45e23 * y)
    assert_allclose(huge.bandwidth_, fitted.bandwidth_, rtol=1e-6)
    assert_allclose(huge.predict(X), 1.45e23 * fitted.predict(X), rtol=1e-6)
    assert_allclose(huge.criterion_, 1.45e23**2 * fitted.criterion_, rtol=1e-9)


def test_three_minima():
    # a search from the rule of thumb ends in another minimum, or at a negative bandwidth
    rng = np.random.default_rng(107)
    x = np.sort(rng.random(30))
    y = np.sin(2.0 * np.pi * x) + 0.8 * rng.standard_normal(30)
    fitted = model().fit(x[:, None], y)
    assert_allclose(fitted.bandwidth_, 0.0067, atol=1e-4)
    assert_allclose(fitted.criterion_, 1.02236, atol=2e-5)
    others = fitted.criterion_curve([0.0314, 0.0911])
    assert_allclose(others, [1.16589, 1.21206], atol=1e-5)


def test_a_weak_feature_is_kept():
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 1.0, (200, 2))
    y = np.sin(6.0 * X[:, 0]) + 0.1 * rng.standard_normal(200)
    fitted = model().fit(X, y)
    assert fitted.criterion_ <= 0.01101
    assert_allclose(fitted.bandwidth_, [0.0245, 0.321], rtol=0.1)
    assert_allclose(fitted.criterion_curve([[0.0245, np.inf]]), 0.0114, atol=1e-4)


@pytest.mark.parametrize("kernel", ["gaussian", "laplace", "epanechnikov"])
def test_no_signal_is_the_mean(kernel):
    X, y = np.linspace(0.0, 1.0, 30)[:, None], np.random.default_rng(2).standard_normal(30)
    fitted = model(kernel=kernel).fit(X, y)
    assert fitted.bandwidth_ == np.inf
    assert_allclose(fitted.predict([[0.3], [77.0]]), y.mean(), rtol=1e-12)
    assert_allclose(fitted.criterion_, y.var() * (30 / 29) ** 2, rtol=1e-12)


@pytest.mark.parametrize("constant", [1.0, 1.7e9])
@pytest.mark.parametrize("criterion", CRITERIA)
def test_constant_features_do_not_matter(criterion, constant, wave):
    X, y = wave
    both = np.column_stack([X, np.full(40, constant)])
    fitted, expected = model(criterion).fit(both, y), model(criterion).fit(X, y)
    assert_allclose(fitted.bandwidth_, [expected.bandwidth_[0], np.inf], rtol=1e-9)
    assert_allclose(fitted.criterion_, expected.criterion_, rtol=1e-9)
    both[:, 1] += 2.0
    assert_allclose(fitted.predict(both), expected.predict(X), rtol=1e-9)


@pytest.mark.parametrize("where", [5.0, 1e3, -1e6])
def test_an_isolated_row_does_not_smooth_everything_out(where, wave):
    X, y = wave
    alone = model().fit(X, y).bandwidth_
    fitted = model().fit(np.append(X, [[where]], axis=0), np.append(y, 0.0))
    assert_allclose(fitted.bandwidth_, alone, rtol=0.2)


def test_all_features_constant():
    X, y = np.full((10, 2), 3.0), np.arange(10.0)
    for criterion in CRITERIA:
        fitted = model(criterion).fit(X, y)
        assert_array_equal(fitted.bandwidth_, np.inf)
        assert_allclose(fitted.predict([[0.0, 9.0]]), 4.5)
    # every row predicted by the mean of the others
    assert_allclose(model().fit(X, y).criterion_, y.var() * (10 / 9) ** 2)
    assert_allclose(model("gcv").fit(X, y).criterion_, y.var() * (10 / 9) ** 2)
    expected = np.log(y.var()) + (1 + 1 / 10) / (1 - 3 / 10)
    assert_allclose(model("aicc").fit(X, y).criterion_, expected)


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("n", [2, 3])
def test_few_rows(criterion, n):
    X, y = np.array([[0.0], [1.0], [3.0]])[:n], np.array([1.0, 2.0, 4.0])[:n]
    fitted = model(criterion).fit(X, y)
    assert fitted.bandwidth_ > 0.0
    predictions = fitted.predict([[0.0], [0.6], [50.0]])
    assert ((y.min() <= predictions) & (predictions <= y.max())).all()


def test_two_rows_predict_each_other():
    fitted = model().fit([[0.0], [1.0]], [1.0, 3.0])
    assert_allclose(fitted.criterion_, 4.0)
    assert_allclose(fitted.predict(None), [3.0, 1.0])


@pytest.mark.parametrize("criterion", CRITERIA)
def test_one_row_is_refused(criterion):
    with pytest.raises(ValueError, match="n_samples=1"):
        model(criterion).fit([[1.0]], [2.0])


@pytest.mark.parametrize("criterion", CRITERIA)
def test_constant_targets(criterion, wave):
    X, _ = wave
    fitted = model(criterion).fit(X, np.full(40, 3.0))
    assert fitted.bandwidth_ > 0.0
    assert_array_equal(fitted.predict([[0.2], [-70.0]]), 3.0)
    if criterion != "aicc":  # whose logarithm of zero is minus infinity
        assert fitted.criterion_ == 0.0


@pytest.mark.parametrize("weights", [None, 0.5], ids=["multiplicities", "importances"])
@pytest.mark.parametrize("criterion", CRITERIA)
@ignore_copies
def test_discrete_features_and_binary_targets(criterion, weights):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 3, (90, 1)).astype(float)
    y = (rng.random(90) < np.array([0.1, 0.5, 0.9])[X[:, 0].astype(int)]).astype(float)
    fitted = model(criterion).fit(X, y, sample_weight=weights)
    assert np.isfinite(fitted.criterion_)
    predictions = fitted.predict([[0.0], [1.0], [2.0]])
    if weights is None:  # there is much to be learned from rows of the same features
        assert fitted.bandwidth_ < 1.0
        assert_allclose(predictions, [y[X[:, 0] == k].mean() for k in range(3)], atol=0.1)
    assert ((predictions >= 0.0) & (predictions <= 1.0)).all()


# ---------------------------------------------------------------------------------------------
# Properties of any data


def data(seed, d, n=24):
    """Rows on a lattice, so that shifting and scaling are exact; a smooth function and noise."""
    rng = np.random.default_rng(seed)
    X = np.round(32.0 * rng.standard_normal((n, d))) / 8.0
    return X, np.sin(X[:, 0]) + 0.3 * rng.standard_normal(n)


@given(criteria, seeds, features, st.integers(-40, 40), st.integers(-1000, 1000))
@few
def test_units_and_origin_of_features_do_not_matter(criterion, seed, d, exponent, offset):
    X, y = data(seed, d)
    unit = np.array([2.0**exponent, 1.0])[:d]
    fitted, moved = model(criterion).fit(X, y), model(criterion).fit((X + offset) * unit, y)
    assert_allclose(moved.bandwidth_, fitted.bandwidth_ * unit, rtol=1e-6)
    assert_allclose(moved.criterion_, fitted.criterion_, rtol=1e-9)


@given(criteria, seeds, features)
@few
def test_order_of_rows_does_not_matter(criterion, seed, d):
    X, y = data(seed, d)
    order = np.random.default_rng(seed).permutation(len(y))
    fitted, shuffled = model(criterion).fit(X, y), model(criterion).fit(X[order], y[order])
    assert_array_equal(shuffled.bandwidth_, fitted.bandwidth_)
    assert shuffled.criterion_ == fitted.criterion_


@given(criteria, seeds, features)
@few
@ignore_copies
def test_weights_are_repetitions(criterion, seed, d):
    X, y = data(seed, d)
    weights = np.random.default_rng(seed).integers(0, 4, len(y))
    weighted = model(criterion).fit(X, y, sample_weight=weights)
    repeated = model(criterion).fit(np.repeat(X, weights, axis=0), np.repeat(y, weights))
    assert_allclose(weighted.bandwidth_, repeated.bandwidth_, rtol=1e-6)
    assert_allclose(weighted.criterion_, repeated.criterion_, rtol=1e-9)


@given(criteria, seeds, st.booleans())
@few
@ignore_copies
def test_rows_of_zero_weight_are_absent(criterion, seed, is_importance):
    X, y = data(seed, 1)
    rng = np.random.default_rng(seed)
    weights = rng.random(len(y)) if is_importance else np.ones(len(y))
    weights[rng.permutation(len(y))[:8]] = 0.0
    kept = weights > 0.0
    fitted = model(criterion).fit(X, y, sample_weight=weights)
    expected = model(criterion).fit(X[kept], y[kept], sample_weight=weights[kept])
    assert_array_equal(fitted.bandwidth_, expected.bandwidth_)
    assert fitted.criterion_ == expected.criterion_


@given(criteria, seeds, features, st.floats(0.01, 100.0))
@few
@ignore_copies
def test_importances_matter_by_their_ratios_only(criterion, seed, d, factor):
    X, y = data(seed, d)
    weights = np.random.default_rng(seed).uniform(0.5, 1.5, len(y))
    fitted = model(criterion).fit(X, y, sample_weight=weights)
    scaled = model(criterion).fit(X, y, sample_weight=weights * factor)
    assert_allclose(scaled.bandwidth_, fitted.bandwidth_, rtol=1e-6)
    assert_allclose(scaled.criterion_, fitted.criterion_, rtol=1e-9)


@given(criteria, seeds, features)
@few
def test_criterion_is_below_every_grid(criterion, seed, d):
    X, y = data(seed, d)
    fitted = model(criterion).fit(X, y)
    multiples = np.append(np.geomspace(0.02, 50.0, 60), np.inf)
    others = multiples[:, None] * spread(X, np.ones(len(y)))
    if criterion != "gcv":  # whose minima where fits almost interpolate are many and narrow
        nearby = np.exp(0.1 * np.random.default_rng(seed).uniform(-1.0, 1.0, (30, d)))
        others = np.concatenate([others, fitted.bandwidth_ * nearby])
    curve = fitted.criterion_curve(others, criterion=criterion)
    # as sharply as searches stop
    assert fitted.criterion_ <= (curve + 1e-5 * np.abs(curve)).min()


@given(criteria, st.sampled_from(["gaussian", "laplace", "student", "tricube"]), seeds, features)
@few
def test_criterion_is_the_curve_at_the_bandwidth(criterion, kernel, seed, d):
    X, y = data(seed, d)
    fitted = model(criterion, kernel=kernel).fit(X, y)
    curve = fitted.criterion_curve([fitted.bandwidth_], criterion=criterion)
    assert_allclose(curve, fitted.criterion_, rtol=1e-10)


@given(criteria, seeds, features, st.floats(0.01, 100.0), st.floats(-100.0, 100.0))
@few
def test_units_and_origin_of_targets_do_not_matter(criterion, seed, d, unit, offset):
    X, y = data(seed, d)
    fitted, moved = model(criterion).fit(X, y), model(criterion).fit(X, -unit * y + offset)
    assert_allclose(moved.bandwidth_, fitted.bandwidth_, rtol=1e-5)
    if criterion == "aicc":
        expected = fitted.criterion_ + 2.0 * np.log(unit)
        assert_allclose(moved.criterion_, expected, rtol=1e-9, atol=1e-9)
    else:
        assert_allclose(moved.criterion_, fitted.criterion_ * unit**2, rtol=1e-9)


@given(criteria, st.sampled_from(["gaussian", "epanechnikov", "uniform"]), seeds)
@few
def test_a_bandwidth_for_each_feature_is_no_worse_than_a_common_one(criterion, kernel, seed):
    X, y = data(seed, 2)
    scale = spread(X, np.ones(len(y)))
    each = model(criterion, kernel=kernel).fit(X, y)
    common = model(criterion, kernel=kernel, anisotropic=False).fit(X, y)
    multiples = common.bandwidth_ / scale
    assert_allclose(multiples, multiples[0], rtol=1e-12)
    assert each.criterion_ <= common.criterion_


# ---------------------------------------------------------------------------------------------
# Sample weights


@ignore_copies
def test_weights_of_two_and_three_are_repetitions():
    X, y = data(1, 1, n=20)
    weights = np.append(np.full(19, 2), 3)
    weighted = model().fit(X, y, sample_weight=weights)
    repeated = model().fit(np.repeat(X, weights, axis=0), np.repeat(y, weights))
    assert_allclose(weighted.bandwidth_, repeated.bandwidth_, rtol=1e-6)
    left_out = repeated.predict(None)[np.cumsum(weights) - 1]
    assert_allclose(weighted.predict(None), left_out, rtol=1e-6)


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("total", [1.0, 0.37])
def test_weights_that_sum_to_one(criterion, total, wave):
    X, y = wave
    expected = model(criterion).fit(X, y)
    equal = model(criterion).fit(X, y, sample_weight=np.full(40, total / 40))
    assert_allclose(equal.bandwidth_, expected.bandwidth_, rtol=1e-6)
    assert_allclose(equal.criterion_, expected.criterion_, rtol=1e-9)
    shares = np.random.default_rng(0).dirichlet(np.full(40, 20.0))
    uneven = model(criterion).fit(X, y, sample_weight=total * shares)
    larger = model(criterion).fit(X, y, sample_weight=777.7 * shares)
    assert_allclose(uneven.bandwidth_, larger.bandwidth_, rtol=1e-6)


def test_rows_of_tiny_weight_do_not_count(wave):
    X, y = wave
    y = y.copy()
    y[20:] = 10.0 * np.random.default_rng(1).standard_normal(20)
    weights = np.where(np.arange(40) < 20, 1.0, 1e-12)
    fitted = model().fit(X, y, sample_weight=weights)
    expected = model().fit(X[:20], y[:20])
    assert_allclose(fitted.bandwidth_, expected.bandwidth_, rtol=0.01)
    assert_allclose(fitted.criterion_, expected.criterion_, rtol=1e-4)


def test_zero_weights_are_absent_rows(wave):
    X, y = wave
    absent = [5, 17, 30]
    weights = np.ones(40)
    weights[absent] = 0.0
    fitted = model().fit(X, y, sample_weight=weights)
    expected = model().fit(np.delete(X, absent, axis=0), np.delete(y, absent))
    assert_array_equal(fitted.bandwidth_, expected.bandwidth_)
    assert_array_equal(fitted.predict(X), expected.predict(X))


def test_leave_one_out_removes_one_unit():
    X, y, weights = np.array([[0.0], [1.0], [2.0]]), np.array([0.0, 1.0, 5.0]), [2, 1, 3]
    fitted = model(1.0).fit(X, y, sample_weight=weights)
    expected = np.array([1.3100681135, 3.0, 3.6864055816])
    assert_allclose(fitted.predict(None), expected, rtol=1e-9)
    loo = np.average((y - expected) ** 2, weights=weights)
    assert_allclose(fitted.criterion_curve([1.0]), loo, rtol=1e-9)
    # as importances, whole rows go
    fitted.fit(X, y, sample_weight=np.array(weights) / 7.0)
    expected = np.array([2.6039158921, 3.0, 0.691438454])
    assert_allclose(fitted.predict(None), expected, rtol=1e-9)
    loo = np.average((y - expected) ** 2, weights=weights)
    assert_allclose(fitted.criterion_curve([1.0]), loo, rtol=1e-9)


# ---------------------------------------------------------------------------------------------
# Copies and groups


def copies(n_copied):
    X, y = data(3, 2, n=20)
    rows = np.append(np.arange(20), np.arange(n_copied))
    return X[rows], y[rows], rows


def test_many_copies_are_warned_of_once():
    X, y, _ = copies(3)  # 6 of 23 rows
    with pytest.warns(UserWarning, match="26% of the training rows.*copies.*groups") as record:
        model().fit(X, y)
    assert len(record) == 1
    assert record[0].filename == __file__


def test_weights_are_copies_too():
    X, y = data(3, 2, n=20)
    with pytest.warns(UserWarning, match="26% of the training rows"):
        model().fit(X, y, sample_weight=np.append(np.full(3, 2), np.ones(17)))


@pytest.mark.parametrize("case", ["few", "groups", "gcv", "aicc", "rule"])
def test_no_warning_of_copies(case):
    X, y, rows = copies(2 if case == "few" else 15)  # 4 of 22 rows
    bandwidth = {"gcv": "gcv", "aicc": "aicc", "rule": "scott"}.get(case, "loo")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(bandwidth).fit(X, y, groups=rows if case == "groups" else None)


def test_copies_in_groups_are_as_no_copies():
    X, y, rows = copies(20)
    grouped, expected = model().fit(X, y, groups=rows), model().fit(X[:20], y[:20])
    assert_allclose(grouped.criterion_, expected.criterion_, rtol=1e-6)
    assert_allclose(grouped.bandwidth_, expected.bandwidth_, rtol=1e-2)
    curve = [[0.3, 0.3], [1.0, 0.5], [2.0, np.inf]]
    assert_allclose(grouped.criterion_curve(curve), expected.criterion_curve(curve), rtol=1e-12)


@pytest.mark.parametrize("kernel", ["gaussian", "epanechnikov"])
@pytest.mark.parametrize("weights", ["none", "multiplicities", "importances"])
def test_leaving_a_group_out_is_a_fit_without_it(kernel, weights):
    X, y = data(5, 2)
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 5, 24)
    sample_weight = {"none": np.ones(24), "multiplicities": rng.integers(0, 4, 24)}.get(
        weights, rng.random(24)
    )
    fitted = model([2.0, 3.0], kernel=kernel).fit(X, y, sample_weight, groups=groups)
    expected = np.empty(24)
    for group in range(5):
        out = groups == group
        without = model([2.0, 3.0], kernel=kernel).fit(X[~out], y[~out], sample_weight[~out])
        expected[out] = without.predict(X[out])
    assert_allclose(fitted.predict(None), expected, rtol=1e-10, atol=1e-12)
    loo = np.average((y - expected) ** 2, weights=sample_weight)
    assert_allclose(fitted.criterion_curve([[2.0, 3.0]]), loo, rtol=1e-10)
    selected = model(kernel=kernel).fit(X, y, sample_weight, groups=groups)
    loo = np.average((y - selected.predict(None)) ** 2, weights=sample_weight)
    assert_allclose(selected.criterion_, loo, rtol=1e-9)


def test_labels_of_groups_may_be_text():
    X, y = data(5, 2)
    groups = np.arange(24) // 4
    labels = np.array(["b", "a", "é", "d", "x y", "c"])[groups]
    expected = model().fit(X, y, groups=groups)
    for given_labels in (labels, list(labels), labels.astype(object)):
        fitted = model().fit(X, y, groups=given_labels)
        assert_allclose(fitted.bandwidth_, expected.bandwidth_, rtol=1e-9)
        assert_allclose(fitted.predict(None), expected.predict(None), rtol=1e-9)


@pytest.mark.parametrize(
    ("criterion", "groups", "message"),
    [
        ("loo", np.zeros(24), "groups must have two labels"),
        ("loo", np.arange(23), "groups"),
        ("gcv", np.arange(24), "cannot use groups"),
        ("aicc", np.arange(24), "cannot use groups"),
    ],
    ids=["single", "length", "gcv", "aicc"],
)
def test_groups_that_are_refused(criterion, groups, message):
    X, y = data(5, 2)
    with pytest.raises(ValueError, match=message):
        model(criterion).fit(X, y, groups=groups)


def test_groups_of_rows_of_no_weight_do_not_count():
    X, y = data(5, 2)
    weights = np.repeat([1, 0], 12)
    with pytest.raises(ValueError, match="groups must have two labels"):
        model().fit(X, y, weights, groups=np.repeat(["a", "b"], 12))


@pytest.mark.parametrize("routing", [False, True])
def test_groups_of_a_search_go_to_its_splitter(routing):
    X, y = data(6, 1, n=30)
    with sklearn.config_context(enable_metadata_routing=routing):
        search = GridSearchCV(model(), {"kernel": ["gaussian", "tricube"]}, cv=GroupKFold(3))
        search.fit(X, y, groups=np.arange(30) // 3)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    expected = model(**search.best_params_).fit(X, y)  # without groups
    assert_array_equal(search.best_estimator_.bandwidth_, expected.bandwidth_)


def test_groups_are_routed_to_fit_on_request():
    X, y = data(6, 1, n=30)
    groups = np.arange(30) // 3
    with sklearn.config_context(enable_metadata_routing=True):
        pipeline = make_pipeline(StandardScaler(), model().set_fit_request(groups=True))
        fitted = pipeline.fit(X, y, groups=groups)
    expected = model().fit(StandardScaler().fit_transform(X), y, groups=groups)
    assert_allclose(fitted[-1].bandwidth_, expected.bandwidth_, rtol=1e-12)


# ---------------------------------------------------------------------------------------------
# Several outputs


@pytest.mark.parametrize("criterion", CRITERIA)
def test_one_set_of_bandwidths_serves_all_outputs(criterion):
    X, y = data(7, 2, n=60)
    other = np.cos(X[:, 1]) + 0.3 * np.random.default_rng(0).standard_normal(60)
    both = np.column_stack([y, other])
    fitted = model(criterion).fit(X, both)
    assert fitted.bandwidth_.shape == (2,)
    rescaled = model(criterion).fit(X, both * [1e6, 1.0])
    assert_allclose(rescaled.bandwidth_, fitted.bandwidth_, rtol=1e-5)
    assert_allclose(rescaled.criterion_, fitted.criterion_, rtol=1e-9)


def test_criterion_of_outputs_is_the_mean_in_units_of_their_variance():
    X, y = data(7, 2, n=60)
    both = np.column_stack([y, 100.0 * np.cos(X[:, 1])])
    fitted = model().fit(X, both)
    shares = ((both - fitted.predict(None)) ** 2).mean(axis=0) / both.var(axis=0)
    assert_allclose(fitted.criterion_, shares.mean(), rtol=1e-9)
    for j in range(2):
        alone = model().fit(X, both[:, j])
        assert alone.criterion_ / both[:, j].var() <= shares[j] * (1.0 + 1e-5)


@pytest.mark.parametrize("criterion", CRITERIA)
def test_a_constant_output_does_not_matter(criterion, wave):
    X, y = wave
    fitted = model(criterion).fit(X, np.column_stack([y, np.full(40, 7.0)]))
    expected = model(criterion).fit(X, y)
    assert_allclose(fitted.bandwidth_, expected.bandwidth_, rtol=1e-5)
    assert_array_equal(fitted.predict(X)[:, 1], 7.0)


# ---------------------------------------------------------------------------------------------
# Many rows


def test_a_sample_of_queries_is_deterministic_and_close():
    X, y = data(8, 2, n=500)
    fitted = model(max_queries=250).fit(X, y)
    order = np.random.default_rng(0).permutation(500)
    for again in (model(max_queries=250).fit(X, y), model(max_queries=250).fit(X[order], y[order])):
        assert_array_equal(again.bandwidth_, fitted.bandwidth_)
        assert again.criterion_ == fitted.criterion_
    full = model().fit(X, y)
    assert fitted.criterion_ != full.criterion_
    reached = np.mean((y - fitted.predict(None)) ** 2)
    assert full.criterion_ <= reached <= 1.05 * full.criterion_


@pytest.mark.parametrize(("n", "seed"), [(1000, 3), (2000, 2)])
def test_few_rows_do_not_mislead_the_search_for_lines(n, seed):
    # here narrow bandwidths, at which lines nearly interpolate, are best on few of the rows
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 2))
    y = np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1] + 0.3 * rng.standard_normal(n)
    fitted = model(degree=1, max_queries=500).fit(X, y)
    along = np.array([[h, np.inf] for h in (0.1, 0.15, 0.2, 0.3)])
    assert fitted.criterion_ <= 1.02 * fitted.criterion_curve(along).min()


@pytest.mark.slow
def test_more_rows_than_pilots():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2500, 2)) * [1.0, 1e6]
    y = np.sin(3.0 * X[:, 0]) + 0.3 * rng.standard_normal(2500)
    fitted = model().fit(X, y)
    assert 0.03 < fitted.bandwidth_[0] < 0.1
    assert fitted.bandwidth_[1] > 1e6
    around = fitted.bandwidth_ * np.array([[0.9, 1.0], [1.1, 1.0], [0.5, 1.0], [2.0, 1.0]])
    assert fitted.criterion_ <= fitted.criterion_curve(around).min()


# ---------------------------------------------------------------------------------------------
# In scikit-learn


def test_in_a_pipeline_and_a_search(wave):
    X, y = wave
    pipeline = make_pipeline(StandardScaler(), model())
    fitted = pipeline.fit(X, y)
    assert_allclose(fitted[-1].bandwidth_ * X.std(), 0.05593, atol=1e-5)
    kernels = ["gaussian", "laplace", "epanechnikov"]
    search = GridSearchCV(pipeline, {"nadarayawatsonregressor__kernel": kernels}, cv=4).fit(X, y)
    for kernel, score in zip(kernels, search.cv_results_["mean_test_score"], strict=True):
        expected = cross_val_score(
            make_pipeline(StandardScaler(), model(kernel=kernel)), X, y, cv=4
        )
        assert_allclose(score, expected.mean(), rtol=1e-12)


def test_processes_do_not_matter(wave):
    X, y = wave
    one, two = (cross_val_score(model(), X, y, cv=4, n_jobs=k) for k in (1, 2))
    assert_array_equal(one, two)
    threads = model(n_jobs=2).fit(X, y)
    assert_array_equal(threads.bandwidth_, model().fit(X, y).bandwidth_)


def test_a_second_fit_selects_anew(wave):
    X, y = wave
    fitted = model().fit(X, y)
    first = fitted.bandwidth_
    fitted.fit(X, np.random.default_rng(0).permutation(y))
    assert fitted.bandwidth_ != first
    assert fitted.get_params() == model().get_params()
    assert not hasattr(fitted.set_params(bandwidth=1.0).fit(X, y), "criterion_")


# ---------------------------------------------------------------------------------------------
# Starts


def leave_one_out(X, y):
    rows, weights = np.arange(len(y)), np.ones(len(y))
    coordinates = (X - X.mean(axis=0)) / spread(X, weights)
    values = (y - y.mean())[:, None] / y.std()
    without = Exclusion(rows, rows + 1, np.zeros(len(y)))
    return objective(coordinates, values, weights, without, "loo", KERNELS["gaussian"])


def starts(common, n, d):
    rng = np.random.default_rng(0)
    return {
        "common": common,
        "rule": np.full(d, np.log(1.06) - np.log(n) / (d + 4)),
        "narrow": np.full(d, np.log(0.2)),
        "wide": np.full(d, np.log(5.0)),
        "random": rng.uniform(np.log(0.2), np.log(5.0), d),
        "another": rng.uniform(np.log(0.2), np.log(5.0), d),
    }


def surface(d):
    """300 rows; one smooth feature, from d = 5 on a second and a product; the rest is noise."""
    rng = np.random.default_rng(d)
    X = rng.standard_normal((300, d))
    y = np.sin(2.0 * X[:, 0]) + 0.3 * rng.standard_normal(300)
    return X, y + (0.5 * X[:, 1] if d == 2 else X[:, 1] * X[:, 2])


@pytest.mark.slow
@pytest.mark.parametrize("d", [2, 5, 10])
def test_each_start_finds_the_best_minimum(d):
    X, y = surface(d)
    criterion = leave_one_out(X, y)
    common = search_common(criterion, criterion)
    bounds = np.full(d, -9.0), np.full(d, 9.0)
    descent = LevenbergMarquardt(1e-8, 60, is_relative=True)
    found = {
        name: descent.minimize(criterion.linearize, start[None], bounds).values[0]
        for name, start in starts(common.point, 300, d).items()
    }
    best = min(found.values())
    assert {name: value for name, value in found.items() if value > best * (1.0 + 1e-4)} == {}
    assert search_each(criterion, criterion, []).value <= best * (1.0 + 1e-4)
    assert model().fit(X, y).criterion_ <= best * y.var() * (1.0 + 1e-4)


@pytest.mark.parametrize("outlier", [1e6, 1e20, 1e200, 1.7e308])
@pytest.mark.parametrize("criterion", CRITERIA)
def test_one_row_at_the_end_of_the_world_changes_little(criterion, outlier, rng):
    X = rng.standard_normal((60, 2))
    y = np.sin(2.0 * X[:, 0]) + 0.1 * rng.standard_normal(60)
    far = np.vstack([X, [[outlier, 0.0]]])
    fitted = model(criterion).fit(far, np.append(y, 0.0))
    assert np.isfinite(fitted.criterion_)
    alone = model(criterion).fit(X, y)
    assert fitted.bandwidth_[0] < 5.0 * alone.bandwidth_[0]
    assert np.abs(fitted.predict(X) - alone.predict(X)).max() < 0.5


def test_an_infinite_criterion_is_said_to_be_infinite(rng):
    # AICc asks for three rows more than degrees of freedom
    fitted = model("aicc").fit(rng.standard_normal((3, 2)), [0.0, 1.0, 5.0])
    assert fitted.criterion_ == np.inf
    assert_array_equal(fitted.bandwidth_, np.inf)
    assert_allclose(fitted.predict([[0.0, 0.0]]), 2.0)
