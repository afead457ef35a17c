"""Gradients of the criteria in log-bandwidths."""

import numpy as np
import pytest
from definitions import differences, objective
from numpy.testing import assert_allclose

from skattn._bandwidth import CRITERIA
from skattn._geometry.training_set import Exclusion
from skattn.kernels import KERNELS


def problem(name, rng, n=80, d=3):
    """Rows, two outputs, and bandwidths at which each row has neighbours for a line."""
    X, values = rng.standard_normal((n, d)), rng.standard_normal((n, 2))
    theta = np.log([0.8, 1.2, 1.7][:d])
    if np.isfinite(KERNELS[name].support):
        theta = theta + np.log(3.0)
    return X, values, theta


def excluded_of(kind, counts):
    every = np.arange(len(counts))
    if kind == "units":
        return Exclusion(every, every + 1, 1.0 - 1.0 / counts)
    if kind == "groups":
        return Exclusion(every // 3 * 3, np.minimum(every // 3 * 3 + 3, len(every)), 0.0 * counts)
    return Exclusion(every, every + 1, 1.0 + 0.0 * counts)


def objective_of(name, criterion, rng, degree):
    X, values, theta = problem(name, rng)
    weights = rng.integers(1, 3, 80).astype(float)
    kind = "units" if criterion == "loo" else "itself"
    excluded, queries = excluded_of(kind, weights), np.arange(0, 80, 2)
    judged = objective(
        X, values, weights, excluded, criterion, KERNELS[name], degree=degree, queries=queries
    )
    return judged, theta + np.log(2.0)


@pytest.mark.parametrize("name", ["gaussian", "student", "tricube"])
@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("criterion", CRITERIA)
def test_gradients_of_criteria_are_their_derivatives(criterion, degree, name, rng):
    judged, theta = objective_of(name, criterion, rng, degree)
    value, gradient, matrix = (each[0] for each in judged.linearize(theta[None]))
    assert_allclose(value, judged.value(theta), rtol=1e-10)
    expected = list(differences(judged.value, theta))
    assert np.abs(expected).max() > 1e-3
    assert_allclose(gradient, expected, rtol=1e-5, atol=1e-7)
    assert_allclose(matrix, matrix.T)
    assert (np.linalg.eigvalsh(matrix) >= -1e-15).all()


def test_smoothed_out_features_stay_in_the_lines_of_the_criterion(rng):
    # local in the first feature, a plane in the others: leave-one-out by least squares
    judged, theta = objective_of("gaussian", "loo", rng, 1)
    sample = judged.sample
    theta = np.array([theta[0], np.inf, np.inf])
    X, values, weights = sample.coordinates, sample.values, sample.weights
    columns = np.column_stack([np.ones(80), X])
    squares = np.zeros((80, 2))
    for i in sample.queries:
        counts = weights - (np.arange(80) == i)
        root = np.sqrt(counts * np.exp(-0.5 * ((X[:, 0] - X[i, 0]) / np.exp(theta[0])) ** 2))
        plane, *_ = np.linalg.lstsq(root[:, None] * columns, root[:, None] * values, rcond=None)
        squares[i] = (values[i] - columns[i] @ plane) ** 2
    queries = sample.queries
    expected = weights[queries] @ squares[queries].mean(axis=1)
    assert_allclose(judged.value(theta), expected / weights[queries].sum(), rtol=1e-9)
