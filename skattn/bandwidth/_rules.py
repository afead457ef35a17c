"""Rules of thumb: a multiple of each feature's spread."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from skattn.geometry import are_multiplicities, rounded_center
from skattn.kernels import KERNELS, Kernel

__all__ = ["RULES", "effective_rows", "rule_of_thumb", "spread"]

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
    n = effective_rows(weights)
    shares = weights / weights.max()  # whose sum does not overflow
    shares /= shares.sum()
    exponent = np.frexp(np.abs(X).max(axis=0))[1]
    scaled = np.ldexp(X, -exponent)  # squares of large features would overflow
    centered = scaled - rounded_center(scaled)
    centered -= shares @ centered
    deviation = np.sqrt(shares @ centered**2 * (n / max(n - 1.0, 1.0)))
    iqr = np.diff(_quantiles(scaled, weights, np.array([0.25, 0.75])), axis=0)[0] / _NORMAL_IQR
    candidates = np.stack([deviation, iqr])
    smallest = np.where(candidates > 0.0, candidates, np.inf).min(axis=0)
    constant = X.min(axis=0) == X.max(axis=0)
    return np.where(constant, np.inf, np.ldexp(smallest, exponent))


def _quantiles(X: Array, weights: Array, levels: Array) -> Array:
    """Weighted quantiles of each column by the inverse of its distribution function."""
    order = np.argsort(X, axis=0, kind="stable")
    # by a power of two: sums do not overflow, and those of whole numbers stay exact
    reached = np.cumsum(np.ldexp(weights, -np.frexp(weights.max())[1])[order], axis=0)
    reached /= reached[-1]
    positions = (reached < levels[:, None, None]).sum(axis=1)
    return np.take_along_axis(X, np.take_along_axis(order, positions, axis=0), axis=0)
