"""Sums of weights under many bandwidths at once, and means and lines read off them.

Both are over the same queries: with D = k - q the differences of keys and queries, values v and
attention weights w, a line is

    center = sum w D,   level = sum w v,
    C = sum w D D' - center center',   cross = sum w D v' - center level',
    dual = -C^-1 center,   slope = C^-1 cross,   f(q) = level + dual' cross.

Lines are flat where keys do not differ, by the rule of `skattn._smoother`, which needs eigenvalues
of C; elsewhere elimination, entry by entry of all matrices at once, is several times faster.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skattn._smoother.local_linear import inverse_variances

__all__ = ["BatchedLines", "BatchedMeans"]

Array = NDArray[np.float64]
Numbers = NDArray[Any]
Indices = NDArray[np.intp]

# Pivots of covariances, relative to the largest variance, from which lines may be flat.
_THIN = 1e-4


@dataclass(frozen=True)
class BatchedFit:
    """Fits of all points and queries, one output or feature after the other.

    Attributes
    ----------
    prediction : ndarray of shape (n_outputs, n_queries, n_points)
        Fits at the queries.
    center : ndarray of shape (n_features, n_queries, n_points)
        Weighted mean of the differences.
    line : ndarray of shape (n_features, 1 + n_outputs, n_queries, n_points)
        Dual, then slopes of the outputs.
    level : ndarray of shape (n_outputs, n_queries, n_points)
        Weighted mean of the values.
    factor : ndarray of shape (n_queries, n_points) or float
        Factor of weights at distance zero.
    """

    prediction: Array
    center: Array
    line: Array
    level: Array
    factor: Array | float


class BatchedMeans:
    """Weighted means; columns are the values, and one.

    Parameters
    ----------
    away : ndarray of shape (n_features, n_queries, n_keys)
        Differences of keys and queries.
    values : ndarray of shape (n_keys, n_outputs)
        Values of the keys.
    with_leverage : bool
        Whether slopes of leverages are wanted.
    """

    def __init__(self, away: Numbers, values: Array, *, with_leverage: bool) -> None:
        self.n_factors = values.shape[1] + with_leverage
        self.columns = np.column_stack([values, np.ones(len(values))]).astype(away.dtype)

    def sums(self, weights: Numbers, block: slice) -> Array:
        """Sums (n_columns, n_queries, n_points) of weights (n_queries, n_points, n_keys)."""
        sums = weights.reshape(-1, weights.shape[2]) @ self.columns
        return sums.T.reshape(-1, *weights.shape[:2]).astype(np.float64)

    def sums_of(self, weights: Numbers, queries: Indices) -> Array:
        """Sums (n_columns, n_pairs) of weights (n_pairs, n_keys) of some queries."""
        return (weights @ self.columns).T

    def read(self, sums: Array, theta: Array) -> BatchedFit:
        """Means from normalised sums."""
        mean, nothing = sums[:-1], np.empty((0, *sums.shape))
        return BatchedFit(mean, nothing[:, 0], nothing, mean, 1.0)

    def factors(self, fit: BatchedFit, changes: Numbers, block: slice, out: Numbers) -> Numbers:
        """Changes of weights times residuals, (n_outputs, n_queries, n_points, n_keys).

        Behind them, with leverages, the changes themselves.
        """
        level, p = fit.level.astype(out.dtype), len(fit.level)
        np.subtract(self.columns.T[:p, None, None, :], level[:, :, :, None], out=out[:p])
        out[:p] *= changes
        out[p:] = changes
        return out


class BatchedLines:
    """Local lines; columns are v, 1, D, D v, D D'. Parameters are those of `BatchedMeans`."""

    def __init__(self, away: Array, values: Array, *, with_leverage: bool) -> None:
        d, n_queries, n_keys = away.shape
        p, both = values.shape[1], _pairs(d)
        self.n_outputs, self.n_factors = p, 1 + p + with_leverage
        columns = np.empty((n_queries, p + 1 + d + d * p + len(both), n_keys))
        columns[:, :p], columns[:, p] = values.T, 1.0
        columns[:, p + 1 : p + 1 + d] = away.transpose(1, 0, 2)
        for j, each in enumerate(away):
            first = p + 1 + d + j * p
            np.multiply(each[:, None], values.T, out=columns[:, first : first + p])
        for column, (i, j) in enumerate(both, start=p + 1 + d + d * p):
            np.multiply(away[i], away[j], out=columns[:, column])
        self.columns = columns

    def sums(self, weights: Array, block: slice) -> Array:
        """Sums (n_columns, n_queries, n_points) of weights (n_queries, n_points, n_keys)."""
        sums = weights @ self.columns[block].transpose(0, 2, 1)
        return np.ascontiguousarray(sums.transpose(2, 0, 1))

    def sums_of(self, weights: Numbers, queries: Indices) -> Array:
        """Sums (n_columns, n_pairs) of weights (n_pairs, n_keys) of some queries."""
        return np.einsum("hk,hck->ch", weights, self.columns[queries])

    def read(self, sums: Array, theta: Array) -> BatchedFit:
        """Lines from normalised sums, at log-bandwidths (n_points, n_features)."""
        p, d = self.n_outputs, theta.shape[1]
        scale = np.exp(-np.minimum(theta.T, 0.0))[:, None, :]  # to regressors of order one
        level, center = sums[:p], sums[p + 1 : p + 1 + d] * scale
        cross = sums[p + 1 + d : p + 1 + d + d * p].reshape(d, p, *sums.shape[1:])
        cross = cross * scale[:, None] - center[:, None] * level
        covariance = np.empty((d, d, *sums.shape[1:]))
        for column, (i, j) in enumerate(_pairs(d), start=p + 1 + d + d * p):
            np.multiply(sums[column], scale[i] * scale[j], out=covariance[i, j])
            covariance[i, j] -= center[i] * center[j]
            covariance[j, i] = covariance[i, j]
        line = _solve(covariance, np.concatenate([-center[:, None], cross], axis=1))
        prediction = level + np.einsum("j...,jp...->p...", line[:, 0], cross)
        factor = 1.0 - np.einsum("j...,j...->...", line[:, 0], center)
        return BatchedFit(prediction, center / scale, line * scale[:, None], level, factor)

    def factors(self, fit: BatchedFit, changes: Array, block: slice, out: Array) -> Array:
        """Changes of weights times factors and residuals, (n_outputs, n_queries, n_points, n_keys).

        Behind them, with leverages, changes times squared factors. Factors 1 + dual' (D - center),
        and residuals, are products of coefficients and columns.
        """
        p, d = self.n_outputs, len(fit.center)
        coefficients = np.zeros((1 + p, *fit.level.shape[1:], p + 1 + d))
        coefficients[0, ..., p] = 1.0
        for output in range(p):
            coefficients[1 + output, ..., output] = 1.0
            coefficients[1 + output, ..., p] = -fit.level[output]
        signs = np.where(np.arange(1 + p) == 0, 1.0, -1.0)[:, None, None]
        for j in range(d):
            each = signs * fit.line[j]
            coefficients[..., p + 1 + j] = each
            coefficients[..., p] -= each * fit.center[j]
        np.matmul(coefficients, self.columns[block, : p + 1 + d], out=out[: 1 + p])
        out[1 + p :] = out[:1]
        out[0] *= changes
        out[1:] *= out[0]
        return out[1:]


def _solve(matrix: Array, right: Array) -> Array:
    """Inverses of covariances (d, d, ...) of lines times (d, n, ...)."""
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
        exact = _by_eigenvalues(_columns(matrix, thin), _columns(right, thin))
        solved.reshape(d, -1, is_thin.size)[:, :, thin] = exact.transpose(1, 2, 0)
    return solved


def _columns(arrays: Array, entries: Indices) -> Array:
    """Some of the matrices (d, n, ...), one after the other: (n_entries, d, n)."""
    return arrays.reshape(*arrays.shape[:2], -1)[:, :, entries].transpose(2, 0, 1)


def _by_eigenvalues(matrices: Array, right: Array) -> Array:
    """Inverses of matrices (m, d, d) times (m, d, n), one by one, flat where they are."""
    variances, axes = np.linalg.eigh(matrices)
    inverse = inverse_variances(np.maximum(variances, 0.0))
    return np.asarray(axes @ (inverse[:, :, None] * (axes.transpose(0, 2, 1) @ right)))


def _pairs(d: int) -> list[tuple[int, int]]:
    """Pairs of features, each once."""
    return [(i, j) for i in range(d) for j in range(i, d)]
