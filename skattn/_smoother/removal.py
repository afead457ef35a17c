"""How predictions move when training rows are left out, without refitting.

At degree 0, without the share p of the weight, of values v: f_-i - f = p (f - v) / (1 - p). Local
lines do without a key by a correction of rank one. Where most of the fit is left out, or what is
left out has several places, predictions are computed again.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from skattn._attention import Resources, WeightBlock
from skattn._geometry.training_set import Exclusion
from skattn._smoother.local_fit import Fit, LocalMean
from skattn._smoother.local_linear import LineFit
from skattn._smoother.local_regression import LocalRegression, fit_block, read_fits

__all__ = ["LeftOut", "Moves", "Removal"]

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

# Up to so many keys, predictions without each of them are formed for all.
_FEW_KEYS = 2000
# Of more keys, those with less weight are taken not to move the prediction.
NEGLIGIBLE_WEIGHT = 1e-3
# A prediction without what has this share of the weight is computed anew, not by subtraction.
_LARGE_SHARE = 0.5


class LeftOut:
    """Leave-one-out residuals of the keys, and what was left out for each.

    Parameters
    ----------
    residuals : ndarray of shape (n_keys, n_outputs)
        Values less leave-one-out predictions.
    counts, multiplicity : ndarray of shape (n_keys,)
        Number of rows that each key counts as among others, and stands for.
    excluded : Exclusion
        What was left out for each key: ranges of keys, the same for all keys of a range.

    Attributes
    ----------
    first : ndarray of shape (n_ranges,)
        First key of each range that is left out as one.
    range_of : ndarray of shape (n_keys,)
        Range of each key.
    """

    def __init__(
        self, residuals: Array, counts: Array, multiplicity: Array, excluded: Exclusion
    ) -> None:
        self.residuals, self.counts, self.multiplicity = residuals, counts, multiplicity
        self.excluded = excluded
        self.first = np.unique(excluded.start)
        self.range_of = np.searchsorted(self.first, excluded.start)

    @property
    def are_single(self) -> bool:
        """Whether every key is left out alone."""
        return len(self.first) == len(self.counts)

    @property
    def smallest_weight(self) -> float:
        """Smallest attention weight for which predictions without a range are computed.

        Below it the change is neglected.
        """
        return NEGLIGIBLE_WEIGHT if len(self.counts) > _FEW_KEYS else 0.0

    def sums(self, columns: Array) -> Array:
        """Sums over the keys of each range, of columns (n_rows, n_keys)."""
        return columns if self.are_single else np.add.reduceat(columns, self.first, axis=1)


@dataclass(frozen=True)
class Moves:
    """Changes of predictions, f_-i - f, for each query and key that matters to it.

    Attributes
    ----------
    queries, keys : ndarray of shape (n_entries,)
        Positions; keys that are not among them do not move the prediction.
    changes : ndarray of shape (n_entries,)
        Prediction without the key, less the prediction.
    """

    queries: Indices
    keys: Indices
    changes: Array


class Removal:
    """Predictions of a block of queries without the keys that leave-one-out leaves out.

    Parameters
    ----------
    block : WeightBlock
        Attention weights of the queries.
    regression : LocalRegression
        The regression of the queries; nothing is excluded.
    left_out : LeftOut
        What is left out as one.

    Attributes
    ----------
    prediction : ndarray of shape (n_queries, n_outputs)
        Predictions with all keys.
    """

    def __init__(
        self,
        block: WeightBlock,
        regression: LocalRegression,
        left_out: LeftOut,
        resources: Resources,
    ) -> None:
        self.regression, self.resources, self.left_out = regression, resources, left_out
        self.weights = block.weights
        shares = left_out.sums(block.weights)
        self.entries = np.nonzero(shares > left_out.smallest_weight)
        queries, ranges = self.entries
        removed = 1.0 - left_out.excluded.retained[left_out.first[ranges]]
        self.shares = shares[self.entries] * removed
        fit = fit_block(block, regression)
        self.prediction = fit.prediction
        self.without: Array | None = None
        if isinstance(regression.local_fit, LocalMean):
            leverages = self.shares
        elif isinstance(fit, LineFit):
            self.without, leverages = self._without_lines(fit)
        else:
            leverages = np.full(len(queries), np.inf)
        self.is_large = leverages >= _LARGE_SHARE
        self.anew = self._predict_anew(queries[self.is_large], ranges[self.is_large])

    def _without_lines(self, fit: LineFit) -> tuple[Array, Array]:
        """Predictions without what is left out, and its leverages, for each entry.

        Leverages are infinite where ranges have several places.
        """
        queries, ranges = self.entries
        regressors, places = self.regression.products.regressors, self.regression.regressors
        assert regressors is not None
        assert places is not None
        keys, distances = regressors[self.left_out.first], places - fit.center
        shares = np.minimum(self.shares, _LARGE_SHARE)
        means = np.stack([self._range_means(column) for column in self.regression.values.T], axis=1)
        predictions, leverages = np.empty_like(means), np.empty(len(ranges))
        ends = np.searchsorted(queries, np.arange(len(self.prediction) + 1))
        for query, (start, stop) in enumerate(pairwise(ends)):
            one = slice(start, stop)
            predictions[one], leverages[one] = fit.without(
                query, distances[query], keys[ranges[one]], means[one], shares[one]
            )
        if not np.array_equal(regressors, keys[self.left_out.range_of]):
            leverages[:] = np.inf
        leverages[self.shares >= _LARGE_SHARE] = np.inf
        return predictions, leverages

    def _range_means(self, values: Array) -> Array:
        """Weighted means of the values in what is left out, for each entry."""
        if self.left_out.are_single:
            return values[self.entries[1]]
        sums = self.left_out.sums(self.weights * values)[self.entries]
        return sums / self.left_out.sums(self.weights)[self.entries]

    def _predict_anew(self, queries: Indices, ranges: Indices) -> Array:
        """Predictions where too much is left out for subtraction."""
        excluded = self.left_out.excluded.take(self.left_out.first[ranges])
        found = np.empty((len(queries), self.regression.values.shape[1]))
        if len(queries):
            some = self.regression.take(queries).excluding(excluded)

            def receive(rows: Indices, fit: Fit, outside: NDArray[np.bool_]) -> None:
                found[rows] = fit.prediction

            read_fits(some, self.resources, receive)
        return found

    def moves(self, output: int) -> Moves:
        """Changes of the predictions of one output without each key that matters."""
        queries, ranges = self.entries
        prediction = self.prediction[queries, output]
        if self.without is not None:
            changes = self.without[:, output] - prediction
        else:
            means = self._range_means(self.regression.values[:, output])
            left = 1.0 - np.where(self.is_large, 0.0, self.shares)
            changes = self.shares * (prediction - means) / left
        changes[self.is_large] = self.anew[:, output] - prediction[self.is_large]
        if self.left_out.are_single:
            return Moves(queries, ranges, changes)
        first = self.left_out.first
        sizes = np.diff(np.append(first, self.weights.shape[1]))[ranges]
        offset = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        keys = np.repeat(first[ranges], sizes) + offset
        return Moves(np.repeat(queries, sizes), keys, np.repeat(changes, sizes))
