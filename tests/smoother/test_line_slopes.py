"""Derivatives of predictions: in the bandwidths, and in the query."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skattn import NadarayaWatsonRegressor
from skattn._attention import Line, Radii, Request, Resources
from skattn._bandwidth import CRITERIA
from skattn._bandwidth._objective import Objective
from skattn._geometry import Own
from skattn._smoother import smooth, smooth_gradient, smooth_slopes
from skattn.kernels import KERNELS

SLOPED = [name for name, kernel in KERNELS.items() if kernel.has_slope]
# whose slope jumps at distance zero or at the edge: fewer digits from differences
KINKED = {"laplace", "epanechnikov", "triangular"}


def problem(name, rng, n=80, d=3):
    """Rows, two outputs, and bandwidths at which each row has neighbours for a line."""
    X, values = rng.standard_normal((n, d)), rng.standard_normal((n, 2))
    theta = np.log([0.8, 1.2, 1.7][:d])
    if np.isfinite(KERNELS[name].support):
        theta = theta + np.log(3.0)
    return X, values, theta


def own_of(kind, counts):
    every = np.arange(len(counts))
    if kind == "units":
        return Own(every, every + 1, 1.0 - 1.0 / counts)
    if kind == "groups":
        return Own(every // 3 * 3, np.minimum(every // 3 * 3 + 3, len(every)), 0.0 * counts)
    return Own(every, every + 1, 1.0 + 0.0 * counts)


def differences(function, point, step=1e-5):
    """Central differences of what a function of an array returns, one for each entry."""
    for j in range(point.size):
        shift = step * (np.arange(point.size) == j)
        yield (function(point + shift) - function(point - shift)) / (2 * step)


@pytest.mark.parametrize("kind", ["units", "groups", "itself"])
@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("name", SLOPED)
def test_slopes_are_the_derivatives_of_predictions(name, degree, kind, rng):
    X, values, theta = problem(name, rng)
    counts = rng.integers(1, 3, len(X)).astype(float)
    log_weights = np.log(counts / counts.max())
    own = own_of(kind, counts)

    def request(log_bandwidth):
        scaled = X / np.exp(log_bandwidth)
        line = Line(scaled, scaled) if degree == 1 else None
        return Request(scaled, scaled, values, KERNELS[name], log_weights, own, line=line)

    def smoothed(log_bandwidth):
        return smooth(request(log_bandwidth), Resources())

    sloped = smooth_slopes(request(theta), Resources(block_bytes=10_000))
    exact = smoothed(theta)
    scale = np.abs(sloped.mean_slope).max()
    assert_allclose(sloped.mean, exact.mean, atol=1e-10)
    assert_allclose(sloped.own_weight, exact.leverage, atol=1e-10)
    assert scale > 0.1
    tolerance = (1e-4 if name in KINKED else 1e-6) * max(1.0, scale)
    for j, slope in enumerate(differences(lambda t: smoothed(t).mean, theta)):
        assert_allclose(sloped.mean_slope[:, :, j], slope, atol=tolerance)
    if kind == "itself":
        for j, slope in enumerate(differences(lambda t: smoothed(t).leverage, theta)):
            assert_allclose(sloped.own_slope[:, j], slope, atol=tolerance)
    else:
        assert np.isfinite(sloped.own_slope).all()


def test_slopes_do_not_depend_on_the_coordinates_of_the_lines(rng):
    X, values, _ = problem("gaussian", rng)
    own = own_of("units", np.ones(80))
    request = Request(X, X, values, KERNELS["gaussian"], np.zeros(80), own, line=Line(X, X))
    mixed = X @ np.array([[1.0, 0.3, 0.0], [0.0, 2.0, 0.5], [0.2, 0.0, 0.7]]) + 4.0
    other = replace(request, line=Line(mixed, mixed))
    for name in ("mean", "mean_slope", "own_weight"):
        one, two = (getattr(smooth_slopes(each, Resources()), name) for each in (request, other))
        assert_allclose(one, two, atol=1e-9)


@pytest.mark.parametrize("degree", [0, 1])
def test_queries_outside_every_support_have_no_slope(degree):
    keys = np.array([[0.0], [0.5], [1.0]])
    queries = np.array([[0.4], [10.0]])
    line = Line(queries, keys) if degree == 1 else None
    request = Request(queries, keys, keys**2, KERNELS["biweight"], np.zeros(3), line=line)
    sloped = smooth_slopes(request, Resources())
    assert_allclose(sloped.mean[1], 1.0)
    assert_array_equal(sloped.mean_slope[1], 0.0)
    gradient, outside = smooth_gradient(request, Resources())
    assert_array_equal(outside, [False, True])
    assert_array_equal(gradient[1], 0.0)
    assert gradient[0] != 0.0


def objective_of(name, criterion, rng, degree):
    X, values, theta = problem(name, rng)
    weights = rng.integers(1, 3, 80).astype(float)
    kind = "units" if criterion == "loo" else "itself"
    objective = Objective(
        coordinates=X,
        values=values,
        weights=weights,
        own=own_of(kind, weights),
        criterion=criterion,
        kernel=KERNELS[name],
        n=float(weights.sum()),
        rows=np.arange(0, 80, 2),
        resources=Resources(),
        degree=degree,
    )
    return objective, theta + np.log(2.0)


@pytest.mark.parametrize("name", ["gaussian", "student", "tricube"])
@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("criterion", CRITERIA)
def test_gradients_of_criteria_are_their_derivatives(criterion, degree, name, rng):
    objective, theta = objective_of(name, criterion, rng, degree)
    value, gradient, matrix = objective.linearize(theta)
    assert_allclose(value, objective.value(theta), rtol=1e-10)
    expected = list(differences(objective.value, theta))
    assert np.abs(expected).max() > 1e-3
    assert_allclose(gradient, expected, rtol=1e-5, atol=1e-7)
    assert_allclose(matrix, matrix.T)
    assert (np.linalg.eigvalsh(matrix) >= -1e-15).all()


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("criterion", CRITERIA)
def test_gradient_in_common_is_the_sum(criterion, degree, rng):
    objective, _ = objective_of("gaussian", criterion, rng, degree)
    common = objective.in_common()
    value, gradient, _ = common.linearize(np.array([0.4]))
    assert_allclose(value, objective.value(np.full(3, 0.4)), rtol=1e-10)
    assert_allclose(gradient, [objective.linearize(np.full(3, 0.4))[1].sum()], rtol=1e-9)


def test_smoothed_out_features_stay_in_the_lines_of_the_criterion(rng):
    # local in the first feature, a plane in the others: leave-one-out by least squares
    objective, theta = objective_of("gaussian", "loo", rng, 1)
    theta = np.array([theta[0], np.inf, np.inf])
    X, values, weights = objective.coordinates, objective.values, objective.weights
    columns = np.column_stack([np.ones(80), X])
    squares = np.zeros((80, 2))
    for i in objective.rows:
        counts = weights - (np.arange(80) == i)
        root = np.sqrt(counts * np.exp(-0.5 * ((X[:, 0] - X[i, 0]) / np.exp(theta[0])) ** 2))
        plane, *_ = np.linalg.lstsq(root[:, None] * columns, root[:, None] * values, rcond=None)
        squares[i] = (values[i] - columns[i] @ plane) ** 2
    expected = weights[objective.rows] @ squares[objective.rows].mean(axis=1)
    assert_allclose(objective.value(theta), expected / weights[objective.rows].sum(), rtol=1e-9)


# ---------------------------------------------------------------------------------------------
# In the query


@pytest.mark.parametrize("radii", [None, "queries", "keys"])
@pytest.mark.parametrize("name", SLOPED)
def test_gradients_are_the_derivatives_of_means(name, radii, rng):
    keys, values = rng.standard_normal((60, 2)), rng.standard_normal((60, 2))
    queries = rng.standard_normal((15, 2))
    width = 3.0 if np.isfinite(KERNELS[name].support) else 1.0
    keys, queries = keys / width, queries / width
    varied = {
        None: None,
        "queries": Radii(queries=rng.uniform(0.7, 1.4, 15)),
        "keys": Radii(keys=rng.uniform(0.7, 1.4, 60)),
    }[radii]
    request = Request(queries, keys, values, KERNELS[name], np.log(rng.random(60)), radii=varied)
    gradient, outside = smooth_gradient(request, Resources())
    assert not outside.any()

    def means(shift):
        return smooth(replace(request, queries=queries + shift), Resources()).mean

    tolerance = 1e-4 if name in KINKED else 1e-6
    for j, slope in enumerate(differences(means, np.zeros(2))):
        assert_allclose(gradient[:, j], slope, atol=tolerance)
    assert np.abs(gradient).max() > 0.1


@pytest.mark.parametrize("distance", [10.0, 1e3, 1e6])
@pytest.mark.parametrize("name", ["gaussian", "student", "laplace"])
def test_gradients_far_away_are_those_of_the_limit(name, distance, rng):
    keys, values = rng.standard_normal((30, 2)), rng.standard_normal((30, 1))
    queries = distance * np.array([[1.0, 0.5], [-0.3, 1.0]])
    request = Request(queries, keys, values, KERNELS[name], np.zeros(30))
    gradient, _ = smooth_gradient(request, Resources())
    step = 1e-4 * distance

    def means(shift):
        return smooth(replace(request, queries=queries + shift), Resources()).mean

    for j, slope in enumerate(differences(means, np.zeros(2), step)):
        assert_allclose(gradient[:, j], slope, rtol=1e-2, atol=1e-9 / step)


@pytest.mark.parametrize("degree", [0, 1])
def test_gradients_are_in_units_of_features_and_targets(degree, rng):
    X, y = rng.random((200, 2)), rng.random((200, 2))
    model = NadarayaWatsonRegressor([0.2, 0.3], degree=degree).fit(X, y)
    queries = X[:20]
    gradient = model.predict_gradient(queries)
    scaled = NadarayaWatsonRegressor([200.0, 3e-4], degree=degree)
    scaled.fit(X * [1e3, 1e-3] + [5.0, -1.0], y * [1e5, 1e-5])
    again = scaled.predict_gradient(queries * [1e3, 1e-3] + [5.0, -1.0])
    expected = gradient * np.array([1e-3, 1e3])[:, None] * np.array([1e5, 1e-5])
    assert_allclose(again, expected, rtol=1e-7, atol=0)
