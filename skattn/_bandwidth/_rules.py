"""Rules of thumb: a multiple of each feature's spread."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from skattn._geometry import are_multiplicities, rounded_center
from skattn.kernels import KERNELS, Kernel

__all__ = ["RULES", "deviation", "effective_rows", "rule_of_thumb", "spread"]

Array = NDArray[np.float64]

RULES = {"scott": 1.06, "silverman": 0.9}

# Interquartile range of the standard normal distribution, to the digits that the rules quote.
_NORMAL_IQR = 1.349


def rule_of_thumb(factor: float, X: Array, weights: Array, kernel: Kernel) -> Array:
    """Bandwidths of factor * spread * n**(-1 / (d + 4)).

    For kernels other than the Gaussian, times their canonical bandwidth over the Gaussian's.

    Parameters
    ----------
    factor : float
        1.06 (Scott, 1992) or 0.9 (Silverman, 1986): `RULES`.
    X : ndarray of shape (n_rows, n_features)
        Rows of positive weight.
    weights : ndarray of shape (n_rows,)
        Their sample weights.
    kernel : Kernel
        The kernel the bandwidth is for.

    Returns
    -------
    ndarray of shape (n_features,)
        Bandwidths in the units of the features; inf for constant features.
    """
    n, d = effective_rows(weights), X.shape[1]
    relative = kernel.canonical_bandwidth / KERNELS["gaussian"].canonical_bandwidth
    return factor * relative * n ** (-1.0 / (d + 4)) * spread(X, weights)


def effective_rows(weights: Array) -> float:
    """n: the sum of multiplicities, or the number of rows that carry importance."""
    return float(weights.sum()) if are_multiplicities(weights) else float(weights.size)


def spread(X: Array, weights: Array) -> Array:
    """Robust scale of each feature.

    The smallest positive of the standard deviation (one degree of freedom) and the interquartile
    range / 1.349.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_features)
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


def _deviation(scaled: Array, weights: Array) -> Array:
    n = effective_rows(weights)
    shares = weights / weights.max()  # whose sum does not overflow
    shares /= shares.sum()
    centered = scaled - rounded_center(scaled)
    centered -= shares @ centered
    root: Array = np.sqrt(shares @ centered**2 * (n / max(n - 1.0, 1.0)))
    return root


def _is_constant(X: Array) -> NDArray[np.bool_]:
    return np.asarray(X.min(axis=0) == X.max(axis=0))


def _quantiles(X: Array, weights: Array, levels: Array) -> Array:
    """Weighted quantiles of each column by the inverse of its distribution function."""
    return np.quantile(X, levels, axis=0, weights=weights, method="inverted_cdf")
