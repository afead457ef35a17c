"""Criteria under many bandwidths at once, against one after the other."""

from dataclasses import replace

import numpy as np
import pytest
from definitions import SLOPED, objective
from numpy.testing import assert_allclose

from skattn import NadarayaWatsonRegressor
from skattn._bandwidth import CRITERIA
from skattn._bandwidth.batched_fits import BatchedFits
from skattn._geometry.training_set import Exclusion
from skattn._optimize import EarlyAbandonment, LevenbergMarquardt
from skattn.kernels import KERNELS

LOGS = np.array(
    [[0.3, 0.5, 0.2], [1.0, 2.0, 0.5], [-0.2, 0.1, 0.4], [8.0, 0.2, 3.0], [-3.0, -3.0, -3.0]]
)
# means are computed in single precision
DIGITS = {0: (1e-5, 1e-3), 1: (1e-10, 1e-8)}


def few_rows(name, n_features, degree, criterion="loo", *, grouped=False, n=60):
    rng = np.random.default_rng(0)
    X, every = rng.standard_normal((n, n_features)), np.arange(n)
    values = np.column_stack([np.sin(2.0 * X[:, 0]), rng.standard_normal(n)])
    weights = rng.integers(1, 3, n).astype(float)
    excluded = Exclusion(every, every + 1, 1.0 - 1.0 / weights)
    if criterion != "loo":
        excluded = Exclusion(every, every + 1, np.ones(n))
    elif grouped:
        excluded = Exclusion(every // 3 * 3, every // 3 * 3 + 3, np.zeros(n))
    kernel = KERNELS[name]
    return objective(X, values, weights, excluded, criterion, kernel, degree=degree)


def shifted(name, n_features):
    """Log-bandwidths at which each row has neighbours for a line."""
    return LOGS[:3, :n_features] + (0.8 if np.isfinite(KERNELS[name].support) else 0.0)


def assert_agree(exact, logs, degree):
    batched = exact.approximate()
    assert batched.batched is not None
    values, gradients, matrices = batched.linearize(logs)
    rtol, of_slopes = DIGITS[degree]
    assert_allclose(batched.values(logs), values, rtol=rtol)
    expected = exact.linearize(logs)
    assert_allclose(values, expected[0], rtol=rtol)
    for seen, wanted in ((gradients, expected[1]), (matrices, expected[2])):
        assert_allclose(seen, wanted, rtol=of_slopes, atol=of_slopes * np.abs(wanted).max())


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("n_features", [1, 2, 3])
@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("name", SLOPED)
def test_many_at_once_agree_with_one_at_a_time(name, grouped, n_features, degree):
    exact = few_rows(name, n_features, degree, grouped=grouped)
    assert_agree(exact, shifted(name, n_features), degree)


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("criterion", [name for name in CRITERIA if name != "loo"])
@pytest.mark.parametrize("name", ["gaussian", "tricube"])
def test_criteria_of_leverages_too(name, criterion, degree):
    exact = few_rows(name, 2, degree, criterion)
    assert_agree(exact, shifted(name, 2), degree)


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("name", SLOPED)
def test_where_a_feature_is_smoothed_out_or_rows_are_alone(name, degree):
    exact = few_rows(name, 2, degree)
    logs = np.vstack([LOGS[3:, :2], [[0.5, np.inf]]])
    assert_allclose(exact.approximate().values(logs), exact.values(logs), rtol=1e-5)


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_without_slopes_have_values(name):
    exact = few_rows(name, 2, 0)
    logs = LOGS[:2, :2] + 1.0
    assert_allclose(exact.approximate().values(logs), exact.values(logs), rtol=1e-5)


def test_an_outlier_does_not_disturb():
    exact = few_rows("gaussian", 2, 1)
    coordinates = exact.sample.coordinates.copy()
    coordinates[-1] = 1e6
    far = replace(exact, sample=replace(exact.sample, coordinates=coordinates))
    values = far.approximate().values(LOGS[:, :2])
    assert_allclose(values, far.values(LOGS[:, :2]), rtol=1e-6)


def test_more_outputs_and_features_than_are_usual():
    rng = np.random.default_rng(1)
    exact = few_rows("gaussian", 3, 1)
    sample = replace(
        exact.sample,
        coordinates=rng.standard_normal((60, 5)),
        values=rng.standard_normal((60, 3)),
    )
    assert_agree(replace(exact, sample=sample), rng.uniform(-0.5, 1.5, (4, 5)), 1)


def test_fewer_queries_are_those_queries():
    exact = few_rows("gaussian", 2, 1)
    fewer = exact.at_most(20)
    assert len(fewer.sample.queries) == 20
    logs = LOGS[:3, :2]
    assert_allclose(fewer.approximate().values(logs), fewer.values(logs), rtol=1e-10)
    assert_allclose(exact.at_most(100).values(logs), exact.values(logs), rtol=0.0)


@pytest.mark.parametrize("degree", [0, 1])
def test_blocks_of_queries_do_not_matter(monkeypatch, degree):
    approximate = few_rows("epanechnikov", 2, degree).approximate()
    whole = approximate.linearize(LOGS[:, :2])
    monkeypatch.setattr("skattn._bandwidth.batched_fits._CACHED_ENTRIES", 1500)
    parts = approximate.linearize(LOGS[:, :2])
    for one, other in zip(whole, parts, strict=True):
        assert_allclose(one, other, rtol=DIGITS[degree][0], atol=1e-6 if degree == 0 else 1e-13)


def test_too_much_memory_is_not_taken():
    lines = few_rows("gaussian", 3, 1)
    assert BatchedFits.can_hold(lines.sample, KERNELS["gaussian"], 1)
    wide = few_rows("gaussian", 30, 1, n=300)
    assert not BatchedFits.can_hold(wide.sample, KERNELS["gaussian"], 1)
    assert wide.approximate().batched is None
    assert replace(lines, axes=np.eye(3)).approximate().batched is None


def test_starts_that_meet_arrive_once():
    approximate = few_rows("gaussian", 2, 0).approximate()
    start = np.array([-0.5, 0.5])
    starts, bounds = np.stack([start, start, start + 0.01]), (np.full(2, -9.0), np.full(2, 2.0))
    method = LevenbergMarquardt(1e-6, 30, is_relative=True)
    found = method.minimize(approximate.linearize_saturated, starts, bounds, EarlyAbandonment(0.05))
    assert found.is_merged.sum() == 2


def random_problem(seed):
    """Two or three features, 40 to 120 rows, of several shapes."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(40, 121)), int(rng.integers(2, 4))
    X = rng.standard_normal((n, d)) if seed % 2 else rng.uniform(-2.0, 2.0, (n, d))
    y = (
        np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 0] * X[:, 1],
        np.cos(3.0 * X[:, 0]) * X[:, 1],
        np.abs(X).sum(axis=1),
    )[seed % 3]
    return X, y + (0.1, 0.5)[seed % 2] * rng.standard_normal(n)


def best_of_random_descents(X, y, n_starts=12):
    n, d = X.shape
    every, order = np.arange(n), np.lexsort(X.T[::-1])
    exact = objective(
        (X[order] - X.mean(axis=0)) / X.std(axis=0),
        ((y[order] - y.mean()) / y.std())[:, None],
        np.ones(n),
        Exclusion(every, every + 1, np.zeros(n)),
        "loo",
        KERNELS["gaussian"],
        degree=1,
    )
    starts = np.random.default_rng(9).uniform(-3.0, 1.0, (n_starts, d))
    method = LevenbergMarquardt(1e-7, 60, is_relative=True)
    found = method.minimize(exact.linearize, starts, (np.full(d, -9.0), np.full(d, 9.0)))
    return found.values.min() * y.var()


@pytest.mark.parametrize("seed", range(10))
def test_random_descents_find_no_lower_criterion(seed):
    X, y = random_problem(seed)
    model = NadarayaWatsonRegressor(degree=1).fit(X, y)
    assert model.criterion_ <= best_of_random_descents(X, y) * (1.0 + 1e-3)


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("name", ["uniform", "epanechnikov"])
def test_ties_of_the_nearest_where_nothing_is_inside(name, degree):
    rng = np.random.default_rng(2)
    X, values = rng.permutation(60)[:30, None] / 10.0, rng.standard_normal((30, 1))
    without = Exclusion(np.arange(30), np.arange(30) + 1, np.zeros(30))
    exact = objective(X, values, np.ones(30), without, "loo", KERNELS[name], degree=degree)
    logs = np.log([[0.01], [0.05]])
    assert_allclose(exact.approximate().values(logs), exact.values(logs), rtol=1e-5)
