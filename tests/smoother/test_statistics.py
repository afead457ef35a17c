"""What is read off the smoother matrix: weights, leverages, variances, neighbours, gradients."""

from dataclasses import replace

import numpy as np
import pytest
from definitions import (
    KERNEL_CASES,
    KINKED,
    SLOPED,
    attention_of,
    attention_weights,
    column,
    component_of,
    differences,
    kernel_of,
    regression_of,
    training_set_of,
)
from numpy.testing import assert_allclose, assert_array_equal

from skattn import NadarayaWatsonRegressor
from skattn._attention import KeyScale, Resources
from skattn._smoother import (
    component_weights,
    effective_neighbors,
    gradient,
    predict,
    prediction_variance,
    smoother_matrix,
)

RESOURCES = Resources()


def problem(rng, kernel="gaussian", degree=1, bandwidth=0.6, n=120):
    X = rng.standard_normal((n, 2))
    y = np.column_stack([np.sin(2.0 * X[:, 0]) + X.sum(axis=1), rng.standard_normal(n)])
    training_set = training_set_of(X, y, rng.integers(1, 4, n))
    return component_of(training_set, bandwidth, kernel, degree), 1.2 * rng.standard_normal((40, 2))


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("name", KERNEL_CASES)
def test_rows_of_the_smoother_matrix_give_the_predictions(name, degree, rng):
    component, queries = problem(rng, name, degree)
    regression = component.at(2.0 * queries)
    matrix, outside = smoother_matrix(regression, RESOURCES)
    prediction, _, is_outside = predict(regression, RESOURCES)
    assert_allclose(matrix.sum(axis=1), 1.0, atol=1e-9)
    assert_allclose(matrix @ regression.values, prediction, atol=1e-9)
    assert_array_equal(outside, is_outside)
    top, _ = smoother_matrix(regression, RESOURCES, top_k=9)
    assert_allclose(np.sort(np.abs(top.toarray()))[:, -9:], np.sort(np.abs(matrix))[:, -9:])
    if degree == 1:  # weights with which lines pass, and which are no means
        assert matrix.min() < -1e-3
        inner = ~outside & (np.abs(queries).max(axis=1) < 0.8)
        lines = matrix @ regression.products.regressors
        assert_allclose(lines[inner], regression.regressors[inner], atol=1e-7)
    else:
        assert_array_equal(component_weights(regression, RESOURCES)[0][0], matrix)


@pytest.mark.parametrize("adaptive", ["query", "key"])
def test_rows_of_adaptive_lines_give_the_predictions(adaptive, rng):
    component, queries = problem(rng, bandwidth=1.0)
    regression = component.with_neighbors(adaptive, 15).at(queries)
    matrix, _ = smoother_matrix(regression, RESOURCES)
    assert_allclose(matrix.sum(axis=1), 1.0, atol=1e-10)
    assert_allclose(matrix @ component.values, predict(regression, RESOURCES)[0], atol=1e-10)


def test_weights_of_lines_are_those_of_their_kernel(rng):
    component, queries = problem(rng)
    weights, gates, outside = component_weights(component.at(queries), RESOURCES)
    assert_allclose(weights[0], attention_weights(component.at(queries).attention)[0], atol=1e-13)
    assert_array_equal(gates, np.ones((1, 40)))
    assert not outside.any()


@pytest.mark.parametrize("adaptive", [None, "query", "key"])
@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("name", KERNEL_CASES)
def test_leverage_is_the_diagonal(name, degree, adaptive, rng):
    component, _ = problem(rng, name, degree, 1.0, n=60)
    if adaptive is not None:
        component = component.with_neighbors(adaptive, 25)
    matrix, _ = smoother_matrix(component.in_sample(), RESOURCES)
    _, leverage, _ = predict(component.in_sample(), RESOURCES)
    assert_allclose(leverage, np.diag(matrix), rtol=1e-8, atol=1e-12)
    # of least squares with positive weights, where no row is better fitted than by itself
    assert ((leverage > 0.0) & (leverage <= 1.0 + 1e-8)).all()


def test_leverage_of_absent_rows_is_zero():
    X = column(0.0, 1.0, 2.0)
    component = component_of(training_set_of(X, X, [1.0, 0.0, 1.0]), 1.0)
    _, leverage, _ = predict(component.in_sample(), RESOURCES)
    assert leverage[2] == 0.0
    assert_allclose(leverage[:2], 1.0 / (1.0 + np.exp(-2.0)))


@pytest.mark.parametrize("degree", [0, 1])
def test_variances_are_those_of_independent_rows(degree, rng):
    component, queries = problem(rng, degree=degree)
    training_set, variances = component.training_set, rng.random((120, 2))
    counts = training_set.weights.astype(int)
    found = prediction_variance(component.at(queries), RESOURCES, variances / counts[:, None])
    repeated = [np.repeat(rows, counts, axis=0) for rows in (training_set.X, training_set.y)]
    model = NadarayaWatsonRegressor(0.6, degree=degree).fit(*repeated)
    expected = model.attention_weights(queries) ** 2 @ np.repeat(variances, counts, axis=0)
    assert_allclose(found, expected, rtol=1e-8)


@pytest.mark.parametrize("degree", [0, 1])
def test_variances_without_the_row_itself(degree, rng):
    # of a multiplicity of three, two are left, which share its weight
    X, y, variances = np.sort(rng.standard_normal((30, 1)), 0), rng.random(30), rng.random((30, 1))
    component = component_of(training_set_of(X, y, np.full(30, 3.0)), 0.5, degree=degree)
    found = prediction_variance(component.leave_one_out(), RESOURCES, variances / 3.0)
    for i in (0, 11, 29):
        counts = 3 - (np.arange(30) == i)
        rest = [np.repeat(rows, counts, axis=0) for rows in (X, y, variances)]
        model = NadarayaWatsonRegressor(0.5, degree=degree).fit(*rest[:2])
        expected = model.attention_weights(X[i : i + 1]) ** 2 @ rest[2]
        assert_allclose(found[i], expected[0], rtol=1e-8)


def test_effective_neighbors_count_equal_weights():
    attention = attention_of(column(0.0, 50.0), column(0.0, 0.0, 0.0, 100.0))
    regression = regression_of(attention, column(1.0, 2.0, 3.0, 4.0))
    number, outside = effective_neighbors(regression, RESOURCES, np.ones(4))
    assert_allclose(number, [3.0, 4.0], rtol=1e-13)
    assert not outside.any()


# ---------------------------------------------------------------------------------------------
# Gradients


@pytest.mark.parametrize("scale", [None, "query", "key"])
@pytest.mark.parametrize("name", SLOPED)
def test_gradients_are_the_derivatives_of_means(name, scale, rng):
    width = 3.0 if np.isfinite(kernel_of(name).support) else 1.0
    keys, values = rng.standard_normal((60, 2)) / width, rng.standard_normal((60, 2))
    queries, weights = rng.standard_normal((15, 2)) / width, rng.random(60)
    scales = {
        None: {},
        "query": {"query_scale": rng.uniform(0.7, 1.4, 15)},
        "key": {"key_scale": KeyScale(rng.uniform(0.7, 1.4, 60))},
    }[scale]

    def at(shift):
        return regression_of(attention_of(queries + shift, keys, name, weights, **scales), values)

    found, outside = gradient(at(0.0), queries, RESOURCES)
    assert not outside.any()
    tolerance = 1e-4 if name in KINKED else 1e-6
    slopes = differences(lambda shift: predict(at(shift), RESOURCES)[0], np.zeros(2))
    for j, slope in enumerate(slopes):
        assert_allclose(found[:, j], slope, atol=tolerance)
    assert np.abs(found).max() > 0.1


@pytest.mark.parametrize("distance", [10.0, 1e3, 1e6])
@pytest.mark.parametrize("name", ["gaussian", "student", "laplace"])
def test_gradients_far_away_are_those_of_the_limit(name, distance, rng):
    keys, values = rng.standard_normal((30, 2)), rng.standard_normal((30, 1))
    queries = distance * np.array([[1.0, 0.5], [-0.3, 1.0]])
    regression, step = regression_of(attention_of(queries, keys, name), values), 1e-4 * distance

    def means(shift):
        attention = replace(regression.attention, queries=queries + shift)
        return predict(replace(regression, attention=attention), RESOURCES)[0]

    found, _ = gradient(regression, queries, RESOURCES)
    for j, slope in enumerate(differences(means, np.zeros(2), step)):
        assert_allclose(found[:, j], slope, rtol=1e-2, atol=1e-9 / step)


@pytest.mark.parametrize("degree", [0, 1])
def test_queries_outside_every_support_have_no_gradient(degree):
    queries, keys = column(0.4, 10.0), column(0.0, 0.5, 1.0)
    regressors = (queries, keys) if degree else None
    regression = regression_of(attention_of(queries, keys, "biweight"), keys**2, regressors)
    found, outside = gradient(regression, queries, RESOURCES)
    assert_array_equal(outside, [False, True])
    assert_array_equal(found[1], 0.0)
    assert found[0] != 0.0
