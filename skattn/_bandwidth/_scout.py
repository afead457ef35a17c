"""Descents from many starts at once, on few rows, to find where the minima are.

All starts share what does not depend on the bandwidth: squared differences of the rows, feature by
feature, and their products with weights and values. A step of all of them is a handful of array
operations, for weighted means in single precision.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from skattn._attention import run_blocks, slices
from skattn._bandwidth._bend import HIGHEST, LOWEST, bend, newton_steps, stretch, unbend
from skattn._bandwidth._line_fleet import LineFleet
from skattn._bandwidth._objective import Objective

__all__ = ["Fleet", "can_scout", "distinct", "fleet_of", "scout"]

Array = NDArray[np.float64]
Fleet: TypeAlias = "MeanFleet | LineFleet"
Single = NDArray[Any]  # of float32

# Weights of so many pairs of rows at once stay in the cache, in single precision.
_CACHED_ENTRIES = 200_000
# So many numbers are prepared at most, in single precision, and in double for lines.
_MOST_ENTRIES, _MOST_OF_LINES = 4_000_000, 6_000_000
# Longest step in any coordinate.
_LONGEST = 2.0
# Points this close to each other in every coordinate go the same way.
_CLOSE = 0.05
# Steps before a race begins, and how many times what a step promises is hoped for.
_FREE_STEPS, _HOPE = 2, 4.0


def can_scout(objective: Objective) -> bool:
    """Whether there is memory for a fleet, and the criterion is its."""
    n_keys, d = objective.coordinates.shape
    p = objective.values.shape[1]
    per_pair, most = (1 + d) * (1 + p), _MOST_ENTRIES
    if objective.degree > 0:
        per_pair, most = (1 + d) * (2 + p + d // 2), _MOST_OF_LINES
    is_possible = objective.criterion == "loo" and objective.axes is None
    is_small = len(objective.rows) * n_keys * per_pair <= most
    return is_possible and is_small and objective.kernel.has_slope


def fleet_of(objective: Objective) -> Fleet:
    """The leave-one-out errors of an objective at many bandwidths at once."""
    return MeanFleet(objective) if objective.degree == 0 else LineFleet(objective)


def scout(
    fleet: Fleet, starts: Array, n_steps: int, tolerance: float, *, races: bool = False
) -> tuple[Array, Array]:
    """Damped Gauss-Newton steps on leave-one-out errors from each of some starts.

    Parameters
    ----------
    fleet : Fleet
    starts : ndarray of shape (n_starts, n_features)
        Log-bandwidths in spreads.
    n_steps : int
        At most, from each start.
    tolerance : float
        A start has arrived when a step promises to lower its value by less than this fraction.
    races : bool, default=False
        Whether, after some steps, starts give up that are not likely to pass the best, and the
        last one stops: it is better followed alone.

    Returns
    -------
    values : ndarray of shape (n_found,)
        Mean squared leave-one-out errors reached, from starts that did not meet better ones.
    log_bandwidths : ndarray of shape (n_found, n_features)
        Where.
    """
    bent, active = bend(starts), np.arange(len(starts))
    arrives = np.ones(len(starts), dtype=bool)
    damping, longest = np.full(len(bent), 1e-2), np.full((len(bent), 1), _LONGEST)
    values, gradients, matrices = fleet.linearize(bent)
    for n_done in range(n_steps):
        arrives[active] = distinct(bent[active], values[active], _CLOSE)
        active = active[arrives[active]]
        damped = _damped(matrices[active], damping[active])
        steps = newton_steps(bent[active], gradients[active], damped)
        steps = np.clip(steps, -longest[active], longest[active])
        promised = -np.einsum("sj,sj->s", gradients[active], steps)
        is_race = races and n_done >= _FREE_STEPS
        goes_on = promised > tolerance * values[active]
        if is_race:
            goes_on &= values[active] - _HOPE * promised <= values.min()
        active, steps = active[goes_on], steps[goes_on]
        if active.size <= is_race:  # one is better followed alone
            break
        reached = fleet.linearize(trial := np.clip(bent[active] + steps, LOWEST, HIGHEST))
        better = reached[0] < values[active]
        moved = active[better]
        bent[moved] = trial[better]
        for kept, new in zip((values, gradients, matrices), reached, strict=True):
            kept[moved] = new[better]
        damping[active] = np.maximum(damping[active] * np.where(better, 0.3, 6.0), 1e-10)
        lengths = np.abs(steps).max(axis=1, keepdims=True)
        longest[active] = np.where(better[:, None], _LONGEST, 0.3 * lengths)
    return values[arrives], unbend(bent[arrives])


def distinct(bent: Array, values: Array, distance: float) -> NDArray[np.bool_]:
    """Which points are not close to a better one, and so about to arrive where that does."""
    is_close = (np.abs(bent[:, None] - bent) < distance).all(axis=2)
    rank = np.argsort(np.argsort(values, kind="stable"))
    return np.logical_not((is_close & (rank < rank[:, None])).any(axis=1))


def _damped(matrices: Array, damping: Array) -> Array:
    """Gauss-Newton matrices as Levenberg and Marquardt damp them."""
    diagonals = np.einsum("sjj->sj", matrices)
    scale = np.maximum(diagonals, np.maximum(1e-3 * diagonals.max(axis=1, keepdims=True), 1e-12))
    return matrices + np.eye(scale.shape[1]) * (damping[:, None] * scale)[:, None, :]


class MeanFleet:
    """Leave-one-out errors of weighted means of the same rows at many bandwidths.

    Parameters
    ----------
    objective : Objective
        Few rows, since memory is O(n_features * n_outputs * n_rows**2).
    """

    def __init__(self, objective: Objective) -> None:
        self.kernel, rows = objective.kernel, objective.rows
        # nothing is lost on outliers this far out, and squares do not overflow
        x = np.clip(objective.coordinates, -1e9, 1e9).astype(np.float32)
        squares = (x[rows].T[:, :, None] - x.T[:, None, :]) ** 2
        self.scaled = squares * np.float32(self.kernel.rate)  # (features, queries, keys)
        self.weights = np.tile(objective.weights.astype(np.float32), (len(rows), 1))
        own = objective.own.take(rows)
        queries, keys = own.entries(0, len(x))
        self.weights[queries, keys] *= own.retained[queries]
        self.values = objective.values.astype(np.float32)
        self.moments = self._moments(squares)
        self.step = max(1, _CACHED_ENTRIES // self.weights.size)  # starts at a time
        self.buffer = np.empty(self.step * self.weights.size, np.float32)
        self.targets = objective.values[rows]
        share = objective.weights[rows] / objective.weights[rows].sum()
        self.share = np.repeat(share / self.values.shape[1], self.values.shape[1])

    def _moments(self, squares: Single) -> Single:
        """What weights, then slopes, are summed with; (queries, 1 or feature, 1 or value, keys)."""
        n_features, n_queries, n_keys = squares.shape
        shape = n_queries, 1 + n_features, 1 + self.values.shape[1], n_keys
        moments = np.empty(shape, np.float32)
        moments[:, 0, 0] = self.weights
        # the slope of an exponential is its rate times its weight
        powers = self.scaled if self.kernel.is_exponential else squares
        np.multiply(powers.transpose(1, 0, 2), self.weights[:, None], out=moments[:, 1:, 0])
        np.multiply(moments[:, :, :1], self.values.T, out=moments[:, :, 1:])
        return moments

    def linearize(self, bent: Array) -> tuple[Array, Array, Array]:
        """Values, gradients and Gauss-Newton matrices at bent log-bandwidths, one a row."""
        theta = unbend(bent)
        values, gradients = np.zeros(len(theta)), np.zeros(theta.shape)
        matrices = np.zeros((*theta.shape, theta.shape[1]))

        def run(blocks: Sequence[slice]) -> None:
            for block in blocks:
                values[block], gradients[block], matrices[block] = self._linearize(theta[block])

        run_blocks(run, list(slices(len(theta), self.step)), n_threads=1)
        factors = stretch(theta)
        return values, factors * gradients, factors[:, :, None] * matrices * factors[:, None]

    def _linearize(self, theta: Array) -> tuple[Array, Array, Array]:
        sums = self._sums(theta).astype(np.float64)
        total = sums[:, :, :1, :1]
        found = total[:, :, 0, 0] > 0.0
        sums = sums / np.where(total > 0.0, total, 1.0)
        mean = sums[:, :, 0, 1:]
        if not found.all():
            mean[~found] = self.values[self._nearest(theta)[~found]]
        slopes = sums[:, :, 1:, 1:] - mean[:, :, None, :] * sums[:, :, 1:, :1]
        slopes *= (-2.0 * np.exp(-2.0 * theta))[:, None, :, None]
        jacobian = slopes.transpose(0, 2, 1, 3).reshape(*theta.shape, -1)
        errors = (self.targets - mean).reshape(len(theta), -1)
        shared = jacobian * self.share
        gradient = -2.0 * (shared @ errors[:, :, None])[:, :, 0]
        return errors**2 @ self.share, gradient, shared @ jacobian.transpose(0, 2, 1)

    def _sums(self, theta: Array) -> Single:
        """Sums over keys of weights, then slopes; (starts, queries, 1 or feature, 1 or value)."""
        weights = self.kernel.profile(self._scaled_squares(theta))
        if self.kernel.is_exponential:
            return self._lifted(_contract(weights, self.moments), theta)
        weights[weights < 1e-30] = 0.0
        totals = _contract(weights, self.moments[:, :1])
        slopes = self.kernel.slope(self._scaled_squares(theta))
        return np.concatenate([totals, _contract(slopes, self.moments[:, 1:])], axis=2)

    def _lifted(self, sums: Single, theta: Array) -> Single:
        """Sums where weights are too small anew, relative to the weight of the nearest key."""
        least = self.kernel.trusted_normalizer(np.dtype(np.float32))
        starts, queries = np.nonzero(sums[:, :, 0, 0] < least)
        if starts.size:
            inverse = np.exp(-2.0 * theta[starts]).astype(np.float32)
            logits = np.einsum("hj,jhk->hk", inverse, self.scaled[:, queries])
            logits[self.weights[queries] == 0.0] = -np.inf
            logits -= logits.max(axis=1, keepdims=True)
            moments = self.moments[queries]
            sums[starts, queries] = np.einsum("hk,hjvk->hjv", self.kernel.profile(logits), moments)
        return sums

    def _scaled_squares(self, theta: Array) -> Single:
        """Squared distances times the rate of the kernel, until called again.

        Of shape (n_starts, n_queries, n_keys).
        """
        inverse = np.exp(-2.0 * theta).astype(np.float32)
        scaled = self.scaled.reshape(theta.shape[1], -1)
        out = self.buffer[: len(theta) * self.weights.size].reshape(len(theta), -1)
        return np.matmul(inverse, scaled, out=out).reshape(-1, *self.weights.shape)

    def _nearest(self, theta: Array) -> NDArray[np.intp]:
        """The nearest other key of each query."""
        squares = self._scaled_squares(theta) / np.float32(self.kernel.rate)
        return np.where(self.weights > 0.0, squares, np.float32(np.inf)).argmin(axis=2)


def _contract(weights: Single, moments: Single) -> Single:
    """Sums over keys, query by query; (n_starts, n_queries, ...)."""
    n_queries, *shape, n_keys = moments.shape
    flat = moments.reshape(n_queries, -1, n_keys)
    sums = np.matmul(weights.transpose(1, 0, 2), flat.transpose(0, 2, 1))
    return sums.transpose(1, 0, 2).reshape(len(weights), n_queries, *shape)
