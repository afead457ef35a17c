"""Spreads of features, and units of order one for targets."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from skattn._geometry.training_set import TrainingSet, number_of_rows, scaled_weights

__all__ = [
    "TargetScaling",
    "deviation",
    "key_spread",
    "mean_squares",
    "rounded_center",
    "spread",
]

Array = NDArray[np.float64]

_LARGEST = np.finfo(np.float64).max
# Interquartile range of the standard normal distribution, to the digits that the rules quote.
_NORMAL_IQR = 1.349


def rounded_center(columns: Array) -> Array:
    """A centre near each column's median that subtracts without rounding from data on a grid.

    The median, which one huge value cannot move away from the others, is rounded to a multiple of
    a power of two that is at most 1/64 of the half range. Subtracting it from integers, timestamps
    or dyadic fractions is exact, so that differences of centred rows are the differences of the
    rows. A constant column is its own centre.

    Parameters
    ----------
    columns : ndarray of shape (n_rows, n_columns)
        Finite data, one row at least.

    Returns
    -------
    ndarray of shape (n_columns,)
        The centres, within the range of each column.
    """
    low, high = columns.min(axis=0), columns.max(axis=0)
    half_range = 0.5 * high - 0.5 * low  # no overflow, where high - low may
    spread = np.where(half_range > 0.0, half_range, 1.0)
    ordered = np.partition(columns, len(columns) // 2, axis=0)
    quantum = np.ldexp(1.0, np.frexp(spread)[1] - 7)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        center = np.round(ordered[len(columns) // 2] / quantum) * quantum
    usable = (half_range > 0.0) & np.isfinite(center)
    return np.clip(np.where(usable, center, low), low, high)


def spread(X: Array, weights: Array) -> Array:
    """Robust scale of each feature.

    The smallest positive of the standard deviation (one degree of freedom) and the interquartile
    range / 1.349.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_features)
        Finite features.
    weights : ndarray of shape (n_rows,)
        Positive sample weights.

    Returns
    -------
    ndarray of shape (n_features,)
        Positive; inf for constant features, which no bandwidth resolves.
    """
    exponent = np.frexp(np.abs(X).max(axis=0))[1]
    scaled = np.ldexp(X, -exponent)  # squares of large features would overflow
    iqr = np.diff(_quantiles(scaled, weights, np.array([0.25, 0.75])), axis=0)[0] / _NORMAL_IQR
    candidates = np.stack([_deviation(scaled, weights), iqr])
    smallest = np.where(candidates > 0.0, candidates, np.inf).min(axis=0)
    return np.where(_is_constant(X), np.inf, np.ldexp(smallest, exponent))


def key_spread(training_set: TrainingSet) -> Array:
    """Spread of each feature of the keys of a training set."""
    keys = training_set.keys
    return spread(training_set.X[keys], training_set.weights[keys])


def deviation(X: Array, weights: Array) -> Array:
    """Standard deviation of each feature, with one degree of freedom; parameters as for `spread`.

    Returns
    -------
    ndarray of shape (n_features,)
        Positive; inf for constant features.
    """
    exponent = np.frexp(np.abs(X).max(axis=0))[1]
    found = _deviation(np.ldexp(X, -exponent), weights)
    return np.where(_is_constant(X) | (found == 0.0), np.inf, np.ldexp(found, exponent))


def mean_squares(errors: Array, weights: Array) -> Array:
    """Weighted mean of squares of each output.

    Parameters
    ----------
    errors : ndarray of shape (..., n_rows, n_outputs)
        Numbers whose squares do not overflow.
    weights : ndarray of shape (n_rows,)
        Not negative, not all zero; only ratios matter.

    Returns
    -------
    ndarray of shape (..., n_outputs)
    """
    share = scaled_weights(weights)
    return np.einsum("...ij,...ij,i->...j", errors, errors, share / share.sum())


def _deviation(scaled: Array, weights: Array) -> Array:
    n = number_of_rows(weights)
    shares = scaled_weights(weights)
    shares /= shares.sum()
    centered = scaled - rounded_center(scaled)
    centered -= shares @ centered
    root: Array = np.sqrt(shares @ centered**2 * (n / max(n - 1.0, 1.0)))
    return root


def _is_constant(X: Array) -> NDArray[np.bool_]:
    return np.asarray(X.min(axis=0) == X.max(axis=0))


def _quantiles(X: Array, weights: Array, levels: Array) -> Array:
    """Weighted quantiles of each column by the inverse of its distribution function."""
    shares = scaled_weights(weights)
    return np.quantile(X, levels, axis=0, weights=shares, method="inverted_cdf")


@dataclass(frozen=True)
class TargetScaling:
    """Units of order one for targets: a target is ``(center + value) * 2**exponent``.

    Sums of values in these units neither overflow nor lose digits to what the targets have in
    common.

    Attributes
    ----------
    center, low, high : ndarray of shape (n_outputs,)
        Centre and range of the targets, in units of ``2**exponent``.
    exponent : ndarray of shape (n_outputs,)
        Power of two that is at least the largest absolute target.
    """

    center: Array
    low: Array
    high: Array
    exponent: NDArray[np.intc]

    @classmethod
    def of(cls, targets: Array) -> tuple[TargetScaling, Array]:
        """Scaling of some targets (n_rows, n_outputs), and their values in it."""
        exponent = np.frexp(np.abs(targets).max(axis=0))[1]
        scaled = np.ldexp(targets, -exponent)
        center = rounded_center(scaled)
        return cls(center, scaled.min(axis=0), scaled.max(axis=0), exponent), scaled - center

    def restore_means(self, values: Array) -> Array:
        """Targets of values that are weighted means: rounding cannot leave the targets' range."""
        return np.ldexp(np.clip(self.center + values, self.low, self.high), self.exponent)

    def restore(self, values: Array) -> Array:
        """Targets of values, which may lie beyond those of the training rows."""
        return _within_floats(self.center + values, self.exponent)

    def restore_differences(self, differences: Array) -> Array:
        """Differences of targets, from differences of values."""
        return _within_floats(differences, self.exponent)

    def restore_squares(self, squares: Array) -> Array:
        """Squared differences of targets, (..., n_outputs), from those of values."""
        with np.errstate(over="ignore"):
            return np.ldexp(squares, 2 * self.exponent)


def _within_floats(numbers: Array, exponent: NDArray[np.intc]) -> Array:
    with np.errstate(over="ignore"):
        return np.clip(np.ldexp(numbers, exponent), -_LARGEST, _LARGEST)
