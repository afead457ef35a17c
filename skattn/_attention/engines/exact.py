"""The exact engine: weights in the log domain, at any distance, with any scales."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from skattn._attention._attention import Attention, Products
from skattn._attention._log_domain import LogWeights, log_domain_weights, rows_at_a_time
from skattn._attention._moments import Moments, Want, row_moments_exactly
from skattn._attention._resources import Resources, slices
from skattn._attention.engines.engine import Engine, Prepared

__all__ = ["Exact"]

Array = NDArray[np.float64]


class Exact(Engine):
    """Sums without a loss, for queries that other engines cannot resolve, or for all.

    Time O(n_queries * n_keys * n_features), about five times that of the dense engine.
    """

    name = "exact"

    def supports(self, attention: Attention, products: Products, want: Want) -> str | None:
        """Everything but slopes of compact kernels and kernels without one."""
        if want & Want.SLOPES and (attention.has_scales or products.degree > 0):
            return "slopes are those of weighted means at fixed bandwidths"
        return None

    def cost(self, attention: Attention, products: Products, want: Want) -> float:
        """Predicted time in nanoseconds."""
        return attention.n_pairs * (20.0 + 4.0 * attention.keys.shape[1] + products.n_columns)

    def prepare(
        self, attention: Attention, products: Products, want: Want, resources: Resources
    ) -> Prepared:
        """Blocks of few queries, with all keys."""
        return _ExactSums(attention, products, want, resources)


class _ExactSums:
    def __init__(
        self, attention: Attention, products: Products, want: Want, resources: Resources
    ) -> None:
        self.attention, self.products, self.want = attention, products, want
        step = rows_at_a_time(attention, resources)
        self.blocks = list(slices(len(attention.queries), step))

    def moments(self, queries: slice) -> Moments:
        """Moments of a block of queries."""
        attention = self.attention.take(queries)
        n_keys, alone = len(attention.keys), None
        if attention.excluded is not None:
            alone = attention.excluded.covers(n_keys)
        if alone is not None and alone.any():
            return self._without_keys(attention, alone)
        return self._moments(attention)

    def _without_keys(self, attention: Attention, alone: NDArray[np.bool_]) -> Moments:
        """Moments of a block in which some queries see no key: sums of nothing."""
        n, zeros = len(alone), np.zeros
        want_squares = bool(self.want & Want.SQUARES)
        n_outputs, d = self.products.values.shape[1], attention.keys.shape[1]
        regressors = self.products.regressors
        moments = Moments(
            zeros(n),
            zeros(n),
            zeros((n, self.products.n_columns)),
            zeros(n),
            np.ones(n, dtype=bool),
            np.full(n, np.inf),
            None if regressors is None else zeros((n, regressors.shape[1])),
            zeros((n, n_outputs)) if want_squares else None,
            zeros((n, 1 + n_outputs, d)) if self.want & Want.SLOPES else None,
        )
        rest = np.flatnonzero(~alone)
        if rest.size:
            moments.write(rest, self._moments(attention.take(rest)))
        return moments

    def _moments(self, attention: Attention) -> Moments:
        found = log_domain_weights(attention)
        starts, values = found.starts, self.products.values
        total = np.add.reduceat(found.weights, starts)
        center = None
        if self.products.degree == 0:
            sums = np.add.reduceat(found.weights[:, None] * values[found.keys], starts, axis=0)
        else:
            weights = found.dense(len(attention.keys)) / total[:, None]
            sums, center = row_moments_exactly(weights, self.products)
            sums = sums * total[:, None]
        own, retained = _own(attention, found)
        squares = None
        if self.want & Want.SQUARES:
            share = np.divide(
                found.weights**2, retained, out=np.zeros_like(retained), where=retained > 0.0
            )
            squares = np.add.reduceat(share[:, None] * values[found.keys], starts, axis=0)
        return Moments(
            found.log_shift,
            total,
            sums,
            own,
            found.outside,
            np.where(found.outside, found.nearest, np.inf),
            center,
            squares,
            self._slopes(attention, found, sums / total[:, None], total)
            if self.want & Want.SLOPES
            else None,
        )

    def _slopes(self, attention: Attention, found: LogWeights, mean: Array, total: Array) -> Array:
        """Derivatives of total and sums in log-bandwidths, relative to the nearest key.

        Each log-weight changes with theta_j by -2 (d log K / d u**2) (q_j - k_ij)**2; only
        differences between keys matter, and are taken from the nearest one, so that nothing is
        lost far away.
        """
        starts, values = found.starts, self.products.values[found.keys]
        squares = (attention.queries[found.queries] - attention.keys[found.keys]) ** 2
        change = -2.0 * attention.kernel.log_slope(squares.sum(axis=1))[:, None] * squares
        change[found.outside[found.queries]] = 0.0
        change -= change[starts][found.queries]
        shares = (found.weights / total[found.queries])[:, None]
        moved = (shares * (values - mean[found.queries]))[:, :, None] * change[:, None, :]
        of_means = np.add.reduceat(moved, starts, axis=0)
        nothing = np.zeros((len(total), 1, change.shape[1]))
        return np.concatenate([nothing, of_means * total[:, None, None]], axis=1)


def _own(attention: Attention, found: LogWeights) -> tuple[Array, Array]:
    """Weights of excluded keys, and the retained share of each entry's weight."""
    own, retained = np.zeros(found.log_shift.size), np.ones(found.weights.size)
    if attention.excluded is not None:
        start, stop = (
            bound[found.queries] for bound in (attention.excluded.start, attention.excluded.stop)
        )
        is_excluded = (start <= found.keys) & (found.keys < stop)
        np.add.at(own, found.queries[is_excluded], found.weights[is_excluded])
        retained[is_excluded] = attention.excluded.retained[found.queries[is_excluded]]
    return own, retained
