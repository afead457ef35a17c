"""Criteria: what a bandwidth is judged by, from errors and the trace of the smoother matrix.

Errors of several outputs are in units of each output's spread, and averaged.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["CRITERIA", "aicc", "gcv", "mean_squares"]

Array = NDArray[np.float64]

CRITERIA = ("loo", "gcv", "aicc")

# Mean squares, in units of the variance, that are rounding of an exact fit.
EXACT = 1e-30


def mean_squares(errors: Array, weights: Array) -> Array:
    """Weighted mean of squared errors of each output; of leave-one-out errors, the "loo" criterion.

    Parameters
    ----------
    errors : ndarray of shape (..., n_rows, n_outputs)
    weights : ndarray of shape (n_rows,)

    Returns
    -------
    ndarray of shape (..., n_outputs)
    """
    return np.einsum("...ij,...ij,i->...j", errors, errors, weights / weights.sum())


def gcv(squares: Array, trace: Array, n: float) -> Array:
    """Generalised cross-validation: mean r**2 / (1 - tr S / n)**2 (Craven and Wahba, 1979).

    Parameters
    ----------
    squares : ndarray of shape (..., n_outputs)
        Mean squared residuals of the full fit.
    trace : ndarray of shape (...)
        Trace of the smoother matrix.
    n : float
        Number of rows.

    Returns
    -------
    ndarray of shape (...)
        inf where the fit interpolates.
    """
    room = 1.0 - trace / n
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(room > 1e-12, squares.mean(axis=-1) / room**2, np.inf)


def aicc(squares: Array, trace: Array, n: float) -> Array:
    """Corrected Akaike criterion of Hurvich, Simonoff and Tsai (1998).

    log(mean r**2) + (1 + tr S / n) / (1 - (tr S + 2) / n), the mean over outputs; parameters as
    for `gcv`. inf where the denominator is not positive.
    """
    room = 1.0 - (trace + 2.0) / n
    with np.errstate(divide="ignore", invalid="ignore"):
        fit = np.log(np.maximum(squares, EXACT)).mean(axis=-1)
        return np.where(room > 1e-12, fit + (1.0 + trace / n) / room, np.inf)
