"""Leave-one-out errors of local lines at many bandwidths at once.

With D = k - q the differences of keys and queries, and the attention weights w of one bandwidth,

    center = sum w D,   level = sum w v,
    arm = -C^-1 center,   slope = C^-1 cross,   f(q) = level + arm' cross,

with C and cross the covariances of D, and of D and v; all of it is read off one product of weights
with columns that do not depend on the bandwidth. The mean changes with the logarithm theta_j of a
bandwidth by

    sum (dw / dtheta_j) (1 + arm' (D - center)) (v - level - slope' (D - center)),

whose factors are products of coefficients with the same columns.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skattn._attention import run_blocks, slices
from skattn._bandwidth._bend import stretch, unbend
from skattn._bandwidth._line_algebra import pairs, solve_lines
from skattn._bandwidth._objective import Objective

__all__ = ["LineFleet"]

Array = NDArray[np.float64]

# Weights of so many triples of query, bandwidth and key at once stay in the cache.
_CACHED_ENTRIES = 160_000
# Stands for the logarithm of no weight: the lowest that profiles of exponentials tell apart.
_NOTHING = -680.0
# Sums of weights below are those of queries outside the support.
_LEAST = 1e-250


class LineFleet:
    """Leave-one-out errors of local lines of the same rows at many bandwidths.

    Parameters
    ----------
    objective : Objective
        Few rows, since memory is O(n_rows**2 * n_features * (n_features + n_outputs)); no `axes`.
    """

    def __init__(self, objective: Objective) -> None:
        self.kernel, self.values = objective.kernel, objective.values
        self.targets = objective.values[objective.rows]
        share = objective.weights[objective.rows] / objective.weights[objective.rows].sum()
        self.share = np.repeat(share / self.values.shape[1], self.values.shape[1])
        x = objective.coordinates
        away = x.T[:, None, :] - x[objective.rows].T[:, :, None]  # (features, queries, keys)
        self.weights = np.tile(objective.weights / objective.weights.max(), (away.shape[1], 1))
        own = objective.own.take(objective.rows)
        queries, keys = own.entries(0, len(x))
        self.weights[queries, keys] *= own.retained[queries]
        self.columns = self._columns(away)
        self.powers = np.empty((away.shape[1], len(away) + 1, len(x)))
        np.multiply((away**2).transpose(1, 0, 2), self.kernel.rate, out=self.powers[:, :-1])
        self.powers[:, -1] = _NOTHING  # multiplied with one: the sample weights of exponentials
        np.log(self.weights, out=self.powers[:, -1], where=self.weights > 0.0)
        self._product, self._factors = np.empty(0), np.empty(0)

    def at_most(self, n_queries: int) -> LineFleet:
        """The same, with errors at about so many of the rows, evenly spaced; memory is shared."""
        step = max(1, len(self.targets) // n_queries)
        if step == 1:
            return self
        fewer = copy.copy(self)
        for name in ("weights", "columns", "powers", "targets"):
            setattr(fewer, name, getattr(self, name)[::step])
        share = self.share.reshape(-1, self.values.shape[1])[::step]
        fewer.share = (share / share.sum()).ravel()
        return fewer

    def _columns(self, away: Array) -> Array:
        """What weights are summed with: v, 1, D, D v, D D'; (queries, columns, keys)."""
        d, n_queries, n_keys = away.shape
        p, both = self.values.shape[1], pairs(d)
        columns = np.empty((n_queries, p + 1 + d + d * p + len(both), n_keys))
        columns[:, :p], columns[:, p] = self.values.T, 1.0
        columns[:, p + 1 : p + 1 + d] = away.transpose(1, 0, 2)
        for j, each in enumerate(away):
            first = p + 1 + d + j * p
            np.multiply(each[:, None], self.values.T, out=columns[:, first : first + p])
        for column, (i, j) in enumerate(both, start=p + 1 + d + d * p):
            np.multiply(away[i], away[j], out=columns[:, column])
        return columns

    def judge(self, log_bandwidths: Array) -> Array:
        """Values at log-bandwidths, one a row."""
        return self._errors(log_bandwidths, None) ** 2 @ self.share

    def linearize(self, bent: Array) -> tuple[Array, Array, Array]:
        """Values, gradients and Gauss-Newton matrices at bent log-bandwidths, one a row."""
        theta = unbend(bent)
        values, gradients, matrices = self._linearize(theta)
        factors = stretch(theta)
        return values, factors * gradients, factors[:, :, None] * matrices * factors[:, None]

    def linearize_at(self, log_bandwidth: Array) -> tuple[float, Array, Array]:
        """The same at one log-bandwidth, not bent, as `Objective.linearize` returns them."""
        values, gradients, matrices = self._linearize(log_bandwidth[None])
        return float(values[0]), gradients[0], matrices[0]

    def _linearize(self, theta: Array) -> tuple[Array, Array, Array]:
        slopes = np.empty((*self.targets.shape, *theta.shape))
        errors = self._errors(theta, slopes)
        jacobian = slopes.transpose(2, 3, 0, 1).reshape(*theta.shape, -1)
        shared = jacobian * self.share
        gradients = -2.0 * (shared @ errors[:, :, None])[:, :, 0]
        return errors**2 @ self.share, gradients, shared @ jacobian.transpose(0, 2, 1)

    def _errors(self, theta: Array, slopes: Array | None) -> Array:
        """Errors (starts, queries * outputs); slopes of the means are written where wanted."""
        means = np.empty((*self.targets.shape, len(theta)))

        def run(blocks: Sequence[slice]) -> None:
            for block in blocks:
                self._read(block, theta, means[block], None if slopes is None else slopes[block])

        per_query = len(theta) * len(self.values)
        step = max(1, _CACHED_ENTRIES // per_query)
        size = min(step, len(self.targets)) * per_query
        if self._product.size < size:  # memory that is new costs as much as the arithmetic
            self._product = np.empty(size)
        n_factors = 0 if slopes is None else (1 + self.values.shape[1]) * size
        if self._factors.size < n_factors:
            self._factors = np.empty(n_factors)
        run_blocks(run, list(slices(len(self.targets), step)), n_threads=1)
        return (self.targets[:, :, None] - means).transpose(2, 0, 1).reshape(len(theta), -1)

    def _read(self, block: slice, theta: Array, means: Array, slopes: Array | None) -> None:
        weights, changes = self._weights(block, theta, slopes is not None)
        # entries of one kind side by side: what follows is elementwise
        sums = np.ascontiguousarray(
            (weights @ self.columns[block].transpose(0, 2, 1)).transpose(2, 0, 1)
        )
        p = self.values.shape[1]
        if self.kernel.is_exponential:
            self._lift(weights, sums, block, theta)
        total = sums[p].copy()
        found = total > _LEAST
        sums /= np.where(found, total, 1.0)
        if not found.all():
            queries, starts = np.nonzero(~found)
            nearest = self._nearest(block, theta)[queries, starts]
            sums[:p, queries, starts] = self.values[nearest].T
            sums[p:, queries, starts] = 0.0
        scale = np.exp(-np.minimum(theta.T, 0.0))[:, None, :]  # to coordinates of lines
        center, line, mean = solve_lines(sums, scale, p)
        means[:] = mean.transpose(1, 0, 2)
        if slopes is None:
            return
        line *= scale[:, None]
        moved = self._moved(block, weights if changes is None else changes, sums[:p], center, line)
        unit = np.where(found, total, np.inf)[:, :, None]
        rate = 1.0 if self.kernel.is_exponential else self.kernel.rate
        moved *= (-2.0 / rate) * np.exp(-2.0 * theta) / unit
        slopes[:] = moved.transpose(1, 0, 2, 3)

    def _moved(
        self, block: slice, changes: Array, level: Array, center: Array, line: Array
    ) -> Array:
        """Sums of changes of weights times factors and residuals; (outputs, ..., features)."""
        coefficients = self._coefficients(level, center, line)
        out = self._factors[: len(coefficients) * changes.size].reshape(-1, *changes.shape)
        linear = self.columns[block, : coefficients.shape[-1]]
        factors = np.matmul(coefficients, linear, out=out)
        factors[0] *= changes
        factors[1:] *= factors[0]
        return factors[1:] @ self.powers[block, : len(center)].transpose(0, 2, 1)

    def _coefficients(self, level: Array, center: Array, line: Array) -> Array:
        """Of 1 + arm' (D - center), then of each output's residuals, in the first columns."""
        p, d = len(level), len(center)
        coefficients = np.zeros((1 + p, *level.shape[1:], p + 1 + d))
        coefficients[0, ..., p] = 1.0
        for output in range(p):
            coefficients[1 + output, ..., output] = 1.0
            coefficients[1 + output, ..., p] = -level[output]
        signs = np.where(np.arange(1 + p) == 0, 1.0, -1.0)[:, None, None]
        for j in range(d):
            each = signs * line[j]
            coefficients[..., p + 1 + j] = each
            coefficients[..., p] -= each * center[j]
        return coefficients

    def _weights(self, block: slice, theta: Array, sloped: bool) -> tuple[Any, Any]:
        """Weights, and their changes with the squared distance where these are no multiple.

        Of shape (n_queries, n_starts, n_keys).
        """
        inverse = np.exp(-2.0 * theta)
        if self.kernel.is_exponential:
            ones = np.ones((len(theta), 1))
            return self.kernel.profile(self._times_powers(np.hstack([inverse, ones]), block)), None
        scaled = self._times_powers(inverse, block)
        sample = self.weights[block, None]
        weights = self.kernel.profile(scaled.copy() if sloped else scaled)
        weights *= sample
        return weights, self.kernel.slope(scaled) * sample if sloped else None

    def _times_powers(self, inverse: Array, block: slice) -> Array:
        """Rows of `inverse` times as many powers; (queries, starts, keys), until called again."""
        powers = self.powers[block, : inverse.shape[1]]
        shape = len(powers), len(inverse), powers.shape[2]
        return np.matmul(inverse, powers, out=self._product[: math.prod(shape)].reshape(shape))

    def _lift(self, weights: Array, sums: Array, block: slice, theta: Array) -> None:
        """Compute weights that are too small, and their sums, anew, relative to the nearest key."""
        queries, starts = np.nonzero(sums[self.values.shape[1]] <= _LEAST)
        if queries.size:
            powers = self.powers[block][queries]
            inverse = np.exp(-2.0 * theta[starts])
            logits = (inverse[:, None] @ powers[:, :-1])[:, 0] + powers[:, -1]
            logits[self.weights[block][queries] == 0.0] = -np.inf
            logits -= logits.max(axis=1, keepdims=True)
            weights[queries, starts] = lifted = self.kernel.profile(logits)
            sums[:, queries, starts] = np.einsum("hk,hck->ch", lifted, self.columns[block][queries])

    def _nearest(self, block: slice, theta: Array) -> NDArray[np.intp]:
        """The nearest other key of each query."""
        squares = np.exp(-2.0 * theta) @ self.powers[block, :-1] / self.kernel.rate
        return np.where(self.weights[block, None] > 0.0, squares, np.inf).argmin(axis=2)
