"""Newton steps within bounds, and what Gauss-Newton matrices leave out."""

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from skattn._optimize.newton_steps import bounded_steps, corrected, secant_update

BOUNDS = np.full(2, -5.0), np.full(2, 3.0)


def test_steps_end_in_the_minimum_within_the_bounds():
    hessian = 2.0 * np.array([[2.0, 1.0], [1.0, 3.0]])
    inside, outside = np.array([-1.0, -0.5]), np.array([-1.0, 4.0])
    start = np.array([0.0, 0.5])
    gradients = np.array([hessian @ (start - minimum) for minimum in (inside, outside)])
    both = np.stack([start, start]), gradients, np.stack([hessian, hessian])
    steps = bounded_steps(*both, BOUNDS)
    assert_allclose(start + steps[0], inside)
    # along the bound: the derivative in the other variable vanishes
    assert_allclose(start[1] + steps[1, 1], 3.0)
    assert_allclose(start[0] + steps[1, 0], outside[0] + 0.5 * (outside[1] - 3.0))
    assert_array_equal(bounded_steps(*(each[1:] for each in both), BOUNDS), steps[1:])


def test_a_variable_at_a_bound_stays_there_when_its_gradient_leads_out():
    points, gradients = np.array([[0.0, 3.0]]), np.array([[1.0, -1.0]])
    steps = bounded_steps(points, gradients, 2.0 * np.eye(2)[None], BOUNDS)
    assert_allclose(steps, [[-0.5, 0.0]])


def test_secants_learn_what_the_matrix_leaves_out(rng):
    # a quadratic function of which only half the Hessian is known: its gradients tell the rest
    hessian = np.diag([1.0, 3.0, 5.0]) + 0.2
    known, rest = 0.5 * hessian[None], np.zeros((1, 3, 3))
    for _ in range(60):
        step = rng.standard_normal((1, 3))
        change, explained = step @ hessian, step @ known[0]
        rest = secant_update(rest, change, explained, step)
        assert_allclose((known + rest)[0] @ step[0], change[0], rtol=1e-9)
        assert_allclose(rest[0], rest[0].T, atol=1e-12)
    assert_allclose(rest[0], 0.5 * hessian, atol=0.15 * hessian.max())


def test_corrections_that_are_not_positive_definite_are_not_used():
    matrices = np.stack([np.eye(2), np.eye(2)])
    rests = np.stack([np.diag([-2.0, 0.0]), np.diag([-0.5, 0.0])])
    every = np.ones((2, 2), dtype=bool)
    assert_allclose(corrected(matrices, rests, every), [np.eye(2), np.diag([0.5, 1.0])])
    held = np.array([[False, True], [True, True]])
    assert_allclose(corrected(matrices, rests, held)[0], np.diag([-1.0, 1.0]))
