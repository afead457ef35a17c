"""Local fits of the same rows under many bandwidths at once.

All bandwidths share what does not depend on them: squared differences of the rows, feature by
feature, and the columns that weights are summed with. With theta_j the logarithm of a bandwidth, a
fit changes by

    sum (dw / dtheta_j) factor (v - fit at the key),

where the factor is one for means, and that of the smoother matrix for lines.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skattn._attention import run_blocks, slices
from skattn._bandwidth.batched_local_fits import BatchedLines, BatchedMeans
from skattn._geometry.distances import differences
from skattn._geometry.training_set import Exclusion
from skattn._smoother import BandwidthSlopes
from skattn.kernels import Kernel

__all__ = ["BatchedFits", "Sample"]

Array = NDArray[np.float64]
Numbers = NDArray[Any]  # of float32 for means, of float64 for lines
Indices = NDArray[np.intp]

# Weights of so many triples of query, bandwidth and key at once stay in the cache.
_CACHED_ENTRIES = 160_000
# So many numbers are prepared at most, at degree 0 and 1.
_MOST_ENTRIES = (4_000_000, 6_000_000)
# Coordinates of outliers are clipped here in single precision: their squares do not overflow.
_FARTHEST = 1e9
# Stands for the logarithm of no weight: the lowest that profiles of exponentials tell apart.
_NOTHING = {np.dtype(np.float32): -80.0, np.dtype(np.float64): -680.0}
# Squared distances that differ by less, of their size, are equal.
_TIES = {np.dtype(np.float32): 1e-5, np.dtype(np.float64): 1e-12}
# Sums of weights below are those of queries outside the support.
_OUTSIDE = {np.dtype(np.float32): 1e-30, np.dtype(np.float64): 1e-250}


@dataclass(frozen=True)
class Sample:
    """Rows that are judged, and the keys that predict them.

    Attributes
    ----------
    coordinates : ndarray of shape (n_keys, n_features)
        Features, centred and in units of their spread.
    values : ndarray of shape (n_keys, n_outputs)
        Targets, centred and in units of their deviation.
    weights : ndarray of shape (n_keys,)
        Positive sample weights; importances have mean 1.
    queries : ndarray of shape (n_queries,)
        Positions of the rows that are judged.
    excluded : Exclusion
        Keys that each of them must not see, or whose weight is its leverage.
    """

    coordinates: Array
    values: Array
    weights: Array
    queries: Indices
    excluded: Exclusion

    @property
    def n_pairs(self) -> int:
        """Number of pairs of queries and keys."""
        return len(self.queries) * len(self.coordinates)

    def take(self, some: Indices) -> Sample:
        """Some of the rows that are judged."""
        queries, excluded = self.queries[some], self.excluded.take(some)
        return Sample(self.coordinates, self.values, self.weights, queries, excluded)


class BatchedFits:
    """Predictions of the judged rows of a sample, under one kernel and many bandwidths.

    Means are computed in single precision.

    Parameters
    ----------
    sample : Sample
        Few rows: memory is O(n_pairs * n_features), for lines times n_features + n_outputs.
    kernel : Kernel
        It peaks at one; for slopes, it has one.
    degree : {0, 1}
        Degree of the local fits.
    """

    def __init__(self, sample: Sample, kernel: Kernel, degree: int) -> None:
        self.kernel, self.values = kernel, sample.values
        dtype = np.dtype(np.float32 if degree == 0 else np.float64)
        x = sample.coordinates
        x = x if degree else np.clip(x, -_FARTHEST, _FARTHEST).astype(dtype)
        away = differences(x[sample.queries], x)
        weights = (sample.weights / sample.weights.max()).astype(dtype)
        self.weights = np.tile(weights, (len(away[0]), 1))
        queries, keys = sample.excluded.entries(0, len(x))
        self.weights[queries, keys] *= sample.excluded.retained[queries]
        # all of which are at distance zero
        self.own = np.bincount(queries, self.weights[queries, keys], len(self.weights))
        kind = BatchedLines if degree else BatchedMeans
        self.local_fits = kind(away, sample.values, with_leverage=bool(self.own.any()))
        # multiplied with inverse squared bandwidths, and one: sample weights of exponentials
        self.powers = np.empty((len(self.weights), len(away) + 1, len(x)), dtype)
        np.multiply((away**2).transpose(1, 0, 2), kernel.rate, out=self.powers[:, :-1])
        self.powers[:, -1] = _NOTHING[dtype]
        np.log(self.weights, out=self.powers[:, -1], where=self.weights > 0.0)
        self.least = kernel.trusted_normalizer(dtype)
        self._buffer = np.empty(0, dtype)

    @staticmethod
    def can_hold(sample: Sample, kernel: Kernel, degree: int) -> bool:
        """Whether there is memory, and weights are at most one."""
        d, p = sample.coordinates.shape[1], sample.values.shape[1]
        per_pair = (1 + d) * (1 + p) if degree == 0 else (1 + d) * (2 + p + d // 2)
        return kernel.peaks_at_one and sample.n_pairs * per_pair <= _MOST_ENTRIES[degree]

    def predict(self, theta: Array) -> tuple[Array, Array]:
        """Predictions and leverages at log-bandwidths.

        Parameters
        ----------
        theta : ndarray of shape (n_points, n_features)
            Log-bandwidths, finite or inf.

        Returns
        -------
        predictions : ndarray of shape (n_points, n_queries, n_outputs)
        leverages : ndarray of shape (n_points, n_queries)
        """
        nothing = np.empty((len(theta), 0))
        found = self._empty(len(theta), nothing, nothing)
        self._run(theta, found)
        return found.prediction, found.leverage

    def slopes(self, theta: Array) -> BandwidthSlopes:
        """Predictions, leverages and their slopes in `theta`; the first axis are the points."""
        shape = (len(theta), *self.weights.shape[:1])
        slopes = np.empty((*shape, self.values.shape[1], theta.shape[1]))
        found = self._empty(len(theta), slopes, np.zeros((*shape, theta.shape[1])))
        self._run(theta, found)
        return found

    def _empty(self, n_points: int, slopes: Array, leverage_slopes: Array) -> BandwidthSlopes:
        predictions = np.empty((n_points, len(self.weights), self.values.shape[1]))
        leverages = np.empty(predictions.shape[:2])
        return BandwidthSlopes(predictions, slopes, leverages, leverage_slopes)

    def _run(self, theta: Array, found: BandwidthSlopes) -> None:
        def run(blocks: Sequence[slice]) -> None:
            for queries in blocks:
                parts = (getattr(found, field.name)[:, queries] for field in fields(found))
                self._read(queries, theta, BandwidthSlopes(*parts))

        n_queries, per_query = len(self.weights), len(theta) * self.weights.shape[1]
        step = min(n_queries, max(1, _CACHED_ENTRIES // per_query))
        size = step * per_query * (1 + self.local_fits.n_factors)
        if self._buffer.size < size:  # memory that is new costs as much as the arithmetic
            self._buffer = np.empty(size, self.powers.dtype)
        run_blocks(run, list(slices(n_queries, step)), n_threads=1)

    def _read(self, block: slice, theta: Array, found: BandwidthSlopes) -> None:
        """Fill in predictions, leverages and slopes of a block of queries."""
        sloped, p, fits = found.prediction_slope.size > 0, self.values.shape[1], self.local_fits
        weights, changes = self._weights(block, theta, sloped=sloped)
        sums = fits.sums(weights, block)  # entries of one kind side by side: all is elementwise
        if self.kernel.is_exponential:
            self._lift(weights, sums, block.start, theta)
        total = sums[p].copy()
        is_inside = total > _OUTSIDE[self.powers.dtype]
        sums /= np.where(is_inside, total, 1.0)
        if not is_inside.all():
            queries, points = np.nonzero(~is_inside)
            nearest = self._nearest(block.start + queries, theta[points])
            sums[:p, queries, points] = (nearest @ self.values).T
            sums[p:, queries, points] = 0.0
        fit, total = fits.read(sums, theta), np.where(is_inside, total, np.inf)
        found.prediction[:] = fit.prediction.transpose(2, 1, 0)
        own = self.own[block, None] / total
        found.leverage[:] = (own * fit.factor).T
        if sloped:
            changes = weights if changes is None else changes
            out = self._buffer[changes.size :][: fits.n_factors * changes.size]
            factors = fits.factors(fit, changes, block, out.reshape(-1, *changes.shape))
            moved = factors @ self.powers[block, :-1].transpose(0, 2, 1)
            rate = 1.0 if self.kernel.is_exponential else self.kernel.rate
            moved = moved * (np.exp(-2.0 * theta) * (-2.0 / rate)) / total[:, :, None]
            found.prediction_slope[:] = moved[:p].transpose(2, 1, 0, 3)
            if len(moved) > p:
                found.leverage_slope[:] = (moved[p] * -own[:, :, None]).transpose(1, 0, 2)

    def _weights(
        self, block: slice, theta: Array, *, sloped: bool
    ) -> tuple[Numbers, Numbers | None]:
        """Weights, and their changes with the squared distance where these are no multiple.

        Of shape (n_queries, n_points, n_keys).
        """
        inverse = np.exp(-2.0 * theta)
        if self.kernel.is_exponential:
            inverse = np.hstack([inverse, np.ones((len(theta), 1))])
            return self.kernel.profile(self._times_powers(block, inverse)), None
        scaled, sample = self._times_powers(block, inverse), self.weights[block, None]
        weights = self.kernel.profile(scaled.copy() if sloped else scaled)
        weights *= sample
        return weights, self.kernel.slope(scaled) * sample if sloped else None

    def _times_powers(self, block: slice, inverse: Array) -> Numbers:
        """Products of rows of `inverse` with as many powers, until called again."""
        powers = self.powers[block, : inverse.shape[1]]
        shape = len(powers), len(inverse), powers.shape[2]
        out = self._buffer[: math.prod(shape)].reshape(shape)
        return np.matmul(inverse.astype(powers.dtype), powers, out=out)

    def _lift(self, weights: Numbers, sums: Array, first: int, theta: Array) -> None:
        """Compute weights that are too small, and their sums, anew, relative to the nearest key."""
        queries, points = np.nonzero(sums[self.values.shape[1]] < self.least)
        if queries.size:
            some = first + queries
            logits = self._scaled(some, theta[points]) + self.powers[some, -1]
            logits[self.weights[some] == 0.0] = -np.inf
            logits -= logits.max(axis=1, keepdims=True)
            weights[queries, points] = lifted = self.kernel.profile(logits)
            sums[:, queries, points] = self.local_fits.sums_of(lifted, some)

    def _scaled(self, queries: Indices, theta: Array) -> Numbers:
        """Squared distances times the rate, (n_pairs, n_keys), of pairs of query and bandwidth."""
        inverse = np.exp(-2.0 * theta).astype(self.powers.dtype)
        return (inverse[:, None] @ self.powers[queries, :-1])[:, 0]

    def _nearest(self, queries: Indices, theta: Array) -> Array:
        """Weights (n_pairs, n_keys) of the nearest keys of pairs of a query and a bandwidth."""
        squares, weights = self._scaled(queries, theta) / self.kernel.rate, self.weights[queries]
        squares[weights == 0.0] = np.inf
        ties = squares.min(axis=1, keepdims=True) * (1.0 + _TIES[self.powers.dtype])
        weights = np.where(squares <= ties, weights, 0.0).astype(np.float64)
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))
