"""Descents from many starts at once, on few rows, to find where the minima are.

All starts share the squared differences of the rows, feature by feature; a step of all of them is
a handful of array operations in single precision.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skattn.attention import run_blocks, slices
from skattn.bandwidth._objective import WIDEST, Objective

__all__ = ["scout"]

Array = NDArray[np.float64]

# Entries of the largest arrays, in single precision.
_CACHED_ENTRIES = 50_000


def scout(objective: Objective, starts: Array, n_steps: int) -> tuple[Array, Array]:
    """Damped Gauss-Newton steps on leave-one-out errors from each of some starts.

    Parameters
    ----------
    objective : Objective
        The rows: few, since memory is O((n_starts + n_features) * n_rows**2). The criterion is
        leave-one-out.
    starts : ndarray of shape (n_starts, n_features)
        Log-bandwidths in spreads.
    n_steps : int
        At most; fewer where no start gains any more.

    Returns
    -------
    values : ndarray of shape (n_starts,)
        Mean squared leave-one-out errors reached.
    log_bandwidths : ndarray of shape (n_starts, n_features)
        Where.
    """
    fleet = _Fleet(objective)
    theta = np.clip(starts, -WIDEST, WIDEST)
    damping = np.full(len(theta), 1e-2)
    values, gradients, matrices = fleet.linearize(theta)
    for _ in range(n_steps):
        diagonal = np.einsum("sjj->sj", matrices)
        floor = np.maximum(1e-3 * diagonal.max(axis=1, keepdims=True), 1e-12)
        damped = (
            matrices
            + np.eye(theta.shape[1]) * (damping[:, None] * np.maximum(diagonal, floor))[:, None, :]
        )
        steps = np.linalg.solve(damped, -0.5 * gradients[:, :, None])[:, :, 0]
        trial = np.clip(theta + np.clip(steps, -2.0, 2.0), -WIDEST, WIDEST)
        lowered = fleet.linearize(trial)
        better = lowered[0] < values
        settled = (values - lowered[0])[better] < 1e-4 * values[better]
        theta = np.where(better[:, None], trial, theta)
        values = np.where(better, lowered[0], values)
        gradients = np.where(better[:, None], lowered[1], gradients)
        matrices = np.where(better[:, None, None], lowered[2], matrices)
        damping = np.where(better, 0.3 * damping, 6.0 * damping)
        if better.any() and settled.all():
            break
    return values, theta


class _Fleet:
    """Leave-one-out errors of the same rows at many bandwidths."""

    def __init__(self, objective: Objective) -> None:
        self.kernel = objective.kernel
        # nothing is lost on outliers this far out, and squares do not overflow
        x = np.clip(objective.coordinates, -1e9, 1e9).astype(np.float32)
        self.differences = (x[:, None, :] - x) ** 2  # (queries, keys, features)
        self.by_feature = np.ascontiguousarray(self.differences.reshape(-1, x.shape[1]).T)
        self.values = objective.values.astype(np.float32)
        self.weights = np.broadcast_to(objective.weights, (len(x), len(x))).astype(np.float32)
        queries, keys = objective.own.entries(0, len(x))
        self.weights[queries, keys] *= objective.own.kept[queries]
        self.share = objective.weights / objective.weights.sum()

    def linearize(self, theta: Array) -> tuple[Array, Array, Array]:
        """Values, gradients and Gauss-Newton matrices at log-bandwidths (n_starts, n_features)."""
        values, gradients = np.zeros(len(theta)), np.zeros(theta.shape)
        matrices = np.zeros((*theta.shape, theta.shape[1]))

        def run(blocks: Sequence[slice]) -> None:
            for block in blocks:
                values[block], gradients[block], matrices[block] = self._linearize(theta[block])

        # few starts at a time, for arrays that stay in the cache
        step = max(1, _CACHED_ENTRIES // self.weights.size)
        run_blocks(run, list(slices(len(theta), step)), n_threads=1)
        return values, gradients, matrices

    def _linearize(self, theta: Array) -> tuple[Array, Array, Array]:
        weights, slopes = self._weights(theta)
        total = weights.sum(axis=2)
        found = total > 0.0
        total[~found] = 1.0
        slopes *= found[:, :, None]
        value, n_outputs = np.zeros(len(theta)), self.values.shape[1]
        gradient = np.zeros(theta.shape)
        matrix = np.zeros((*theta.shape, theta.shape[1]))
        for v in self.values.T:
            mean = np.where(found, weights @ v / total, v[self._nearest(theta, found)])
            error = (v - mean).astype(np.float64)
            moved = slopes * (v - mean[:, :, None])
            jacobian = np.matmul(moved.transpose(1, 0, 2), self.differences)  # by query
            jacobian = jacobian.transpose(1, 0, 2).astype(np.float64) / total[:, :, None]
            jacobian *= -2.0 * np.exp(-2.0 * theta)[:, None, :]
            value += (error**2) @ self.share / n_outputs
            shared = jacobian * (self.share / n_outputs)[:, None]
            gradient -= 2.0 * np.einsum("sqj,sq->sj", shared, error)
            matrix += shared.transpose(0, 2, 1) @ jacobian
        return value, gradient, matrix

    def _weights(self, theta: Array) -> tuple[NDArray[Any], NDArray[Any]]:
        """Kernel weights and slopes, times the sample weights; (n_starts, n_rows, n_rows)."""
        squared = self._squared(theta)
        if self.kernel.is_exponential:
            present = np.where(self.weights > 0.0, squared, np.float32(np.inf))
            squared -= present.min(axis=2, keepdims=True)
            weights = np.exp(np.minimum(self.kernel.rate * squared, 80.0)) * self.weights
            return weights, self.kernel.rate * weights
        slopes = self.kernel.slope(self.kernel.rate * squared) * self.weights
        weights = self.kernel.profile(self.kernel.rate * squared) * self.weights
        weights[weights < 1e-30] = 0.0
        return weights, slopes

    def _squared(self, theta: Array) -> NDArray[Any]:
        product = np.exp(-2.0 * theta).astype(np.float32) @ self.by_feature
        return product.reshape(-1, *self.weights.shape)

    def _nearest(self, theta: Array, found: NDArray[np.bool_]) -> NDArray[Any]:
        """The nearest other key of each query, where no key was found in the support."""
        if found.all():
            return np.zeros(found.shape, dtype=np.intp)
        present = np.where(self.weights > 0.0, self._squared(theta), np.float32(np.inf))
        return present.argmin(axis=2)
