"""Lines of many queries and bandwidths at once, from their moments.

With D = k - q, values v and attention weights w,

    C = sum w D D' - center center',   cross = sum w D v' - center level',
    arm = -C^-1 center,   slope = C^-1 cross,   f(q) = level + arm' cross.

Lines are flat where keys do not differ, by the rule of `skattn._smoother`, which needs eigenvalues
of C; elsewhere elimination, entry by entry of all matrices at once, is several times faster.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from skattn._smoother.local_linear import inverse_variances

__all__ = ["pairs", "solve_lines"]

Array = NDArray[np.float64]

# Pivots of covariances, relative to the largest variance, from which lines may be flat.
_THIN = 1e-4


def solve_lines(sums: Array, scale: Array, p: int) -> tuple[Array, Array, Array]:
    """Center and (arm, slopes) in coordinates of lines, and means, from normalised sums.

    The arrays' last axes are queries and starts.
    """
    d, shape = len(scale), sums.shape[1:]
    level = sums[:p]
    center = sums[p + 1 : p + 1 + d] * scale
    cross = sums[p + 1 + d : p + 1 + d + d * p].reshape(d, p, *shape) * scale[:, None]
    cross -= center[:, None] * level
    covariance = np.empty((d, d, *shape))
    for column, (i, j) in enumerate(pairs(d)):
        raw = sums[p + 1 + d + d * p + column] * (scale[i] * scale[j])
        np.subtract(raw, center[i] * center[j], out=covariance[i, j])
        covariance[j, i] = covariance[i, j]
    line = np.concatenate([-center[:, None], cross], axis=1)
    _solve(covariance, line)
    mean = level + np.einsum("j...,jp...->p...", line[:, 0], cross)
    return center / scale, line, mean


def _solve(matrix: Array, right: Array) -> None:
    """Multiply (d, n, ...) by the inverses of covariances (d, d, ...) of lines, in place."""
    d = len(matrix)
    least = _THIN * np.maximum(np.einsum("jj...->...", matrix), 1.0)
    rest, solved = matrix.copy(), right.copy()
    is_thin = np.zeros(least.shape, dtype=bool)
    for j in range(d):  # elimination, all at once
        is_thin |= rest[j, j] < least
        inverse = 1.0 / np.maximum(rest[j, j], least)
        solved[j] *= inverse
        rest[j, j + 1 :] *= inverse
        for i in range(j + 1, d):
            solved[i] -= rest[i, j] * solved[j]
            rest[i, j + 1 :] -= rest[i, j] * rest[j, j + 1 :]
    for j in range(d - 2, -1, -1):
        for i in range(j + 1, d):
            solved[j] -= rest[j, i] * solved[i]
    thin = np.flatnonzero(is_thin)
    if thin.size:
        flat = right.reshape(d, -1, is_thin.size)[:, :, thin].transpose(2, 0, 1)
        exact = _by_eigenvalues(matrix.reshape(d, d, -1)[:, :, thin].transpose(2, 0, 1), flat)
        solved.reshape(d, -1, is_thin.size)[:, :, thin] = exact.transpose(1, 2, 0)
    right[:] = solved


def _by_eigenvalues(matrices: Array, right: Array) -> Array:
    """The same for matrices (m, d, d) one by one, flat where they are."""
    variances, axes = np.linalg.eigh(matrices)
    inverse = inverse_variances(np.maximum(variances, 0.0))
    return np.asarray(axes @ (inverse[:, :, None] * (axes.transpose(0, 2, 1) @ right)))


def pairs(d: int) -> list[tuple[int, int]]:
    """Pairs of features, each once."""
    return [(i, j) for i in range(d) for j in range(i, d)]
