"""The exact engine: weights in the log domain, at any distance, with any scales."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from skattn._attention._attention import Attention, Products
from skattn._attention._log_domain import LogWeights, log_domain_weights, rows_at_a_time
from skattn._attention._moments import Moments, Want, row_moments_exactly
from skattn._attention._resources import Resources, slices
from skattn._attention._row_sums import RowSums
from skattn._attention.engines.engine import Engine, Prepared, reason_against_slopes

__all__ = ["Exact"]

Array = NDArray[np.float64]


class Exact(Engine):
    """Sums without a loss, for queries that other engines cannot resolve, or for all.

    Time O(n_queries * n_keys * n_features), about five times that of the dense engine.
    """

    name = "exact"

    def supports(self, attention: Attention, products: Products, want: Want) -> str | None:
        """Everything but slopes of local lines or at scales that vary."""
        return reason_against_slopes(attention, products, want)

    def cost(self, attention: Attention, products: Products, want: Want) -> float:
        """Predicted time in nanoseconds."""
        return attention.n_pairs * (20.0 + 4.0 * attention.keys.shape[1] + products.n_columns)

    def prepare(
        self, attention: Attention, products: Products, want: Want, resources: Resources
    ) -> Prepared:
        """Blocks of few queries, with all keys."""
        if attention.has_scales or products.degree > 0:
            return RowSums(attention, products, want, resources, row_moments_exactly)
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
        found = log_domain_weights(attention)
        starts, values = found.starts, self.products.values
        total = np.add.reduceat(found.weights, starts)
        sums = np.add.reduceat(found.weights[:, None] * values[found.keys], starts, axis=0)
        own, retained = _own(attention, found)
        squares = None
        if self.want & Want.SQUARES:
            share = np.divide(
                found.weights**2, retained, out=np.zeros_like(retained), where=retained > 0.0
            )
            squares = np.add.reduceat(share[:, None] * values[found.keys], starts, axis=0)
        slopes, shift_slopes = None, None
        if self.want & Want.SLOPES:
            slopes, shift_slopes = self._slopes(attention, found, sums / total[:, None])
        nearest = np.where(found.outside, found.nearest, np.inf)
        known = found.log_shift, total, sums, own, found.outside, nearest
        return Moments(*known, None, squares, slopes, shift_slopes)

    def _slopes(self, attention: Attention, found: LogWeights, mean: Array) -> tuple[Array, Array]:
        """Derivatives of total and sums in log-bandwidths, and of the shift.

        Each log-weight changes with theta_j by -2 (d log K / d u**2) (q_j - k_ij)**2; only
        differences between keys matter, and are taken from one of the keys, so that nothing is
        lost far away.
        """
        starts, values = found.starts, self.products.values[found.keys]
        squares = (attention.queries[found.queries] - attention.keys[found.keys]) ** 2
        change = -2.0 * attention.kernel.log_slope(squares.sum(axis=1))[:, None] * squares
        change[found.outside[found.queries]] = 0.0
        shift_slopes = change[starts]
        change -= shift_slopes[found.queries]
        of_total = np.add.reduceat(found.weights[:, None] * change, starts, axis=0)[:, None]
        moved = (found.weights[:, None] * (values - mean[found.queries]))[:, :, None]
        of_means = np.add.reduceat(moved * change[:, None, :], starts, axis=0)
        of_sums = of_means + mean[:, :, None] * of_total
        return np.concatenate([of_total, of_sums], axis=1), shift_slopes


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
