"""The smoother matrix: leverage and effective numbers."""

import numpy as np
from numpy.testing import assert_allclose

from skattn._attention import Request, Resources
from skattn._geometry import Table
from skattn.kernels import KERNELS
from skattn._smoother import Keys, effective_neighbors, smooth, smoother_matrix

GAUSSIAN = KERNELS["gaussian"]


def keys_of(X, y, weights):
    table = Table.canonical(X, y, weights)
    return Keys.of(table, GAUSSIAN, np.ones(X.shape[1]), None, None)


def test_leverage_is_the_diagonal_of_the_smoother_matrix(rng):
    X, y = np.sort(rng.random((25, 1)), axis=0) * 9.0, rng.random((25, 1))
    keys = keys_of(X, y, np.ones(25))
    matrix, _ = smoother_matrix(keys.at(X), Resources())
    assert_allclose(smooth(keys.rows(), Resources()).leverage, np.diag(matrix), rtol=1e-13)


def test_leverage_of_absent_rows_is_zero():
    X = np.array([[0.0], [1.0], [2.0]])
    keys = keys_of(X, X, np.array([1.0, 0.0, 1.0]))
    diagonal = smooth(keys.rows(), Resources()).leverage
    assert diagonal[2] == 0.0
    assert_allclose(diagonal[:2], 1.0 / (1.0 + np.exp(-2.0)))


def test_effective_neighbors_count_equal_weights():
    queries, keys = np.array([[0.0], [50.0]]), np.array([[0.0], [0.0], [0.0], [100.0]])
    request = Request(queries, keys, keys, GAUSSIAN, np.zeros(4), repeats=np.ones(4))
    number, outside = effective_neighbors(request, Resources())
    assert_allclose(number, [3.0, 4.0], rtol=1e-13)
    assert not outside.any()
