"""Damped Gauss-Newton descents, on least squares whose minima are known."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skattn._optimize import EarlyAbandonment, LevenbergMarquardt

WIDE = np.full(2, -10.0), np.full(2, 10.0)
METHOD = LevenbergMarquardt(1e-12, 200)


def least_squares(residuals, jacobian):
    """Values, gradients and Gauss-Newton matrices of half the squared residuals."""

    def linearize(points):
        r, J = residuals(points), jacobian(points)
        values = 0.5 * (r**2).sum(axis=1)
        return values, (J.transpose(0, 2, 1) @ r[:, :, None])[:, :, 0], J.transpose(0, 2, 1) @ J

    return linearize


def valley(points):
    x, y = points.T
    return np.stack([10.0 * (y - x**2), 1.0 - x], axis=1)


def valley_slopes(points):
    x, one = points[:, 0], np.ones(len(points))
    rows = [np.stack([-20.0 * x, 10.0 * one], axis=1), np.stack([-one, 0.0 * one], axis=1)]
    return np.stack(rows, axis=1)


ROSENBROCK = least_squares(valley, valley_slopes)


def test_each_start_finds_the_end_of_the_valley(rng):
    starts = rng.uniform(-2.0, 2.0, (8, 2))
    found = METHOD.minimize(ROSENBROCK, starts, WIDE)
    assert found.has_converged
    assert_allclose(found.points, np.ones((8, 2)), rtol=1e-5)
    assert (np.diff(found.history) < 0.0).all()


def test_starts_together_go_where_each_goes_alone(rng):
    starts = rng.uniform(-2.0, 2.0, (5, 2))
    together = METHOD.minimize(ROSENBROCK, starts, WIDE)
    alone = [METHOD.minimize(ROSENBROCK, start[None], WIDE).points[0] for start in starts]
    assert_allclose(together.points, alone, rtol=1e-9)


def test_minima_at_a_bound():
    bounds = np.full(2, -1.0), np.array([0.5, 10.0])
    found = METHOD.minimize(ROSENBROCK, np.zeros((1, 2)), bounds)
    assert_allclose(found.best, [0.5, 0.25], rtol=1e-6)


def large_residuals(points, curvature=-0.95):
    """Half the squares of (t + 1, c t**2 + t - 1) for three combinations t: least at zero.

    Near there, steps of Gauss and Newton take t to c t only, since residuals of one remain.
    """
    turn = np.linalg.qr(np.random.default_rng(1).standard_normal((3, 3)))[0]

    def residuals(points):
        t = points @ turn.T
        return np.hstack([t + 1.0, curvature * t**2 + t - 1.0])

    def jacobian(points):
        t = points @ turn.T
        lower = (2.0 * curvature * t + 1.0)[:, :, None] * turn
        return np.concatenate([np.broadcast_to(turn, lower.shape), lower], axis=1)

    return least_squares(residuals, jacobian)(points)


def test_the_gradients_of_large_residuals_are_right():
    at, steps = np.array([[0.2, -0.1, 0.05]]), 1e-6 * np.eye(3)
    expected = (large_residuals(at + steps)[0] - large_residuals(at - steps)[0]) / 2e-6
    assert_allclose(large_residuals(at)[1][0], expected, rtol=1e-6)


def test_large_residuals_take_fewer_steps_with_what_is_learned():
    start, bounds = np.array([[0.3, 0.2, -0.1]]), (np.full(3, -10.0), np.full(3, 10.0))
    learned, plain = (
        LevenbergMarquardt(1e-13, 400, near=near).minimize(large_residuals, start, bounds)
        for near in (0.05, 0.0)
    )
    for found in (learned, plain):
        assert (np.diff(found.history) < 0.0).all()  # never a step up
        assert found.has_converged
    assert_allclose(learned.best, 0.0, atol=1e-4)
    assert_allclose(learned.history[-1], 3.0, atol=1e-9)
    assert len(learned.history) <= 0.5 * len(plain.history)
    assert learned.history[-1] <= plain.history[-1] + 1e-12


def test_a_start_that_meets_a_better_one_is_given_up():
    starts = np.array([[1.1, 1.2], [1.1001, 1.2], [-1.5, 2.0]])
    found = METHOD.minimize(ROSENBROCK, starts, WIDE, EarlyAbandonment(0.01))
    assert found.is_merged.any()
    assert_allclose(found.best, [1.0, 1.0], rtol=1e-5)


@pytest.mark.parametrize("bad", [np.nan, np.inf, "singular"])
def test_a_step_to_where_nothing_is_defined_is_a_bad_step(bad):
    def linearize(points):
        values, gradients, matrices = ROSENBROCK(points)
        undefined = points[:, 0] > 1.3
        if bad == "singular" and undefined.any():
            raise np.linalg.LinAlgError
        return (
            np.where(undefined, bad, values) if bad != "singular" else values,
            gradients,
            matrices,
        )

    found = METHOD.minimize(linearize, np.array([[1.2, -2.0], [0.0, 2.0]]), WIDE)
    assert_allclose(found.points, np.ones((2, 2)), rtol=1e-5)


def test_a_start_without_a_value_is_left_where_it_is():
    def linearize(points):
        values, gradients, matrices = ROSENBROCK(points)
        return np.where(points[:, 0] > 5.0, np.nan, values), gradients, matrices

    found = METHOD.minimize(linearize, np.array([[6.0, 0.0], [0.0, 0.0]]), WIDE)
    assert found.values[0] == np.inf
    assert_array_equal(found.points[0], [6.0, 0.0])
    assert_allclose(found.best, [1.0, 1.0], rtol=1e-5)


def test_too_few_steps_are_told():
    assert (
        not LevenbergMarquardt(1e-12, 2).minimize(ROSENBROCK, np.zeros((1, 2)), WIDE).has_converged
    )


def test_a_monitor_stops_all():
    class Once:
        seen = 0

        def stops(self, parameters):
            self.seen += 1
            return self.seen > 3

    found = METHOD.minimize(ROSENBROCK, np.array([[-1.5, 2.0]]), WIDE, monitor=Once())
    assert found.has_converged
    assert len(found.history) == 4  # where it started, and three steps
