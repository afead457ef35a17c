"""The smoother matrix S of y_hat = S y: statistics that are arithmetic on attention weights.

Rows of S are attention weights. Its diagonal is the leverage of the training rows, its trace the
effective degrees of freedom, and the inverse of a row's sum of squares the effective number of
neighbours of that query.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from skattn.attention import Resources, attend
from skattn.geometry import Own
from skattn.kernels import Kernel

__all__ = ["effective_neighbors", "leverage"]

Array = NDArray[np.float64]


def leverage(
    rows: Array, keys: Array, kernel: Kernel, log_weights: Array, itself: Own, resources: Resources
) -> Array:
    """Diagonal of the smoother matrix: the weight of each training row in its own fit.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, n_features)
        Coordinates of all training rows.
    keys : ndarray of shape (n_keys, n_features)
        Coordinates of those that are keys.
    kernel : Kernel
    log_weights : ndarray of shape (n_keys,)
    itself : Own
        Which key each row is, with all of its weight kept.
    resources : Resources

    Returns
    -------
    ndarray of shape (n_rows,)
        Between 0 and 1; 0 for rows that are no keys.
    """
    nothing = np.zeros((len(keys), 1))
    return attend(
        rows, keys, nothing, kernel, log_weights, own=itself, resources=resources
    ).own_weight


def effective_neighbors(squares: Array) -> Array:
    """1 / sum(w**2): the number of keys that, weighted equally, would average as much noise out.

    Parameters
    ----------
    squares : ndarray of shape (n_queries,)
        Sums of squared attention weights.

    Returns
    -------
    ndarray of shape (n_queries,)
        Between 1 and the number of keys.
    """
    return 1.0 / squares
