"""The variable of descents: log-bandwidths, bent where bandwidths are wide.

Predictions are smooth functions of 1 / bandwidth**2. In its logarithm, the way to a feature that is
smoothed out has no end, and the criterion is flat there. Descents step in

    bent = -log(exp(-2 * log_bandwidth) + 1 / WIDE**2) / 2,

the log-bandwidth itself while that is narrow, and at most log(WIDE).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["HIGHEST", "LOWEST", "WIDEST", "bend", "free", "stretch", "unbend"]

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
    return ~(((bent >= HIGHEST) & (gradients <= 0.0)) | ((bent <= LOWEST) & (gradients >= 0.0)))
