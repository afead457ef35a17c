"""The variable that descents step in."""

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from skattn._bandwidth._bend import HIGHEST, LOWEST, WIDEST, bend, newton_steps, stretch, unbend


def test_bending_is_undone():
    logs = np.array([-WIDEST, -3.0, 0.0, 2.0, 5.0, WIDEST])
    assert_allclose(unbend(bend(logs)), logs, rtol=1e-9, atol=1e-12)
    assert_array_equal(bend(np.array([-np.inf, np.inf])), [LOWEST, HIGHEST])


def test_narrow_bandwidths_are_not_bent():
    assert_allclose(bend(np.array([-5.0])), -5.0, atol=1e-4)


def test_stretch_is_the_derivative():
    bent, step = bend(np.array([-2.0, 0.0, 1.5, 3.0])), 1e-6
    slope = (unbend(bent + step) - unbend(bent - step)) / (2.0 * step)
    assert_allclose(stretch(unbend(bent)), slope, rtol=1e-4)


def test_steps_end_in_the_minimum_within_the_bounds():
    matrix = np.array([[2.0, 1.0], [1.0, 3.0]])
    inside, outside = np.array([-1.0, -0.5]), np.array([-1.0, HIGHEST + 1.0])
    start = np.array([0.0, 0.5])
    gradients = np.array([2.0 * matrix @ (start - minimum) for minimum in (inside, outside)])
    steps = newton_steps(np.stack([start, start]), gradients, np.stack([matrix, matrix]))
    assert_allclose(start + steps[0], inside)
    # along the bound: the derivative in the other variable vanishes
    assert_allclose(start[1] + steps[1, 1], HIGHEST)
    assert_allclose(start[0] + steps[1, 0], outside[0] + 0.5 * (outside[1] - HIGHEST))
    assert_array_equal(newton_steps(start, gradients[1], matrix), steps[1])


def test_a_variable_at_a_bound_stays_there_when_its_gradient_leads_out():
    bent, gradient = np.array([0.0, HIGHEST]), np.array([1.0, -1.0])
    assert_allclose(newton_steps(bent, gradient, np.eye(2)), [-0.5, 0.0])
