"""Descents from many starts at once."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skattn._attention import Resources
from skattn._bandwidth._bend import bend, stretch
from skattn._bandwidth._objective import Objective
from skattn._bandwidth._scout import MeanFleet, scout
from skattn._geometry import Own
from skattn.kernels import KERNELS


def few_rows(kernel, *, grouped=False, n=60):
    rng = np.random.default_rng(0)
    X, every = rng.standard_normal((n, 2)), np.arange(n)
    values = np.column_stack([np.sin(2.0 * X[:, 0]), rng.standard_normal(n)])
    weights = rng.integers(1, 3, n).astype(float)
    own = Own(every, every + 1, 1.0 - 1.0 / weights)
    if grouped:
        own = Own(every // 3 * 3, every // 3 * 3 + 3, np.zeros(n))
    return Objective(X, values, weights, own, "loo", kernel, weights.sum(), every, Resources())


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("name", [name for name, kernel in KERNELS.items() if kernel.has_slope])
def test_a_fleet_sees_what_the_objective_does(name, grouped):
    objective = few_rows(KERNELS[name], grouped=grouped)
    logs = np.array([[0.3, 0.5], [1.0, 2.0], [-0.2, 0.1], [-3.0, -3.0]])
    logs += 0.8 if np.isfinite(KERNELS[name].support) else 0.0
    values, gradients, matrices = MeanFleet(objective).linearize(bend(logs))
    for log, factor, *seen in zip(logs, stretch(logs), values, gradients, matrices, strict=True):
        value, gradient, matrix = objective.linearize(log)
        assert_allclose(seen[0], value, rtol=1e-5)
        assert_allclose(seen[1], factor * gradient, rtol=1e-3, atol=1e-5)
        assert_allclose(seen[2], factor[:, None] * matrix * factor, rtol=1e-3, atol=1e-5)


def test_starts_that_meet_arrive_once():
    objective = few_rows(KERNELS["gaussian"])
    start = np.array([-0.5, 0.5])
    values, logs = scout(MeanFleet(objective), np.stack([start, start, start + 0.01]), 30, 1e-6)
    assert len(values) == len(logs) == 1
    assert_allclose(values[0], objective.value(logs[0]), rtol=1e-5)
