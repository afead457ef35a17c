"""Leave-one-out errors on tensors, and their derivatives: against NumPy, differences, autograd."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skattn._attention import Resources
from skattn._geometry.training_set import Exclusion, TrainingSet
from skattn._geometry.transforms import FeatureMap, LocalBasis, Scaler
from skattn._smoother import Component, LocalLinear, LocalMean, predict
from skattn.kernels import KERNELS

torch = pytest.importorskip("torch")

from skattn._learning.design import Problem  # noqa: E402
from skattn._learning.leave_one_out import Block, LeaveOneOut  # noqa: E402
from skattn._learning.metrics import DiagonalMetric, LinearMetric, ScalarMetric  # noqa: E402

KERNELS_WITH_SLOPE = [name for name, kernel in KERNELS.items() if kernel.has_slope]

CPU, DOUBLE = torch.device("cpu"), torch.float64
RIDGE = 0.05
KINDS = ["single", "repeated", "weighted", "grouped"]
# whose slope jumps at distance zero or at the edge: fewer digits from differences
KINKED = {"laplace", "epanechnikov", "triangular"}


def table_of(kind, rng, n=50, d=3, n_copies=4):
    """Training rows of two outputs, a few of them with the same features."""
    X, y = rng.standard_normal((n, d)), rng.standard_normal((n, 2))
    X[n // 2 : n // 2 + n_copies] = X[:n_copies]
    weights = {
        "repeated": rng.integers(1, 4, n).astype(float),
        "weighted": rng.uniform(0.1, 2.0, n),
    }.get(kind, np.ones(n))
    groups = rng.integers(0, 12, n) if kind == "grouped" else None
    return TrainingSet.canonical(X, y, weights, groups)


def problem_of(table, kernel, degree):
    regressors = 0.7 * table.X[:, ::-1] if degree == 1 else None
    known = table.X, regressors, table.y, table.weights, table.leave_one_out()
    return Problem(*known, KERNELS[kernel], table.X.shape[1])


def matrix_of(kernel):
    """A rectangular map under which most rows have neighbours."""
    matrix = np.array([[1.1, 0.2], [-0.4, 0.9], [0.3, 0.6]])
    return matrix / 3.0 if np.isfinite(KERNELS[kernel].support) else matrix


def fixed(matrix):
    """A metric that is a matrix, and its parameters."""
    metric = LinearMetric(matrix, np.ones(len(matrix)), matrix.shape[1])
    return metric, np.zeros(metric.n_parameters)


def errors_by_definition(problem, matrix, ridge):
    """Leave-one-out errors, a row at a time."""
    excluded, found = problem.excluded, []
    coordinates = problem.features @ matrix
    for i, own in enumerate(zip(excluded.start, excluded.stop, excluded.retained, strict=True)):
        counts = problem.weights.copy()
        counts[own[0] : own[1]] *= own[2]
        squared = ((coordinates - coordinates[i]) ** 2).sum(axis=1)
        weights = counts * np.exp(problem.kernel.log_profile(squared))
        if weights.sum() == 0.0:
            nearest = np.argmin(np.where(counts > 0.0, squared, np.inf))
            weights = (np.arange(len(counts)) == nearest).astype(float)
        weights = weights / weights.sum()
        level = weights @ problem.values
        if problem.regressors is not None:
            away = problem.regressors - weights @ problem.regressors
            covariance = away.T @ (weights[:, None] * away) + ridge * np.eye(away.shape[1])
            cross = away.T @ (weights[:, None] * (problem.values - level))
            level = level + away[i] @ np.linalg.solve(covariance, cross)
        found.append(problem.values[i] - level)
    return np.array(found)


def errors_by_component(table, kernel, matrix, degree, ridge):
    """Leave-one-out errors by the route that predicts."""
    ones = np.ones(table.X.shape[1])
    transform = FeatureMap(Scaler.around(table.X, ones), None, matrix)
    basis, local_fit = None, LocalMean()
    if degree == 1:  # the reversed features, times 0.7, of `problem_of`: the order does not matter
        basis, local_fit = LocalBasis(Scaler.around(table.X, ones / 0.7), None), LocalLinear(ridge)
    component = Component.of(table, KERNELS[kernel], transform, basis, local_fit)
    predictions = predict(component.leave_one_out(), Resources())[0]
    return table.y - component.scaling.restore(predictions)


def all_errors(problem, matrix, ridge, dtype=DOUBLE):
    rows = np.arange(len(problem.features))
    return LeaveOneOut(problem, rows, CPU, dtype).errors(*fixed(matrix), ridge)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("kernel", KERNELS_WITH_SLOPE)
def test_errors_are_those_of_the_definition_and_of_the_route_that_predicts(
    kernel, degree, kind, rng
):
    table, matrix = table_of(kind, rng), matrix_of(kernel)
    problem = problem_of(table, kernel, degree)
    errors = all_errors(problem, matrix, RIDGE)
    assert_allclose(errors, errors_by_definition(problem, matrix, RIDGE), atol=1e-9)
    assert_allclose(errors, errors_by_component(table, kernel, matrix, degree, RIDGE), atol=1e-9)
    assert errors.std() > 0.1


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("kernel", KERNELS_WITH_SLOPE)
def test_rows_without_neighbours_take_the_nearest_one(kernel, degree, rng):
    table = table_of("single", rng, n_copies=0)
    problem = problem_of(table, kernel, degree)
    matrix = 1e3 * np.eye(3)
    errors = all_errors(problem, matrix, RIDGE)
    assert np.isfinite(errors).all()
    if kernel not in ("student", "laplace"):  # the others have forgotten all but the nearest
        assert_allclose(
            errors, errors_by_component(table, kernel, matrix, degree, RIDGE), atol=1e-9
        )
    rows = np.arange(len(errors))
    loss = LeaveOneOut(problem, rows, CPU, DOUBLE)
    _, jacobian = loss.linearize(*fixed(matrix), RIDGE)
    assert np.isfinite(jacobian).all()


@pytest.mark.parametrize("degree", [0, 1])
def test_the_nearest_rows_share_as_where_is_predicted(degree, rng):
    # on a lattice, most rows have several that are nearest, of different sample weights
    X = np.unique(rng.integers(-2, 3, (40, 3)).astype(float), axis=0)
    table = TrainingSet.canonical(
        X, rng.standard_normal((len(X), 2)), rng.integers(1, 4, len(X)).astype(float), None
    )
    problem, matrix = problem_of(table, "epanechnikov", degree), 16.0 * np.eye(3)
    keys = table.weights == 1.0  # a row of several leaves some of itself behind
    assert keys.sum() > 5
    errors = all_errors(problem, matrix, RIDGE)
    expected = errors_by_component(table, "epanechnikov", matrix, degree, RIDGE)
    assert_allclose(errors[keys], expected[keys], atol=1e-9)


def test_a_row_never_attends_to_itself(rng):
    # whatever its target is, its prediction is the same
    table = table_of("single", rng)
    problem = problem_of(table, "gaussian", 0)
    changed = table.y.copy()
    changed[7] += 100.0
    other = replace(problem, values=changed)
    some = [
        LeaveOneOut(each, np.array([7]), CPU, DOUBLE).errors(*fixed(np.eye(3)), 1.0)
        for each in (problem, other)
    ]
    assert_allclose(some[1] - some[0], 100.0)


def metrics(d):
    """Metrics of several kinds, each with parameters."""
    rng = np.random.default_rng(3)
    theta = np.log([0.9, 1.3, 0.6][:d])
    matrix = np.eye(3)[:, :2] + 0.2 * rng.standard_normal((3, 2))
    yield "scalar", ScalarMetric(d), np.array([0.1])
    yield "feature", DiagonalMetric(d), theta
    yield (
        "projection",
        LinearMetric(np.diag(np.exp(theta)), np.exp(theta), 3),
        0.2 * rng.standard_normal(9),
    )
    yield (
        "two components",
        LinearMetric(matrix, np.array([1.0, 2.0, 0.5]), 2),
        0.2 * rng.standard_normal(6),
    )
    yield (
        "part of a projection",
        LinearMetric(np.diag(np.exp(theta)), np.exp(theta)[:2], 2),
        0.2 * rng.standard_normal(4),
    )


METRICS = {name: (metric, parameters) for name, metric, parameters in metrics(3)}


def differences(function, point, step=1e-5):
    """Central differences of what a function of an array returns, one for each entry."""
    for j in range(point.size):
        shift = step * (np.arange(point.size) == j)
        yield (function(point + shift) - function(point - shift)) / (2 * step)


def sloped(kernel, degree, kind, rng):
    table = table_of(kind, rng)
    problem = problem_of(table, kernel, degree)
    if np.isfinite(KERNELS[kernel].support):
        problem = replace(problem, features=problem.features / 3.0)
    return LeaveOneOut(problem, np.arange(0, len(table.X), 2), CPU, DOUBLE)


def check_derivatives(loss, metric, parameters, degree, tolerance):
    errors, jacobian = loss.linearize(metric, parameters, RIDGE)
    assert_allclose(errors, loss.errors(metric, parameters, RIDGE), atol=1e-12)
    assert jacobian.shape == (*errors.shape, metric.n_parameters + 1)
    scale = max(1.0, np.abs(jacobian).max())

    # differences of the definition: rounding of expanded distances shows in those of kinks
    def predicted(p):
        return -errors_by_definition(loss.problem, metric.matrix(p), RIDGE)[loss.queries]

    slopes = differences(predicted, parameters)
    for j, slope in enumerate(slopes):
        assert_allclose(jacobian[:, :, j], slope, atol=tolerance * scale)
    (by_ridge,) = differences(
        lambda p: -loss.errors(metric, parameters, float(np.exp(p[0]))), np.log([RIDGE])
    )
    assert_allclose(jacobian[:, :, -1], by_ridge, atol=1e-7 * scale)
    assert (np.abs(jacobian[:, :, -1]).max() > 1e-4) == (degree == 1)
    assert np.abs(jacobian[:, :, :-1]).max() > 0.05


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("kernel", ["student", "gaussian"])
def test_jacobians_of_all_metrics_are_the_derivatives(kernel, name, degree, rng):
    metric, parameters = METRICS[name]
    check_derivatives(sloped(kernel, degree, "single", rng), metric, parameters, degree, 1e-7)


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("kernel", KERNELS_WITH_SLOPE)
def test_jacobians_of_all_kernels_are_the_derivatives(kernel, degree, rng):
    metric, parameters = METRICS["feature"]
    tolerance = 1e-4 if kernel in KINKED else 1e-6
    loss = sloped(kernel, degree, "single", rng)
    check_derivatives(loss, metric, parameters, degree, tolerance)


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_jacobians_know_what_is_left_out(kind, degree, rng):
    for name in ("feature", "two components"):
        metric, parameters = METRICS[name]
        loss = sloped("gaussian", degree, kind, rng)
        check_derivatives(loss, metric, parameters, degree, 1e-7)


def matrix_in_tensors(name, metric, parameters):
    """The same map of features, as a differentiable function of its parameters."""
    if name == "scalar":
        return torch.exp(parameters[0]) * torch.eye(3, dtype=DOUBLE)
    if name == "feature":
        return torch.diag(torch.exp(parameters))
    base, scale = torch.tensor(metric.base), torch.tensor(metric.scale)
    departure = scale[:, None] * parameters.reshape(len(scale), metric.n_columns)
    padding = (0, base.shape[1] - metric.n_columns, 0, base.shape[0] - len(scale))
    return base + torch.nn.functional.pad(departure, padding)


def plain_errors(problem, queries, matrix, ridge):
    """Leave-one-out errors from differences of all pairs, differentiable by autograd."""
    X, values = torch.tensor(problem.features), torch.tensor(problem.values)
    squared = (((X[queries, None] - X[None]) @ matrix) ** 2).sum(dim=2)
    every = np.arange(len(X))
    own = (every >= problem.excluded.start[:, None]) & (every < problem.excluded.stop[:, None])
    kept = np.where(own, problem.excluded.retained[:, None], 1.0)[queries]
    counts = torch.tensor(kept * problem.weights)
    assert problem.kernel.name == "student"
    weights = counts * (1.0 + squared / 7.0) ** -4
    weights = weights / weights.sum(dim=1, keepdim=True)
    predicted = weights @ values
    if problem.regressors is not None:
        line = torch.tensor(problem.regressors)
        away = line[None] - (weights @ line)[:, None]
        covariance = torch.einsum("qi,qia,qib->qab", weights, away, away)
        covariance = covariance + ridge * torch.eye(line.shape[1], dtype=DOUBLE)
        cross = torch.einsum("qi,qia,ip->qap", weights, away, values)
        arm = line[queries] - weights @ line
        slope = torch.linalg.solve(covariance, cross)
        predicted = predicted + torch.einsum("qa,qap->qp", arm, slope)
    return values[queries] - predicted


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("name", METRICS)
def test_gradient_of_the_squared_error_is_that_of_autograd(name, degree, rng):
    metric, parameters = METRICS[name]
    problem = problem_of(table_of("repeated", rng), "student", degree)
    queries = np.arange(0, 50, 3)
    errors, jacobian = LeaveOneOut(problem, queries, CPU, DOUBLE).linearize(
        metric, parameters, RIDGE
    )
    at = torch.tensor(np.append(parameters, np.log(RIDGE)), requires_grad=True)
    matrix = matrix_in_tensors(name, metric, at[:-1])
    assert_allclose(matrix.detach(), metric.matrix(parameters), rtol=1e-13)
    plain = plain_errors(problem, queries, matrix, torch.exp(at[-1]))
    assert_allclose(errors, plain.detach(), atol=1e-11)
    loss = (plain**2).sum()
    gradient = torch.autograd.grad(loss, at)[0].numpy()
    assert_allclose(-2.0 * np.einsum("qp,qpj->j", errors, jacobian), gradient, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("degree", [0, 1])
def test_blocks_do_not_matter(degree, kind, rng):
    metric, parameters = METRICS["projection"]
    problem = problem_of(table_of(kind, rng), "student", degree)
    rows = np.arange(50)
    whole = LeaveOneOut(problem, rows, CPU, DOUBLE)
    blocks = LeaveOneOut(problem, rows, CPU, DOUBLE)
    blocks.blocks = [Block(blocks, part) for part in np.split(rows, [1, 20, 23])]
    for one, two in zip(
        whole.linearize(metric, parameters, RIDGE),
        blocks.linearize(metric, parameters, RIDGE),
        strict=True,
    ):
        assert_allclose(one, two, atol=1e-12)


def test_some_of_the_queries_are_the_same_as_all(rng):
    metric, parameters = METRICS["feature"]
    problem = problem_of(table_of("grouped", rng), "student", 1)
    queries, positions = np.arange(0, 50, 2), np.array([3, 4, 9])
    whole = LeaveOneOut(problem, queries, CPU, DOUBLE)
    some = whole.at(positions)
    assert_array_equal(some.queries, queries[positions])
    assert_allclose(some.share.sum(), 1.0)
    assert_allclose(
        some.errors(metric, parameters, RIDGE),
        whole.errors(metric, parameters, RIDGE)[positions],
        atol=1e-12,
    )
    assert_array_equal(whole.queries, queries)  # left alone


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("kernel", KERNELS_WITH_SLOPE)
def test_single_precision_is_close_to_double(kernel, degree, rng):
    metric, parameters = METRICS["feature"]
    problem = problem_of(table_of("repeated", rng), kernel, degree)
    features = problem.features / (3.0 if np.isfinite(KERNELS[kernel].support) else 1.0)
    problem = replace(problem, features=features)
    rows = np.arange(50)
    single = LeaveOneOut(problem, rows, CPU, torch.float32).linearize(metric, parameters, RIDGE)
    double = LeaveOneOut(problem, rows, CPU, DOUBLE).linearize(metric, parameters, RIDGE)
    assert_allclose(single[0], double[0], atol=2e-4)
    if kernel not in KINKED:
        assert_allclose(single[1], double[1], atol=2e-3 * np.abs(double[1]).max())
    assert single[0].dtype == single[1].dtype == np.float64


def test_copies_are_at_distance_zero_for_the_kinked_kernels(rng):
    # rows with the same features, of another target: rounding must not make a distance of them
    X = np.repeat(rng.standard_normal((10, 3)) * 100.0, 2, axis=0)
    y = rng.standard_normal((20, 1))
    every = np.arange(20)
    excluded = Exclusion(every, every + 1, np.zeros(20))
    problem = Problem(X, None, y, np.ones(20), excluded, KERNELS["laplace"], 3)
    metric, parameters = DiagonalMetric(3), np.zeros(3)
    loss = LeaveOneOut(problem, every, CPU, DOUBLE)
    errors, jacobian = loss.linearize(metric, parameters, 1.0)
    partner = every ^ 1
    assert_allclose(errors, y - y[partner], atol=1e-6)
    assert np.isfinite(jacobian).all()
    assert_allclose(jacobian, 0.0, atol=1e-3)


@pytest.mark.parametrize("degree", [0, 1])
def test_a_group_of_one_and_a_group_of_the_rest_are_finite(degree):  # pytorch#103963
    table = TrainingSet.canonical(
        np.array([[0.0], [1.0], [2.0]]), np.array([[0.0], [1.0], [3.0]]), np.ones(3),
        np.array([0, 1, 1]),
    )  # fmt: skip
    problem = problem_of(table, "gaussian", degree)
    loss = LeaveOneOut(problem, np.arange(3), CPU, DOUBLE)
    errors, jacobian = loss.linearize(ScalarMetric(1), np.zeros(1), RIDGE)
    assert_allclose(errors, errors_by_definition(problem, np.eye(1), RIDGE), atol=1e-12)
    assert np.isfinite(jacobian).all()
