"""Variances of the targets, from leave-one-out residuals."""

import numpy as np
import pytest
from definitions import attention_weights, component_of, leave_one_out, training_set_of
from numpy.testing import assert_allclose

from skattn import NadarayaWatsonRegressor
from skattn._attention import Resources
from skattn._uncertainty import leave_one_out_residuals, local_means, value_variances

RESOURCES = Resources()


@pytest.mark.parametrize("degree", [0, 1])
def test_local_means_are_kernel_means_at_any_degree(degree, rng):
    X, columns, queries = rng.random((50, 1)), rng.random((50, 3)), rng.random((9, 1))
    component = component_of(training_set_of(X, X), 0.2, degree=degree)
    weights = np.exp(-0.5 * ((queries - component.training_set.X.T) / 0.2) ** 2)
    expected = weights @ columns / weights.sum(axis=1, keepdims=True)
    assert_allclose(local_means(component.at(queries), RESOURCES, columns), expected)


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("kind", ["multiplicities", "importances", "groups"])
def test_variances_are_means_of_squared_residuals_of_refits(kind, degree, rng):
    X, y = np.sort(rng.random((30, 1)), axis=0), rng.standard_normal(30)
    weights = {"multiplicities": rng.integers(1, 4, 30), "importances": rng.random(30)}.get(kind)
    groups = np.arange(30) // 2 if kind == "groups" else None
    training_set = training_set_of(X, y, weights, groups)
    component = component_of(training_set, 0.3, degree=degree)
    refitted = leave_one_out(NadarayaWatsonRegressor(0.3, degree=degree), X, y, weights, groups)
    left_out, unit = leave_one_out_residuals(component, RESOURCES), component.scaling
    residuals = unit.restore_differences(left_out.residuals)[:, 0]
    assert_allclose(residuals, y - refitted, rtol=1e-7)
    assert_allclose(left_out.counts, training_set.counts())
    alike, local = (value_variances(component, RESOURCES, local=each) for each in (False, True))
    squares = left_out.residuals[:, 0] ** 2
    assert_allclose(alike[:, 0], np.average(squares, weights=training_set.counts()))
    around, _ = attention_weights(component.in_sample().attention)
    assert_allclose(local[:, 0], around @ squares)
