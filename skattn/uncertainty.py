"""Uncertainty read off attention weights: quantiles, and intervals from leave-one-out residuals."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from skattn.attention import Line, Request, Resources, Rows, read_rows
from skattn.geometry import Own, evenly_spaced
from skattn.smoother import Lines, effective_neighbors, fit_lines, heads_of, smooth

__all__ = [
    "LeftOut",
    "interval_rank",
    "jackknife_plus",
    "local_means",
    "residual_scales",
    "weighted_quantiles",
]

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

# Sums of weights are rounded: a quantile is reached where its level is missed by this.
_ROUNDING = 1e-12
# Up to so many keys, predictions without each of them are formed for all.
_FEW_KEYS = 2000
# Of more keys, those with less weight are taken not to move the prediction.
NEGLIGIBLE_WEIGHT = 1e-3
# Bandwidths tried for the scale of the residuals, in units of those of the mean, and at how many
# rows at most.
_MULTIPLES = np.append(2.0 ** np.arange(-4, 6), np.inf)
_SCALE_ROWS = 1000
# A prediction without what has this share of the weight is computed anew, not by subtraction.
_LARGE_SHARE = 0.5


def local_means(request: Request, resources: Resources, values: Array) -> Array:
    """Attention-weighted means of some values of the keys, (n_queries, n_columns)."""
    return smooth(request.of_values(values), resources).mean


def weighted_quantiles(
    request: Request, resources: Resources, values: Array, levels: Array
) -> tuple[Array, NDArray[np.bool_]]:
    """Quantiles of the values by the inverse of their weighted distribution function.

    Parameters
    ----------
    request : Request
        Whose attention weights count.
    resources : Resources
    values : ndarray of shape (n_keys, n_outputs)
    levels : ndarray of shape (n_levels,)
        Between 0 and 1.

    Returns
    -------
    quantiles : ndarray of shape (n_queries, n_levels, n_outputs)
        The smallest value at which the summed weight reaches the level, up to rounding.
    outside : ndarray of shape (n_queries,) of bool
        Queries without a key in the support.
    """
    n_queries, n_outputs = len(request.queries), values.shape[1]
    quantiles = np.empty((n_queries, len(levels), n_outputs))
    outside = np.zeros(n_queries, dtype=bool)
    order = np.argsort(values, axis=0, kind="stable")
    least = np.maximum(levels - _ROUNDING, np.finfo(float).tiny)

    def receive(block: Rows) -> None:
        outside[block.queries] = block.outside
        for output in range(n_outputs):
            totals = block.weights[:, order[:, output]].cumsum(axis=1)
            totals /= totals[:, -1:]
            for i, level in enumerate(least):
                position = np.count_nonzero(totals < level, axis=1)
                quantiles[block.queries, i, output] = values[order[position, output], output]

    read_rows(request, resources, receive)
    return quantiles, outside


@dataclass(frozen=True)
class LeftOut:
    """Leave-one-out residuals of the keys, and what was left out for each.

    Attributes
    ----------
    residuals : ndarray of shape (n_keys, n_outputs)
        Values less leave-one-out predictions.
    counts : ndarray of shape (n_keys,)
        How many rows each key counts as.
    own : Own
        What was left out for each key: ranges of keys, the same for all keys of a range.
    """

    residuals: Array
    counts: Array
    own: Own

    @cached_property
    def units(self) -> Indices:
        """The first key of each range, a range a unit that is left out as one."""
        return np.unique(self.own.start)

    @cached_property
    def unit_of(self) -> Indices:
        """The unit of each key."""
        return np.searchsorted(self.units, self.own.start)

    @cached_property
    def are_single(self) -> bool:
        """Whether every key is left out alone."""
        return len(self.units) == len(self.counts)

    @property
    def smallest_weight(self) -> float:
        """Of units that are taken to change a prediction when they are left out."""
        return NEGLIGIBLE_WEIGHT if len(self.counts) > _FEW_KEYS else 0.0

    def sums(self, columns: Array) -> Array:
        """Sums over the keys of each unit, of columns (n_rows, n_keys)."""
        return columns if self.are_single else np.add.reduceat(columns, self.units, axis=1)


def interval_rank(counts: Array, coverage: float) -> float:
    """The rank of the order statistic that bounds a prediction interval; inf if there is none.

    Each side leaves out (1 - coverage) of the n + 1 ranks, as in Barber, Candes, Ramdas and
    Tibshirani (2021).
    """
    total = float(counts.sum())
    rank = np.ceil(coverage * (total + 1.0) - 1e-9)
    return rank if rank <= total * (1.0 + 1e-12) else np.inf


def residual_scales(
    queries: Request, rows: Request, resources: Resources, left_out: LeftOut
) -> tuple[Array, Array]:
    """How large residuals are around each query, and around each key without itself.

    Attention-weighted means of absolute residuals, at the multiple of the requests' bandwidths
    whose leave-one-out means predict them best. Means over few neighbours are shrunk towards that
    of all, as if it were one more.

    Parameters
    ----------
    queries : Request
    rows : Request
        The keys, each without what is left out with it.
    resources : Resources
    left_out : LeftOut

    Returns
    -------
    at_queries : ndarray of shape (n_queries, n_outputs)
    at_keys : ndarray of shape (n_keys, n_outputs)
    """
    sizes = np.abs(left_out.residuals)
    overall = left_out.counts @ sizes / left_out.counts.sum()
    units = np.where(overall > 0.0, overall, 1.0)
    sample = evenly_spaced(len(sizes), _SCALE_ROWS)
    few, shares = rows.take(sample), left_out.counts[sample]

    def error(multiple: float) -> float:
        means = local_means(_widened(few, multiple), resources, sizes)
        return float(shares @ (((sizes[sample] - means) / units) ** 2).mean(axis=1))

    multiple = min(_MULTIPLES, key=error)
    scales = []
    for request in (_widened(queries, multiple), _widened(rows, multiple)):
        share = 1.0 / (effective_neighbors(request, resources)[0][:, None] + 1.0)
        means = local_means(request, resources, sizes)
        scales.append((1.0 - share) * means + share * overall)
    return scales[0], scales[1]


def _widened(request: Request, multiple: float) -> Request:
    """The request at a multiple of its bandwidths."""
    return replace(request, queries=request.queries / multiple, keys=request.keys / multiple)


def jackknife_plus(
    request: Request,
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
    request : Request
        The queries; nothing is left out.
    resources : Resources
    left_out : LeftOut
    coverage : float
        Between 0 and 1, such that `interval_rank` is finite.
    scales : pair of ndarray or None
        For intervals whose width varies: the scale of the residuals at the queries
        (n_queries, n_outputs), and at the keys (n_keys, n_outputs). R_i is multiplied with their
        ratio.

    Returns
    -------
    bounds : ndarray of shape (n_queries, 2, n_outputs)
        Lower and upper, in the unit of the values.
    outside : ndarray of shape (n_queries,) of bool
        Queries without a key in the support.

    Notes
    -----
    Up to 2000 keys f_-i is exact. Of more, keys with a weight of less than 0.001 are taken not to
    change the prediction; at degree 0 this errs by less than 0.001 / 0.999 of the range of the
    values.
    """
    rank = interval_rank(left_out.counts, coverage)
    sizes, scale = np.abs(left_out.residuals), np.ones((len(request.queries), 1))
    if scales is not None:
        scale, sizes = scales[0], sizes / np.where(scales[1] > 0.0, scales[1], 1.0)
    ladders = [_Ladder(column, left_out.counts) for column in sizes.T]
    bounds = np.empty((len(request.queries), 2, request.values.shape[1]))
    outside = np.zeros(len(bounds), dtype=bool)
    alone = replace(resources, n_threads=1)

    def receive(block: Rows) -> None:
        outside[block.queries] = block.outside
        without = _without(block, request.take(block.queries), left_out, alone)
        width = np.broadcast_to(scale[block.queries], without.mean.shape)
        unit = np.where(width > 0.0, width, 1.0)
        for output, ladder in enumerate(ladders):
            queries, keys, moves = without.moves(output)
            moves = moves / unit[queries, output]
            for side, sign in enumerate((-1.0, 1.0)):
                reach = ladder.quantiles(rank, queries, keys, sign * moves, len(unit))
                reach = np.where(width[:, output] > 0.0, reach * unit[:, output], 0.0)
                bounds[block.queries, side, output] = without.mean[:, output] + sign * reach

    read_rows(request, resources, receive)
    return bounds, outside


class _Ladder:
    """Sizes of residuals in ascending order, and quantiles of what few moves make of them."""

    def __init__(self, sizes: Array, counts: Array) -> None:
        self.sizes, self.counts = sizes, counts
        order = np.argsort(sizes, kind="stable")
        self.ascending = sizes[order]
        self.totals = np.concatenate([[0.0], counts[order].cumsum()])

    def quantiles(
        self, rank: float, queries: Indices, keys: Indices, moves: Array, n_queries: int
    ) -> Array:
        """The rank-th smallest of sizes, of which some have moved for each query.

        Moved sizes lie within the largest move of where they were, and so does the quantile: only
        those that cross this window count, and bisection finds it to the last digit.
        """
        rank = rank * (1.0 - _ROUNDING)
        middle = self.ascending[np.searchsorted(self.totals[1:], rank)]
        window = np.zeros(n_queries)
        np.maximum.at(window, queries, np.abs(moves))
        low, high = middle - window, middle + window
        before, after = self.sizes[keys], self.sizes[keys] + moves
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


def _without(
    block: Rows, request: Request, left_out: LeftOut, resources: Resources
) -> _Without | _MixedWithout:
    """How the predictions of a block of queries move, of one head or of several."""
    if not block.heads:
        return _Without(block, request, left_out, resources)
    parts = [_without(rows, head, left_out, resources) for rows, head in heads_of(block, request)]
    return _MixedWithout([head.gate for head in request.heads], parts, block.weights.shape[1])


class _MixedWithout:
    """How mixed predictions move: each head does without what is left out."""

    def __init__(
        self, gates: list[Array], parts: list[_Without | _MixedWithout], n_keys: int
    ) -> None:
        self.gates, self.parts, self.n_keys = gates, parts, n_keys
        self.mean: Array = np.einsum("hq,hqp->qp", gates, [part.mean for part in parts])

    def moves(self, output: int) -> tuple[Indices, Indices, Array]:
        """(query, key, f_-i - f): how predictions move without each key that matters."""
        pairs, moved = [], []
        for gate, part in zip(self.gates, self.parts, strict=True):
            queries, keys, moves = part.moves(output)
            pairs.append(queries * self.n_keys + keys)
            moved.append(gate[queries] * moves)
        pair, position = np.unique(np.concatenate(pairs), return_inverse=True)
        total = np.bincount(position, np.concatenate(moved), len(pair)).astype(np.float64)
        return (pair // self.n_keys).astype(np.intp), (pair % self.n_keys).astype(np.intp), total


class _Without:
    """How the predictions of a block of queries move when rows are left out, without refitting.

    At degree 0, without the share p of the weight, of values v: f_-i - f = p (f - v) / (1 - p).
    Local lines do without a key by a correction of rank one. Where most of the fit is left out, or
    what is left out has many places, predictions are computed anew.
    """

    def __init__(
        self, block: Rows, request: Request, left_out: LeftOut, resources: Resources
    ) -> None:
        self.request, self.resources, self.left_out = request, resources, left_out
        self.weights, self.mean = block.weights, block.weights @ request.values
        shares = left_out.sums(block.weights)
        self.entries = np.nonzero(shares > left_out.smallest_weight)
        queries, units = self.entries
        self.removed = 1.0 - left_out.own.kept[left_out.units[units]]
        self.shares = shares[self.entries] * self.removed
        if request.line is None:
            self.leverages = self.shares
        else:
            within = replace(block, queries=slice(0, len(self.weights)))
            lines = fit_lines(within, request.line, request.values)
            self.mean = lines.mean
            self.predictions, self.leverages = self._without_lines(lines, request.line)
        self.large = self.leverages >= _LARGE_SHARE
        self.anew = self._predict_anew(queries[self.large], units[self.large])

    def _without_lines(self, lines: Lines, line: Line) -> tuple[Array, Array]:
        """Predictions without what is left out, and its leverages, for each entry.

        Leverages are infinite where units have many places.
        """
        queries, units = self.entries
        first = self.left_out.units
        keys, distances = line.keys[first], line.queries - lines.center
        shares = np.minimum(self.shares, _LARGE_SHARE)
        means = np.stack([self._unit_means(column) for column in self.request.values.T], axis=1)
        predictions, leverages = np.empty_like(means), np.empty(len(units))
        ends = np.searchsorted(queries, np.arange(len(self.mean) + 1))
        for query, (start, stop) in enumerate(pairwise(ends)):
            one = slice(start, stop)
            predictions[one], leverages[one] = lines.without(
                query, distances[query], keys[units[one]], means[one], shares[one]
            )
        if (line.keys != keys[self.left_out.unit_of]).any():
            leverages[:] = np.inf
        leverages[self.shares >= _LARGE_SHARE] = np.inf
        return predictions, leverages

    def _unit_means(self, values: Array) -> Array:
        """Weighted means of the values in what is left out, for each entry."""
        if self.left_out.are_single:
            return values[self.entries[1]]
        sums = self.left_out.sums(self.weights * values)[self.entries]
        return sums / self.left_out.sums(self.weights)[self.entries]

    def _predict_anew(self, queries: Indices, units: Indices) -> Array:
        """Predictions where too much is left out for subtraction."""
        own = self.left_out.own.take(self.left_out.units[units])
        return smooth(self.request.take(queries).leaving_out(own), self.resources).mean

    def moves(self, output: int) -> tuple[Indices, Indices, Array]:
        """(query, key, f_-i - f): how predictions move without each key that matters."""
        queries, units = self.entries
        mean = self.mean[queries, output]
        if self.request.line is not None:
            moves = self.predictions[:, output] - mean
        else:
            means = self._unit_means(self.request.values[:, output])
            moves = self.shares * (mean - means) / (1.0 - np.where(self.large, 0.0, self.shares))
        moves[self.large] = self.anew[:, output] - mean[self.large]
        return self._by_key(queries, units, moves)

    def _by_key(
        self, queries: Indices, units: Indices, moves: Array
    ) -> tuple[Indices, Indices, Array]:
        """The same for all keys of each unit."""
        if self.left_out.are_single:
            return queries, units, moves
        first = self.left_out.units
        sizes = np.diff(np.append(first, self.weights.shape[1]))[units]
        offset = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return (
            np.repeat(queries, sizes),
            np.repeat(first[units], sizes) + offset,
            np.repeat(moves, sizes),
        )
