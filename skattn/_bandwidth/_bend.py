"""The variable of descents: log-bandwidths, bent where bandwidths are wide.

Predictions are smooth functions of 1 / bandwidth**2. In its logarithm, the way to a feature that is
smoothed out has no end, and the criterion is flat there. Descents step in

    bent = -log(exp(-2 * log_bandwidth) + 1 / WIDE**2) / 2,

the log-bandwidth itself while that is narrow, and at most log(WIDE).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["HIGHEST", "LOWEST", "WIDEST", "bend", "free", "newton_steps", "stretch", "unbend"]

Array = NDArray[np.float64]

# Log-bandwidths, in spreads of a feature, beyond which it is as good as smoothed out.
WIDEST = np.log(1e4)
# Bandwidth, in spreads, from which predictions are better described as functions of its inverse.
_WIDE = 3.0


def bend(log_bandwidths: Array) -> Array:
    """The bent variable of log-bandwidths within plus or minus `WIDEST`."""
    within = np.minimum(np.maximum(log_bandwidths, -WIDEST), WIDEST)
    return -0.5 * np.log(np.exp(-2.0 * within) + _WIDE**-2.0)


def unbend(bent: Array) -> Array:
    """The log-bandwidths of bent ones between `LOWEST` and `HIGHEST`."""
    inverse = np.exp(-2.0 * bent) - _WIDE**-2.0  # of the square
    return -0.5 * np.log(np.maximum(inverse, np.exp(-2.0 * WIDEST)))


def stretch(log_bandwidths: Array) -> Array:
    """Derivatives of log-bandwidths in the bent variable."""
    return 1.0 + np.exp(2.0 * log_bandwidths) / _WIDE**2


LOWEST, HIGHEST = bend(np.array([-WIDEST, WIDEST]))


def free(bent: Array, gradients: Array) -> NDArray[np.bool_]:
    """Which variables are not at a bound that their gradient leads out of."""
    leaves = ((bent >= HIGHEST) & (gradients <= 0.0)) | ((bent <= LOWEST) & (gradients >= 0.0))
    return np.logical_not(leaves)


def newton_steps(bent: Array, gradients: Array, matrices: Array) -> Array:
    """Newton's steps within the bounds, of one point or several.

    A variable whose step would cross a bound stops there, and the others step accordingly.

    Parameters
    ----------
    bent, gradients : ndarray of shape (..., n_features)
    matrices : ndarray of shape (..., n_features, n_features)
        Half of positive definite Hessians.

    Returns
    -------
    ndarray of shape (..., n_features)
    """
    is_free, steps = free(bent, gradients), np.zeros_like(bent)
    while is_free.any():
        both = is_free[..., :, None] & is_free[..., None, :]
        target = np.where(is_free, -0.5 * gradients - (matrices @ steps[..., None])[..., 0], 0.0)
        inner = np.where(both, matrices, np.eye(bent.shape[-1]))
        steps = steps + np.linalg.solve(inner, target[..., None])[..., 0]
        beyond = is_free & ((bent + steps > HIGHEST) | (bent + steps < LOWEST))
        if not beyond.any():
            break
        within = np.clip(bent + steps, LOWEST, HIGHEST) - bent
        again = is_free & beyond.any(axis=-1, keepdims=True) & ~beyond
        steps = np.where(again, 0.0, within)
        is_free = again
    return steps
