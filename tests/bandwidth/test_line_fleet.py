"""Local lines at many bandwidths at once."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skattn import NadarayaWatsonRegressor
from skattn._attention import Resources
from skattn._bandwidth._bend import bend, stretch
from skattn._bandwidth._descent import gauss_newton
from skattn._bandwidth._line_fleet import LineFleet
from skattn._bandwidth._objective import Objective
from skattn._bandwidth._scout import can_scout, fleet_of, scout
from skattn._geometry import Own
from skattn.kernels import KERNELS

SLOPED = [name for name, kernel in KERNELS.items() if kernel.has_slope]
LOGS = np.array(
    [[0.3, 0.5, 0.2], [1.0, 2.0, 0.5], [-0.2, 0.1, 0.4], [8.0, 0.2, 3.0], [-3.0, -3.0, -3.0]]
)


def few_rows(kernel, n_features, *, grouped=False, n=60):
    rng = np.random.default_rng(0)
    X, every = rng.standard_normal((n, n_features)), np.arange(n)
    values = np.column_stack([np.sin(2.0 * X[:, 0]), rng.standard_normal(n)])
    weights = rng.integers(1, 3, n).astype(float)
    own = Own(every, every + 1, 1.0 - 1.0 / weights)
    if grouped:
        own = Own(every // 3 * 3, every // 3 * 3 + 3, np.zeros(n))
    return Objective(
        X, values, weights, own, "loo", kernel, weights.sum(), every, Resources(), degree=1
    )


def assert_sees_the_same(fleet, objective, logs, tolerance):
    values, gradients, matrices = fleet.linearize(bend(logs))
    assert_allclose(fleet.judge(logs), values, rtol=tolerance)
    for log, factor, *seen in zip(logs, stretch(logs), values, gradients, matrices, strict=True):
        value, gradient, matrix = objective.linearize(log)
        size = np.abs(factor * gradient).max()
        wide = factor[:, None] * matrix * factor
        assert_allclose(seen[0], value, rtol=tolerance)
        assert_allclose(seen[1], factor * gradient, atol=1e3 * tolerance * size + 1e-10)
        atol = 1e3 * tolerance * np.abs(wide).max() + 1e-10
        assert_allclose(seen[2], wide, atol=atol)
        at_one = fleet.linearize_at(log)
        assert_allclose(at_one[0], value, rtol=tolerance)
        assert_allclose(factor * at_one[1], seen[1], atol=1e3 * tolerance * size + 1e-10)


@pytest.mark.parametrize("n_features", [1, 2, 3])
@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("name", SLOPED)
def test_a_fleet_of_lines_sees_what_the_objective_does(name, grouped, n_features):
    objective = few_rows(KERNELS[name], n_features, grouped=grouped)
    logs = LOGS[:, :n_features] + (0.8 if np.isfinite(KERNELS[name].support) else 0.0)
    fleet = LineFleet(objective)
    assert_sees_the_same(fleet, objective, logs[:3], 1e-11)


@pytest.mark.parametrize("name", SLOPED)
def test_where_a_feature_is_smoothed_out_or_rows_are_alone(name):
    objective = few_rows(KERNELS[name], 2)
    values = LineFleet(objective).judge(LOGS[3:, :2])
    assert_allclose(values, [objective.value(log) for log in LOGS[3:, :2]], rtol=1e-6)
    _, gradients, _ = LineFleet(objective).linearize(bend(LOGS[4:, :2]))
    exact = stretch(LOGS[4, :2]) * objective.linearize(LOGS[4, :2])[1]
    assert_allclose(gradients[0], exact, rtol=1e-4, atol=1e-6)


def test_an_outlier_and_rows_of_no_weight_do_not_disturb():
    objective = few_rows(KERNELS["gaussian"], 2)
    coordinates = objective.coordinates.copy()
    coordinates[-1] = 1e6
    far = replace(objective, coordinates=coordinates)
    values = LineFleet(far).judge(LOGS[:, :2])
    assert_allclose(values, [far.value(log) for log in LOGS[:, :2]], rtol=1e-6)


def test_more_outputs_and_features_than_are_usual():
    rng = np.random.default_rng(1)
    objective = few_rows(KERNELS["gaussian"], 3)
    wider = replace(
        objective,
        coordinates=rng.standard_normal((60, 5)),
        values=rng.standard_normal((60, 3)),
    )
    assert_sees_the_same(LineFleet(wider), wider, rng.uniform(-0.5, 1.5, (4, 5)), 1e-11)


def test_a_fleet_of_fewer_queries_is_the_objective_of_these():
    objective = few_rows(KERNELS["gaussian"], 2)
    fewer = replace(objective, rows=np.arange(0, 60, 3))
    fleet = LineFleet(objective)
    assert_allclose(
        fleet.at_most(20).judge(LOGS[:3, :2]),
        [fewer.value(log) for log in LOGS[:3, :2]],
        rtol=1e-12,
    )
    assert fleet.at_most(100).judge(LOGS[:1, :2]) == fleet.judge(LOGS[:1, :2])


def test_blocks_of_queries_do_not_matter(monkeypatch):
    objective = few_rows(KERNELS["epanechnikov"], 2)
    whole = LineFleet(objective).linearize(bend(LOGS[:, :2]))
    monkeypatch.setattr("skattn._bandwidth._line_fleet._CACHED_ENTRIES", 1500)
    parts = LineFleet(objective).linearize(bend(LOGS[:, :2]))
    for one, other in zip(whole, parts, strict=True):
        assert_allclose(one, other, rtol=1e-10, atol=1e-13)


def test_the_last_of_a_race_is_left_to_be_followed_alone():
    fleet = fleet_of(few_rows(KERNELS["gaussian"], 2))
    starts = np.random.default_rng(0).uniform(-1.0, 1.0, (12, 2))
    values, _ = scout(fleet, starts, 30, 1e-6, races=True)
    patient, _ = scout(fleet, starts, 30, 1e-6)
    assert_allclose(values.min(), patient.min(), rtol=1e-2)


def test_too_much_memory_is_not_taken():
    objective = few_rows(KERNELS["gaussian"], 3)
    assert can_scout(objective)
    assert not can_scout(few_rows(KERNELS["gaussian"], 30, n=300))
    assert not can_scout(replace(objective, axes=np.eye(3)))
    assert not can_scout(replace(objective, criterion="gcv"))


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
    n, spread = len(X), X.std(axis=0)
    every = np.arange(n)
    order = np.lexsort(X.T[::-1])
    objective = Objective(
        (X[order] - X.mean(axis=0)) / spread,
        ((y[order] - y.mean()) / y.std())[:, None],
        np.ones(n),
        Own(every, every + 1, np.zeros(n)),
        "loo",
        KERNELS["gaussian"],
        float(n),
        every,
        Resources(),
        degree=1,
    )
    starts = np.random.default_rng(9).uniform(-3.0, 1.0, (n_starts, X.shape[1]))
    found = [gauss_newton(objective.linearize, start, 1e-7).value for start in starts]
    return min(found) * y.var()


@pytest.mark.parametrize("seed", range(10))
def test_random_descents_find_no_lower_criterion(seed):
    X, y = random_problem(seed)
    model = NadarayaWatsonRegressor(degree=1).fit(X, y)
    assert model.criterion_ <= best_of_random_descents(X, y) * (1.0 + 1e-3)
