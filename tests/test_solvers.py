"""Solvers: the penalised loss, ways to its minimum, and when to stop."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from sklearn.base import clone

from skattn._geometry.training_set import Exclusion
from skattn._optimize import LevenbergMarquardt
from skattn._optimize.monitor import Bounds, Monitor, Task
from skattn.kernels import KERNELS
from skattn.solvers import LBFGS, Adam, GaussNewton, GradientDescent

torch = pytest.importorskip("torch")

from skattn._learning.design import Problem  # noqa: E402
from skattn._learning.leave_one_out import LeaveOneOut  # noqa: E402
from skattn._learning.losses import MetricLoss, Prior  # noqa: E402
from skattn._learning.metrics import DiagonalMetric, ScalarMetric  # noqa: E402

SOLVERS = [GaussNewton, LBFGS, Adam]
WIDE = 20.0


def go_on(parameters):
    return False


def watcher(score=None, patience=5, notify=go_on):
    return Monitor(score, patience, notify)


def prior_of(center, precision, width=WIDE):
    center = np.asarray(center, dtype=float)
    bounds = Bounds(center - width, center + width)
    return Prior(center, np.full(center.size, precision), bounds)


def errors_of(rng, degree, n=60, kernel="student"):
    X = rng.uniform(-1.7, 1.7, (n, 2))
    y = np.column_stack([np.sin(2.0 * X[:, 0]), 0.1 * rng.standard_normal(n)])
    y[:, 0] += 0.1 * rng.standard_normal(n)
    every = np.arange(n)
    weights = rng.integers(1, 3, n).astype(float)
    excluded = Exclusion(every, every + 1, 1.0 - 1.0 / weights)
    regressors = X if degree == 1 else None
    problem = Problem(X, regressors, y, weights, excluded, KERNELS[kernel], 2)
    return LeaveOneOut(problem, every, torch.device("cpu"), torch.float64)


def loss_of(rng, degree, precision=0.02):
    center = [0.5, 0.5, np.log(0.1)][: 2 + degree]
    prior = prior_of(center, precision)
    return MetricLoss(errors_of(rng, degree), prior, DiagonalMetric(2)), prior


# ---------------------------------------------------------------------------------------------
# The loss


@pytest.mark.parametrize("degree", [0, 1])
def test_loss_is_the_logarithm_of_the_mean_square_and_the_penalty(degree, rng):
    loss, prior = loss_of(rng, degree)
    at = prior.center + [0.3, -0.4, 0.2][: 2 + degree]
    ridge = np.exp(at[2]) if degree == 1 else 1.0
    errors = loss.errors.errors(DiagonalMetric(2), at[:2], ridge)
    weights = loss.errors.problem.weights
    mean_square = weights @ (errors**2).mean(axis=1) / weights.sum()
    expected = np.log(mean_square + 1e-6) + 0.02 * np.sum((at - prior.center) ** 2)
    assert_allclose(loss(at)[0], expected, rtol=1e-10)
    values = loss.errors.problem.values
    around = values - weights @ values / weights.sum()
    shares = weights @ errors**2 / (weights @ around**2)
    assert_allclose(loss.r_squared(at), 1.0 - shares.mean(), rtol=1e-10)


@pytest.mark.parametrize("degree", [0, 1])
def test_gradient_of_the_loss_is_its_derivative(degree, rng):
    loss, prior = loss_of(rng, degree)
    at = prior.center + [0.3, -0.4, 0.2][: 2 + degree]
    _, gradient, hessian = loss(at)
    for j, step in enumerate(1e-5 * np.eye(at.size)):
        expected = (loss(at + step)[0] - loss(at - step)[0]) / 2e-5
        assert_allclose(gradient[j], expected, rtol=1e-5, atol=1e-8)
    assert np.abs(gradient).max() > 0.01
    assert_allclose(hessian, hessian.T, rtol=1e-12)
    assert np.linalg.eigvalsh(hessian).min() >= 2.0 * 0.02 * (1.0 - 1e-9)


def test_an_exact_fit_has_a_finite_loss(rng):
    problem = errors_of(rng, 1).problem
    values = np.column_stack([problem.features @ [1.0, 2.0], np.zeros(60)])
    problem = replace(problem, values=values)
    errors = LeaveOneOut(problem, np.arange(60), torch.device("cpu"), torch.float64)
    loss = MetricLoss(errors, prior_of([0.0, -25.0], 0.0), ScalarMetric(2))
    value, gradient, hessian = loss(np.array([0.0, -25.0]))
    assert np.isfinite(gradient).all()
    assert np.isfinite(hessian).all()
    assert_allclose(value, np.log(1e-6), rtol=1e-3)


# ---------------------------------------------------------------------------------------------
# Ways to the minimum


def solve(solver, loss, start, prior, tol=1e-9, max_iter=200, monitor=None):
    more = {"batch_size": 1000, "patience": 20} if solver is Adam else {}
    chosen = solver(max_iter=max_iter, tol=tol, **more)
    return chosen.minimize(Task(loss, start, prior.bounds, monitor or watcher()))


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("solver", SOLVERS)
def test_every_solver_reaches_the_minimum(solver, degree, rng):
    loss, prior = loss_of(rng, degree, precision=0.2)
    found = minimize(lambda p: loss(p)[:2], prior.center, jac=True, method="BFGS", tol=1e-8)
    trained = solve(solver, loss, prior.center, prior, max_iter=600)
    assert loss(trained.parameters)[0] <= found.fun + (0.02 if solver is Adam else 1e-6)
    assert_allclose(trained.parameters, found.x, atol=0.3 if solver is Adam else 5e-3)
    assert trained.has_converged
    assert trained.validation_scores == []


@pytest.mark.parametrize("degree", [0, 1])
def test_losses_of_gauss_newton_never_increase_and_are_those_of_its_steps(degree, rng):
    loss, prior = loss_of(rng, degree)
    visited = []

    def notify(parameters):
        visited.append(parameters.copy())
        return False

    for shift in (-2.0, 1.5):
        visited.clear()
        trained = solve(
            GaussNewton, loss, prior.center + shift, prior, monitor=watcher(notify=notify)
        )
        assert (np.diff(trained.losses) < 0.0).all()
        assert_allclose(trained.losses, [loss(parameters)[0] for parameters in visited])
        assert_array_equal(visited[0], prior.center + shift)
        assert_array_equal(visited[-1], trained.parameters)


@pytest.mark.parametrize("solver", SOLVERS)
def test_losses_are_that_before_the_first_step_and_after_each(solver, rng):
    loss, prior = loss_of(rng, 1)
    visited = []

    def notify(parameters):
        visited.append(parameters.copy())
        return False

    trained = solve(solver, loss, prior.center - 1.0, prior, 0.0, 4, watcher(notify=notify))
    assert len(trained.losses) == len(visited) == 5
    assert_array_equal(visited[0], prior.center - 1.0)
    assert_allclose(trained.losses[0], loss(prior.center - 1.0)[0])
    assert not trained.has_converged


@pytest.mark.parametrize("solver", SOLVERS)
def test_bounds_are_respected(solver, rng):
    loss, _ = loss_of(rng, 1)
    center = np.array([-1.0, 1.5, -2.0])
    prior = prior_of(center, 0.01, 0.3)
    loss = MetricLoss(loss.errors, prior, loss.metric)
    seen = []

    def notify(parameters):
        seen.append(parameters.copy())
        return False

    trained = solve(solver, loss, center + 5.0, prior, 1e-9, 50, watcher(notify=notify))
    seen = np.array([*seen, trained.parameters])
    assert (seen >= prior.bounds.lower).all()
    assert (seen <= prior.bounds.upper).all()
    assert np.isclose(np.abs(trained.parameters - center), 0.3).any()
    found = minimize(
        lambda p: loss(p)[:2],
        center,
        jac=True,
        method="L-BFGS-B",
        bounds=list(zip(*prior.bounds, strict=True)),
        options={"ftol": 1e-12},
    )
    value = loss(trained.parameters)[0]
    assert value <= found.fun + (1e-2 if solver is Adam else 1e-5)


class Function:
    """A loss that is a function of parameters alone."""

    n_queries = 4

    def __init__(self, function):
        self.function = function

    def __call__(self, parameters):
        return self.function(parameters)

    def value(self, parameters):
        value = self.function(parameters)[0]
        return value if np.isfinite(value) else np.inf

    def at(self, positions):
        return self


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("solver", SOLVERS)
def test_steps_to_where_the_loss_is_no_number_are_bad_steps(solver, bad):
    # beyond 1 nothing is finite: steps are shortened or skipped, not taken
    def loss(parameters):
        (x,) = parameters
        if x > 1.0:
            return bad, np.array([np.nan]), np.array([[np.nan]])
        return (x - 0.999) ** 2, np.array([2.0 * (x - 0.999)]), np.array([[0.5]])

    trained = solve(solver, Function(loss), np.array([-3.0]), prior_of([0.0], 0.0), 1e-12)
    assert_allclose(trained.parameters, [0.999], atol=0.1 if solver is Adam else 1e-3)
    assert np.isfinite(trained.parameters).all()
    if solver is not Adam:
        assert np.isfinite(trained.losses).all()


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_start_that_cannot_be_evaluated_is_kept(solver):
    def loss(parameters):
        return np.nan, np.full(1, np.nan), np.full((1, 1), np.nan)

    start = np.array([0.5])
    trained = solve(solver, Function(loss), start, prior_of([0.0], 0.0), max_iter=5)
    assert_array_equal(trained.parameters, start)


def test_a_quadratic_is_minimised_in_few_steps():
    matrix = np.array([[2.0, 0.5], [0.5, 1.0]])

    def loss(parameters):
        away = parameters - [0.4, -0.2]
        return 0.5 * away @ matrix @ away, matrix @ away, matrix

    trained = solve(GaussNewton, Function(loss), np.zeros(2), prior_of([0.0, 0.0], 0.0), 1e-12, 20)
    assert_allclose(trained.parameters, [0.4, -0.2], atol=1e-5)
    assert len(trained.losses) <= 8
    assert trained.has_converged


@pytest.mark.parametrize("solver", SOLVERS)
def test_too_few_steps_have_not_converged(solver, rng):
    loss, prior = loss_of(rng, 1)
    trained = solve(solver, loss, prior.center - 2.0, prior, 1e-12, 1)
    assert not trained.has_converged
    assert np.isfinite(trained.parameters).all()
    assert loss(trained.parameters)[0] < loss(prior.center - 2.0)[0]


def test_batches_of_adam_are_drawn_by_their_seed(rng):
    loss, prior = loss_of(rng, 0)

    def trained(seed):
        solver = Adam(batch_size=7, max_iter=3, patience=5, tol=1e-6)
        return solver.minimize(Task(loss, prior.center, prior.bounds, watcher(), seed)).parameters

    assert_array_equal(trained(0), trained(0))
    assert (trained(0) != trained(1)).any()


def test_losses_of_attention_take_no_more_steps_with_what_is_learned():
    steps = []
    for seed in range(5):
        loss, prior = loss_of(np.random.default_rng(seed), 1)

        def linearize(points, loss=loss):
            return tuple(np.stack(part) for part in zip(*map(loss, points), strict=True))

        found = [
            LevenbergMarquardt(1e-9, 300, near=near).minimize(
                linearize, prior.center[None] - 1.0, prior.bounds
            )
            for near in (0.05, 0.0)
        ]
        # not always the same minimum, but as good a one
        assert_allclose(found[0].values, found[1].values, atol=0.03)
        steps.append([len(each.history) for each in found])
    assert np.sum(steps, axis=0)[0] < np.sum(steps, axis=0)[1]


# ---------------------------------------------------------------------------------------------
# When to stop


def test_monitor_keeps_the_best_and_stops_after_its_patience():
    scores = iter([0.1, 0.5, 0.3, 0.4, 0.2])
    monitor = watcher(lambda parameters: next(scores), patience=3)
    stops = [monitor.stops(np.array([float(i)])) for i in range(5)]
    assert stops == [False, False, False, False, True]
    trained = monitor.trained(np.array([9.0]), [1.0], converged=True)
    assert_array_equal(trained.parameters, [1.0])
    assert trained.validation_scores == [0.1, 0.5, 0.3, 0.4, 0.2]


def test_monitor_copies_what_may_change():
    at = np.array([1.0])
    monitor = watcher(lambda parameters: -abs(parameters[0]), patience=2)
    monitor.stops(at)
    at += 1.0
    assert_array_equal(monitor.trained(at, [], converged=True).parameters, [1.0])


def test_without_a_score_the_last_parameters_are_kept():
    monitor = watcher()
    assert not monitor.stops(np.array([1.0]))
    trained = monitor.trained(np.array([2.0]), [], converged=False)
    assert_array_equal(trained.parameters, [2.0])
    assert not trained.has_converged


@pytest.mark.parametrize("solver", SOLVERS)
def test_early_stopping_restores_the_best_step(solver, rng):
    loss, prior = loss_of(rng, 1, precision=0.001)
    visited = []

    def score(parameters):  # best at the third visit, whatever the loss is
        visited.append(parameters.copy())
        return -abs(len(visited) - 3.0)

    monitor = watcher(score, patience=2)
    trained = solve(solver, loss, prior.center - 3.0, prior, 0.0, 50, monitor)
    assert len(visited) == 5
    assert_array_equal(trained.parameters, visited[2])
    assert trained.validation_scores == [-2.0, -1.0, 0.0, -1.0, -2.0]
    assert trained.has_converged


@pytest.mark.parametrize("solver", SOLVERS)
def test_training_stops_when_it_is_told_to(solver, rng):
    loss, prior = loss_of(rng, 1)
    visited = []

    def notify(parameters):
        visited.append(parameters.copy())
        return len(visited) == 3

    trained = solve(solver, loss, prior.center - 3.0, prior, 0.0, 50, watcher(notify=notify))
    assert len(visited) == 3
    assert_array_equal(trained.parameters, visited[-1])


# ---------------------------------------------------------------------------------------------
# Parameters


@pytest.mark.parametrize("solver", [*SOLVERS, GradientDescent])
def test_solvers_are_objects_of_parameters(solver):
    one = solver(max_iter=7)
    assert one.get_params()["max_iter"] == 7
    assert clone(one).set_params(max_iter=8).max_iter == 8
    assert repr(one) == f"{solver.__name__}(max_iter=7)"
    assert solver(max_iter=0).max_iter == 0  # `fit` refuses it


def test_gradient_descent_takes_all_its_steps_and_keeps_the_last():
    def loss(parameters):
        return float(parameters @ parameters), 2.0 * parameters, np.zeros((0, 0))

    task = Task(Function(loss), np.ones(2), prior_of(np.zeros(2), 0.0).bounds, watcher())
    trained = GradientDescent(learning_rate=0.75, max_iter=3).minimize(task)
    assert_allclose(trained.parameters, (-0.5) ** 3)
    assert_allclose(trained.losses, 2.0 * 0.25 ** np.arange(4))
    with np.errstate(over="ignore"):
        diverged = GradientDescent(learning_rate=1e200, max_iter=9).minimize(task)
    assert not np.isfinite(diverged.losses[-1])
