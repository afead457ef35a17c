"""Rules of thumb: a multiple of each feature's spread."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from skattn._geometry.scaling import spread
from skattn._geometry.training_set import number_of_rows
from skattn.kernels import KERNELS, Kernel

__all__ = ["RULES", "rule_of_thumb"]

Array = NDArray[np.float64]

RULES = {"scott": 1.06, "silverman": 0.9}


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
    n, d = number_of_rows(weights), X.shape[1]
    relative = kernel.canonical_bandwidth / KERNELS["gaussian"].canonical_bandwidth
    return factor * relative * n ** (-1.0 / (d + 4)) * spread(X, weights)
