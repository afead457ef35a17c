"""The smoother matrix: leverage and effective numbers."""

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from skattn.attention import Resources, attend_weights
from skattn.geometry import Table
from skattn.kernels import KERNELS
from skattn.smoother import effective_neighbors, leverage


def test_leverage_is_the_diagonal_of_the_smoother_matrix(rng):
    X, y = np.sort(rng.random((25, 1)), axis=0) * 9.0, rng.random((25, 1))
    table = Table.canonical(X, y, np.ones(25))
    arguments = (table.X, KERNELS["gaussian"], np.zeros(25))
    diagonal = leverage(table.X, *arguments, table.itself(), Resources())
    smoother, _ = attend_weights(table.X, *arguments)
    assert_allclose(diagonal, np.diag(smoother), rtol=1e-13)


def test_leverage_of_absent_rows_is_zero():
    X = np.array([[0.0], [1.0], [2.0]])
    table = Table.canonical(X, X, np.array([1.0, 0.0, 1.0]))
    diagonal = leverage(
        table.X, table.X[:2], KERNELS["gaussian"], np.zeros(2), table.itself(), Resources()
    )
    assert diagonal[2] == 0.0
    assert_allclose(diagonal[:2], 1.0 / (1.0 + np.exp(-2.0)))


def test_effective_neighbors_count_equal_weights():
    weights = np.array([[0.25, 0.25, 0.25, 0.25], [1.0, 0.0, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0]])
    assert_array_equal(effective_neighbors((weights**2).sum(axis=1)), [4.0, 1.0, 2.0])
