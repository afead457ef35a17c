"""Prediction intervals from leave-one-out residuals, without refitting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from skattn._attention import Resources, run_blocks
from skattn._geometry.training_set import evenly_spaced
from skattn._smoother import LeftOut, Regression, effective_neighbors, remove
from skattn._smoother.removal import Moves
from skattn._uncertainty.variance import local_means

__all__ = ["interval_rank", "jackknife_plus", "residual_scales"]

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

# Sums of counts are rounded.
_ROUNDING = 1e-12
# Bandwidths tried for the scale of the residuals, in units of those of the mean, and at how many
# rows at most.
_MULTIPLES = np.append(2.0 ** np.arange(-4, 6), np.inf)
_SCALE_ROWS = 1000


def interval_rank(counts: Array, coverage: float) -> float:
    """The rank of the order statistic that bounds a prediction interval; inf if there is none.

    Each side leaves out (1 - coverage) of the n + 1 ranks, as in Barber, Candes, Ramdas and
    Tibshirani (2021).
    """
    total = float(counts.sum())
    rank = np.ceil(coverage * (total + 1.0) - 1e-9)
    return rank if rank <= total * (1.0 + 1e-12) else np.inf


def residual_scales(
    queries: Regression, rows: Regression, resources: Resources, left_out: LeftOut
) -> tuple[Array, Array]:
    """Sizes of the residuals around each query, and around each key without itself.

    Attention-weighted means of absolute residuals, at the multiple of the bandwidths whose
    leave-one-out means predict them best. Means over few neighbours are shrunk towards that of all,
    as if it were one more.

    Parameters
    ----------
    queries : LocalRegression or MixedRegression
        The queries.
    rows : LocalRegression or MixedRegression
        The keys, each without what is left out with it.
    left_out : LeftOut
        Residuals of the keys.

    Returns
    -------
    at_queries : ndarray of shape (n_queries, n_outputs)
    at_keys : ndarray of shape (n_keys, n_outputs)
    """
    sizes, counts = np.abs(left_out.residuals), left_out.counts
    overall = counts @ sizes / counts.sum()
    units = np.where(overall > 0.0, overall, 1.0)
    sample = evenly_spaced(len(sizes), _SCALE_ROWS)
    few, shares = rows.take(sample), counts[sample]

    def error(multiple: float) -> float:
        means = local_means(few.widened(multiple), resources, sizes)
        return float(shares @ (((sizes[sample] - means) / units) ** 2).mean(axis=1))

    multiple = min(_MULTIPLES, key=error)
    scales = []
    for regression in (queries.widened(multiple), rows.widened(multiple)):
        number, _ = effective_neighbors(regression, resources, left_out.multiplicity)
        share = 1.0 / (number[:, None] + 1.0)
        means = local_means(regression, resources, sizes)
        scales.append((1.0 - share) * means + share * overall)
    return scales[0], scales[1]


def jackknife_plus(
    regression: Regression,
    resources: Resources,
    left_out: LeftOut,
    coverage: float,
    scales: tuple[Array, Array] | None,
) -> tuple[Array, NDArray[np.bool_]]:
    """Prediction intervals from leave-one-out residuals, without refitting.

    With R_i the absolute leave-one-out residuals and f_-i the fit without row i, its bandwidth
    held, the lower and upper bounds are quantiles over i of f_-i(q) - R_i and f_-i(q) + R_i
    (Barber, Candes, Ramdas and Tibshirani, 2021).

    Parameters
    ----------
    left_out : LeftOut
        Residuals of the keys.
    coverage : float
        Between 0 and 1, such that `interval_rank` is finite.
    scales : pair of ndarray or None
        For intervals whose width varies: the scale of the residuals at the queries
        (n_queries, n_outputs), and at the keys (n_keys, n_outputs). R_i is multiplied with their
        ratio.

    Returns
    -------
    bounds : ndarray of shape (n_queries, 2, n_outputs)
        Lower and upper, in the units of the values.
    outside : ndarray of shape (n_queries,) of bool
        Queries without a key in the support.

    Notes
    -----
    Up to 2000 keys f_-i is exact. Of more, keys with a weight of less than 0.001 are taken not to
    change the prediction; at degree 0 this errs by less than 0.001 / 0.999 of the range of the
    values.
    """
    rank = interval_rank(left_out.counts, coverage)
    n_queries = regression.n_queries
    sizes, scale = np.abs(left_out.residuals), np.ones((n_queries, 1))
    if scales is not None:
        scale, sizes = scales[0], sizes / np.where(scales[1] > 0.0, scales[1], 1.0)
    quantiles = [ResidualQuantiles(column, left_out.counts) for column in sizes.T]
    bounds = np.empty((n_queries, 2, regression.values.shape[1]))
    outside = np.zeros(n_queries, dtype=bool)
    reader, alone = regression.reader(resources), replace(resources, n_threads=1)

    def bound(queries: slice) -> None:
        removal, outside[queries] = remove(reader, queries, regression, left_out, alone)
        width = np.broadcast_to(scale[queries], removal.prediction.shape)
        unit = np.where(width > 0.0, width, 1.0)
        for output, residuals in enumerate(quantiles):
            moves = removal.moves(output)
            changes = moves.changes / unit[moves.queries, output]
            for side, sign in enumerate((-1.0, 1.0)):
                moved = replace(moves, changes=sign * changes)
                reach = residuals.quantiles(rank, moved, len(unit))
                reach = np.where(width[:, output] > 0.0, reach * unit[:, output], 0.0)
                bounds[queries, side, output] = removal.prediction[:, output] + sign * reach

    def run(blocks: Sequence[slice]) -> None:
        for queries in blocks:
            bound(queries)

    run_blocks(run, reader.blocks, resources.n_threads)
    return bounds, outside


class ResidualQuantiles:
    """Sizes of residuals, and their quantiles when a few of them move.

    Parameters
    ----------
    sizes : ndarray of shape (n_keys,)
        Absolute residuals.
    counts : ndarray of shape (n_keys,)
        Number of rows that each key counts as.
    """

    def __init__(self, sizes: Array, counts: Array) -> None:
        self.sizes, self.counts = sizes, counts
        order = np.argsort(sizes, kind="stable")
        self.ascending = sizes[order]
        self.totals = np.concatenate([[0.0], counts[order].cumsum()])

    def quantiles(self, rank: float, moves: Moves, n_queries: int) -> Array:
        """The rank-th smallest of sizes, of which some have moved for each query, (n_queries,).

        Moved sizes lie within the largest move of where they were, and so does the quantile: only
        those that cross this window count, and bisection finds it to the last digit.
        """
        queries, keys, changes = moves.queries, moves.keys, moves.changes
        rank = rank * (1.0 - _ROUNDING)
        middle = self.ascending[np.searchsorted(self.totals[1:], rank)]
        window = np.zeros(n_queries)
        np.maximum.at(window, queries, np.abs(changes))
        low, high = middle - window, middle + window
        before, after = self.sizes[keys], self.sizes[keys] + changes
        crosses = (np.maximum(before, after) >= low[queries]) & (
            np.minimum(before, after) <= high[queries]
        )
        queries, before, after = queries[crosses], before[crosses], after[crosses]
        counts = self.counts[keys[crosses]]
        low, high = np.nextafter(low, -np.inf), np.nextafter(high, np.inf)  # around the quantile
        for _ in range(64):
            x = low + 0.5 * (high - low)
            change = counts * ((after <= x[queries]).astype(float) - (before <= x[queries]))
            total = self.totals[np.searchsorted(self.ascending, x, side="right")]
            enough = total + np.bincount(queries, change, n_queries) >= rank
            low, high = np.where(enough, low, x), np.where(enough, x, high)
        return high
