"""Losses in which every row has numbers of its own: by definition, and by differences."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skattn._geometry.training_set import TrainingSet
from skattn._geometry.transforms import Scaler
from skattn._smoother import Component
from skattn.kernels import KERNELS

torch = pytest.importorskip("torch")

from skattn._learning import leave_one_out  # noqa: E402
from skattn._learning.design import Problem  # noqa: E402
from skattn._learning.leave_one_out import LeaveOneOut  # noqa: E402
from skattn._learning.losses import EXACT, Prior  # noqa: E402
from skattn._learning.variant_loss import VariantLoss  # noqa: E402
from skattn._optimize.monitor import Bounds  # noqa: E402
from skattn.variants import (  # noqa: E402
    Beginning,
    Encoder,
    LearnableMetric,
    Model,
    QueryScale,
    SampleReweighting,
    _fixed_share,
    _mixture,
    _region_scale,
)
from skattn.variants._model import StandardFeatures  # noqa: E402

KERNELS_WITH_SLOPE = [name for name, kernel in KERNELS.items() if kernel.has_slope]

CPU, DOUBLE = torch.device("cpu"), torch.float64
N = 40
KINDS = ["single", "repeated", "weighted", "grouped"]
# whose slope jumps at distance zero or at the edge
KINKED = {"laplace", "epanechnikov", "triangular"}
MODELS = [
    "plain",
    "scalar",
    "sample",
    "query scale",
    "region scale",
    "mixture",
    "three components",
    "fixed share",
    "encoder",
]


def training_set_of(kind="single"):
    rng = np.random.default_rng(11)
    X = rng.standard_normal((N, 2))
    y = np.column_stack([np.sin(2.0 * X[:, 0]), X[:, 1]]) + 0.3 * rng.standard_normal((N, 2))
    weights = {
        "repeated": rng.integers(1, 4, N).astype(float),
        "weighted": rng.uniform(0.1, 2.0, N),
    }.get(kind, np.ones(N))
    groups = rng.integers(0, 12, N) if kind == "grouped" else None
    return TrainingSet.canonical(X, y, weights, groups)


def features_of(rows):
    """Two features and their tanh, which stands for ranks."""
    return np.hstack([rows, np.tanh(rows)])


def problem_of(kernel="student", degree=0, kind="single"):
    """Two features, and two outputs."""
    rows = training_set_of(kind)
    regressors = 0.7 * rows.X if degree == 1 else None
    known = features_of(rows.X), regressors, rows.y, rows.weights, rows.leave_one_out()
    return Problem(*known, KERNELS[kernel], 2)


def model_of(name, problem):
    matrix = np.array([[1.1, 0.2, 0.0], [-0.4, 0.9, 0.1], [0.3, 0.0, 0.6], [0.0, 0.2, 0.4]])
    if np.isfinite(problem.kernel.support):
        matrix = matrix / 3.0
    metric, rng = LearnableMetric(matrix, 2, name == "scalar"), np.random.default_rng(5)
    beginning = Beginning(metric, problem.features[:, :2], 0.5, 7)
    if name in ("plain", "scalar"):
        return Model(metric, [metric.block()])
    if name == "region scale":
        centers = np.array([[-1.0, 0.0], [1.0, 0.5], [0.0, 1.0]])
        return _region_scale._Model(metric, _region_scale.Regions(centers, 0.8))
    if name in ("mixture", "three components"):
        n = 2 if name == "mixture" else 3
        return _mixture._Model(metric, rng.standard_normal((2, n)), rng.standard_normal(n))
    if name == "fixed share":
        return _fixed_share._Model(metric, 0.5 * np.eye(4), 0.4, 1.3)
    variants = {
        "sample": SampleReweighting(),
        "query scale": QueryScale(3),
        "encoder": Encoder((4, 3)),
    }
    return variants[name].models(beginning)[0]


def loss_of(name, problem, queries=None, dtype=DOUBLE, **dropout):
    """A loss, and parameters away from the start."""
    model, rng = model_of(name, problem), np.random.default_rng(9)
    parameters = model.start + 0.3 * rng.standard_normal(model.start.size)
    if problem.regressors is not None:
        parameters = np.append(parameters, np.log(0.2))
    size = parameters.size
    center, wide = rng.standard_normal(size), np.full(size, 9.0)
    bounds = Bounds(center - wide, center + wide)
    prior = Prior(center, rng.uniform(0.001, 0.01, size), bounds)
    queries = np.arange(len(problem.weights)) if queries is None else queries
    errors = LeaveOneOut(problem, queries, CPU, dtype)
    return VariantLoss(errors, prior, model, **dropout), parameters


class MapOfFeatures:
    """Features times a matrix, for a component."""

    def __init__(self, matrix):
        self.matrix = matrix

    def coordinates(self, rows):
        return features_of(rows) @ self.matrix


def numbers_by_definition(model, parameters, kind="single", kernel="student"):
    """Coordinates of components, gates, scales and factors of all rows, in NumPy."""
    rows, parts = training_set_of(kind), model.split(parameters)
    standard = StandardFeatures(Scaler(np.arange(2), np.zeros(2), np.ones(2)), np.zeros(2))
    components = [
        Component.of(rows, KERNELS[kernel], MapOfFeatures(matrix))
        for matrix in model.matrices(parts)
    ]
    smoother = model.smoother(parts, components, standard)
    gates = np.ones((N, 1)) if smoother.components == (smoother,) else smoother.gate.shares(rows.X)
    scales, factors = np.zeros(N), np.zeros(N)
    first = smoother.components[0]
    if first.query_scale is not None:
        scales = -np.log(first.query_scale.scales(rows.X, first.coordinates, None))
    if first.log_factors is not None:
        factors = first.log_factors
    return [each.coordinates for each in smoother.components], gates, scales, factors


def left_out_by_definition(numbers, problem, ridge):
    """Leave-one-out errors, a row at a time, of what NumPy predicts with."""
    coordinates, gates, scales, factors = numbers
    kernel, excluded, found = problem.kernel, problem.excluded, []
    hidden = np.zeros(0, dtype=int) if problem.hidden is None else problem.hidden
    for i in range(len(gates)):
        counts = problem.weights * np.exp(factors)
        counts[hidden] = 0.0
        counts[excluded.start[i] : excluded.stop[i]] *= excluded.retained[i]
        prediction = 0.0
        for head, z in enumerate(coordinates):
            squared = np.exp(2.0 * scales[i]) * ((z - z[i]) ** 2).sum(axis=1)
            weights = counts * np.exp(kernel.log_profile(squared))
            weights = weights / weights.sum()
            level = weights @ problem.values
            if problem.regressors is not None:
                away = problem.regressors - weights @ problem.regressors
                covariance = away.T @ (weights[:, None] * away) + ridge * np.eye(away.shape[1])
                cross = away.T @ (weights[:, None] * (problem.values - level))
                level = level + away[i] @ np.linalg.solve(covariance, cross)
            prediction = prediction + gates[i, head] * level
        found.append(problem.values[i] - prediction)
    return np.array(found)


def check_gradient(loss, parameters, tolerance=1e-6):
    value, gradient, hessian = loss(parameters)
    assert_allclose(value, loss.value(parameters), rtol=1e-12)
    assert hessian.shape == (0, 0)
    step = 1e-5
    expected = [
        (loss.value(parameters + shift) - loss.value(parameters - shift)) / (2.0 * step)
        for shift in step * np.eye(parameters.size)
    ]
    assert np.abs(expected).max() > 0.01
    assert_allclose(gradient, expected, rtol=0, atol=tolerance * np.abs(expected).max())
    return np.array(expected)


# ---------------------------------------------------------------------------------------------
# Values


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("name", MODELS)
def test_errors_are_those_of_the_definition_with_numbers_from_numpy(name, degree, kind):
    problem = problem_of("student", degree, kind)
    loss, parameters = loss_of(name, problem)
    own, ridge = loss.split(parameters)
    assert ridge == (np.exp(parameters[-1]) if degree == 1 else 1.0)
    left = loss.left_out(parameters)
    numbers = numbers_by_definition(loss.model, own, kind)
    assert_allclose(left, left_out_by_definition(numbers, problem, ridge), atol=1e-10)
    share = problem.weights / problem.weights.sum()
    penalty = loss.prior.precision @ (parameters - loss.prior.center) ** 2
    expected = np.log(share @ (left**2).mean(axis=1) + EXACT) + penalty
    assert_allclose(loss.value(parameters), expected, rtol=1e-12)
    assert_allclose(loss(parameters)[0], expected, rtol=1e-12)
    around = problem.values - share @ problem.values
    squares = share @ left**2 / (share @ around**2)
    assert_allclose(loss.r_squared(parameters), 1.0 - squares.mean(), rtol=1e-12)


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("kernel", KERNELS_WITH_SLOPE)
@pytest.mark.parametrize("name", ["mixture", "region scale", "sample"])
def test_errors_of_all_kernels_are_those_of_the_definition(name, kernel, degree):
    problem = problem_of(kernel, degree)
    loss, parameters = loss_of(name, problem)
    own, ridge = loss.split(parameters)
    numbers = numbers_by_definition(loss.model, own, kernel=kernel)
    expected = left_out_by_definition(numbers, problem, ridge)
    assert_allclose(loss.left_out(parameters), expected, atol=1e-9)


@pytest.mark.parametrize("name", MODELS)
def test_models_start_where_they_change_nothing_or_little(name):
    problem = problem_of()
    loss, _ = loss_of(name, problem)
    plain, _ = loss_of("plain", problem)
    start, (lower, upper) = loss.model.start, loss.model.bounds
    assert len(start) == len(loss.model.spread) == len(lower) == len(upper)
    assert ((lower <= start) & (start <= upper)).all()
    left = loss.left_out(start) - plain.left_out(np.zeros(4))
    if name == "fixed share":
        assert np.abs(left).max() > 0.01
    elif name == "encoder":  # whose last matrix is small
        assert 0.0 < np.abs(left).mean() < 0.5 * np.abs(plain.left_out(np.zeros(4))).mean()
    else:
        assert_allclose(left, 0.0, atol=1e-10)


@pytest.mark.parametrize(("dtype", "tolerance"), [(DOUBLE, 1e-12), (torch.float32, 5e-6)])
@pytest.mark.parametrize("name", MODELS)
def test_numbers_of_rows_are_the_same_in_numpy(name, dtype, tolerance):
    problem = problem_of()
    loss, parameters = loss_of(name, problem, dtype=dtype)
    parts = loss.model.split(torch.tensor(parameters, dtype=dtype))
    rows = loss.model.forward(parts, loss.errors.features)
    coordinates, gates, scales, factors = numbers_by_definition(loss.model, parameters)
    assert len(rows.coordinates) == len(coordinates)
    for found, expected in zip(rows.coordinates, coordinates, strict=True):
        size = np.abs(expected).max()
        assert_allclose(found.numpy(), expected, rtol=0, atol=tolerance * size)
    if rows.gates is not None:
        assert_allclose(rows.gates.numpy(), gates, rtol=0, atol=tolerance)
        assert_allclose(gates.sum(axis=1), 1.0)
    if rows.log_scales is not None:
        assert_allclose(rows.log_scales.numpy(), scales, rtol=0, atol=2.0 * tolerance)
        assert np.ptp(scales) > 0.1
    if rows.log_factors is not None:  # the largest of those that predict is one
        found = rows.log_factors - rows.log_factors.max()
        assert_allclose(found.numpy(), factors, rtol=0, atol=2.0 * tolerance)
        assert factors.max() == 0.0


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("name", MODELS)
def test_single_precision_is_close_to_double(name, degree):
    problem = problem_of("student", degree)
    double, parameters = loss_of(name, problem)
    single, _ = loss_of(name, problem, dtype=torch.float32)
    exact, rough = double(parameters), single(parameters)
    assert_allclose(rough[0], exact[0], atol=1e-4)
    assert_allclose(rough[1], exact[1], atol=1e-3 * np.abs(exact[1]).max())
    assert rough[1].dtype == np.float64


# ---------------------------------------------------------------------------------------------
# Gradients


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("name", MODELS)
def test_gradients_of_all_models_are_the_derivatives(name, degree, kind):
    loss, parameters = loss_of(name, problem_of("student", degree, kind), np.arange(0, N, 2))
    expected = check_gradient(loss, parameters)
    if degree == 1:
        assert abs(expected[-1]) > 1e-4  # the ridge counts


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("kernel", KERNELS_WITH_SLOPE)
@pytest.mark.parametrize("name", ["query scale", "mixture", "sample", "encoder"])
def test_gradients_of_all_kernels_are_the_derivatives(name, kernel, degree):
    # rounding of expanded distances shows in differences of kinks
    tolerance = 1e-3 if kernel in KINKED else 1e-5
    check_gradient(*loss_of(name, problem_of(kernel, degree)), tolerance)


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("name", MODELS)
def test_gradients_do_not_depend_on_blocks(name, degree, monkeypatch):
    problem = problem_of("student", degree, "repeated")
    loss, parameters = loss_of(name, problem)
    whole = loss(parameters)
    assert len(loss.errors.blocks) == 1
    monkeypatch.setitem(leave_one_out._BLOCK_ENTRIES, "cpu", 1)
    blocks, _ = loss_of(name, problem)
    assert len(blocks.errors.blocks) == 2
    found = blocks(parameters)
    assert_allclose(found[0], whole[0], rtol=1e-12)
    assert_allclose(found[1], whole[1], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["query scale", "mixture", "sample"])
def test_rows_without_neighbours_have_finite_gradients(name):
    for kernel in ("epanechnikov", "gaussian"):
        problem = problem_of(kernel, 1)
        problem = replace(problem, features=1e3 * problem.features)
        loss, parameters = loss_of(name, problem)
        value, gradient, _ = loss(parameters)
        assert np.isfinite(value)
        assert np.isfinite(gradient).all()


def test_the_prior_alone_moves_what_does_not_count():
    # the queries' own factors never count for themselves: the others' do
    loss, parameters = loss_of("sample", problem_of(), np.array([0]))
    gradient = loss(parameters)[1]
    prior = 2.0 * loss.prior.precision * (parameters - loss.prior.center)
    assert_allclose(gradient[4], prior[4], rtol=1e-9)
    assert np.abs(gradient[5:] - prior[5:]).max() > 1e-3


# ---------------------------------------------------------------------------------------------
# Some of the queries, dropout, hidden rows


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("name", ["plain", "mixture", "sample"])
def test_the_loss_at_all_positions_is_the_whole(name, degree):
    loss, parameters = loss_of(name, problem_of("student", degree, "repeated"))
    whole = loss(parameters)
    for found in (loss.at(np.arange(N)), loss.of(loss.errors)):
        value, gradient, _ = found(parameters)
        assert_allclose(value, whole[0], rtol=1e-13)
        assert_allclose(gradient, whole[1], rtol=1e-11, atol=1e-14)
    left, some = loss.left_out(parameters), np.array([3, 4, 17])
    assert_allclose(loss.at(some).left_out(parameters), left[some], rtol=1e-11)
    queries = LeaveOneOut(loss.errors.problem, some, CPU, DOUBLE)
    assert_allclose(loss.of(queries).left_out(parameters), left[some], rtol=1e-11)


def generator(seed):
    return torch.Generator("cpu").manual_seed(seed)


def test_dropout_draws_from_its_generator():
    problem = problem_of("student", 1)

    def values(seed, n=3):
        loss, parameters = loss_of("mixture", problem, dropout=0.3, generator=generator(seed))
        return [loss(parameters)[0] for _ in range(n)]

    assert values(4) == values(4)
    assert values(4) != values(5)
    assert len(set(values(4))) == 3  # anew each time


def test_no_dropout_is_none():
    problem = problem_of("student", 1)
    loss, parameters = loss_of("mixture", problem)
    zero, _ = loss_of("mixture", problem, dropout=0.0, generator=generator(1))
    nobody, _ = loss_of("mixture", problem, dropout=0.9, generator=None)
    some, _ = loss_of("mixture", problem, dropout=0.5, generator=generator(1))
    expected = loss(parameters)
    for other in (zero, nobody, some.of(some.errors)):
        found = other(parameters)
        assert found[0] == expected[0]
        assert_array_equal(found[1], expected[1])
    assert some(parameters)[0] != expected[0]
    assert some.at(np.arange(N))(parameters)[0] != expected[0]  # batches drop keys too


def test_dropout_leaves_out_keys_of_each_query_anew():
    problem, p = problem_of(), 0.4
    loss, parameters = loss_of("plain", problem, dropout=p, generator=generator(0))
    drawn = torch.rand((N, N), generator=generator(0)).numpy()
    z = problem.features @ loss.model.metric.matrix_at(parameters)
    squared = ((z[:, None] - z) ** 2).sum(axis=2)
    weights = np.exp(KERNELS["student"].log_profile(squared)) * (drawn >= p)
    np.fill_diagonal(weights, 0.0)
    expected = problem.values - weights @ problem.values / weights.sum(axis=1, keepdims=True)
    assert_allclose(loss.left_out(parameters), expected, atol=1e-10)


def test_gradients_under_dropout_are_the_derivatives_of_what_was_drawn():
    problem = problem_of("student", 1)
    for name in ("sample", "encoder"):
        loss, parameters = loss_of(name, problem, dropout=0.4, generator=None)

        loss.generator = generator(0)  # values are of what this seed draws
        gradient = loss(parameters)[1]
        for j in range(0, parameters.size, 7):
            step = 1e-5 * (np.arange(parameters.size) == j)
            expected = (loss.value(parameters + step) - loss.value(parameters - step)) / 2e-5
            assert_allclose(gradient[j], expected, atol=1e-6 * np.abs(gradient).max())


@pytest.mark.parametrize("degree", [0, 1])
def test_hidden_rows_are_predicted_and_predict_nobody(degree):
    problem = problem_of("student", degree, "repeated")
    hidden = np.array([1, 7, 20])
    others = np.setdiff1d(np.arange(N), hidden)
    problem = replace(problem, hidden=hidden)
    loss, parameters = loss_of("encoder", problem)
    left = loss.left_out(parameters)
    own, ridge = loss.split(parameters)
    numbers = numbers_by_definition(loss.model, own, "repeated")
    assert_allclose(left, left_out_by_definition(numbers, problem, ridge), atol=1e-10)
    values = problem.values.copy()
    values[hidden] += 100.0
    changed, _ = loss_of("encoder", replace(problem, values=values))
    found = changed.left_out(parameters)
    assert_allclose(found[others], left[others], atol=1e-12)
    assert_allclose(found[hidden], left[hidden] + 100.0, atol=1e-9)
    check_gradient(loss.at(others), parameters)
