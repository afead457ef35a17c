"""Newton steps within bounds, and what Gauss-Newton matrices leave out."""

import numpy as np
import pytest
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


@pytest.mark.parametrize("size", [0.0, 0.1, 3.0])
def test_what_is_learned_explains_the_last_change_and_stays_symmetric(size, rng):
    rests = rng.standard_normal((5, 4, 4)) * size
    rests = rests + rests.transpose(0, 2, 1)
    steps, explained = rng.standard_normal((5, 4)), rng.standard_normal((5, 4))
    changes = steps + 0.3 * rng.standard_normal(
        (5, 4)
    )  # along the step, as where losses are convex
    found = secant_update(rests, changes, explained, steps)
    assert_allclose(
        (found @ steps[:, :, None])[:, :, 0], changes - explained, rtol=1e-10, atol=1e-12
    )
    assert_allclose(found, found.transpose(0, 2, 1), rtol=1e-12, atol=1e-12)
    # nothing is changed where it explains already, or the gradient says nothing
    again = secant_update(found, changes, explained, steps)
    assert_allclose(again, found, rtol=1e-8, atol=1e-10)
    assert_array_equal(secant_update(rests, -changes, explained, steps), rests)


def test_a_rest_that_is_too_large_is_sized_first():
    steps, changes, explained = np.array([[[1.0, 0.0]], [[2.0, 0.0]], [[1.0, 0.0]]])
    rest = np.diag([10.0, 10.0])[None]
    found = secant_update(rest, changes, explained, steps)  # 1 is unexplained, not 10
    assert_allclose(found, np.diag([1.0, 1.0])[None])
    found = secant_update(0.01 * rest, changes, explained, steps)
    assert_allclose(found, np.diag([1.0, 0.1])[None])  # and none is enlarged


def test_corrections_that_are_not_positive_definite_are_not_used():
    matrices = np.stack([np.eye(2), np.eye(2)])
    rests = np.stack([np.diag([-2.0, 0.0]), np.diag([-0.5, 0.0])])
    every = np.ones((2, 2), dtype=bool)
    assert_allclose(corrected(matrices, rests, every), [np.eye(2), np.diag([0.5, 1.0])])
    held = np.array([[False, True], [True, True]])
    assert_allclose(corrected(matrices, rests, held)[0], np.diag([-1.0, 1.0]))
