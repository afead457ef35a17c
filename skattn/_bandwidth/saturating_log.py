"""The variable of descents: log-bandwidths that saturate where bandwidths are wide.

Predictions are smooth functions of 1 / bandwidth**2. In its logarithm, the way to a feature that is
smoothed out has no end, and the criterion is flat there. Descents step in

    saturated = -log(exp(-2 * log_bandwidth) + 1 / WIDE**2) / 2,

the log-bandwidth itself while that is narrow, and at most log(WIDE).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["HIGHEST", "LOWEST", "WIDEST", "desaturate", "saturate", "stretch"]

Array = NDArray[np.float64]

# Log-bandwidth, in spreads of a feature, beyond which it is as good as smoothed out.
WIDEST = np.log(1e4)
# Bandwidth, in spreads, from which predictions are better described as functions of its inverse.
_WIDE = 3.0


def saturate(log_bandwidths: Array) -> Array:
    """Saturating variable of log-bandwidths, which are clipped at plus and minus `WIDEST`."""
    within = np.minimum(np.maximum(log_bandwidths, -WIDEST), WIDEST)
    return -0.5 * np.log(np.exp(-2.0 * within) + _WIDE**-2.0)


def desaturate(saturated: Array) -> Array:
    """Log-bandwidths of variables between `LOWEST` and `HIGHEST`."""
    inverse_square = np.exp(-2.0 * saturated) - _WIDE**-2.0
    return -0.5 * np.log(np.maximum(inverse_square, np.exp(-2.0 * WIDEST)))


def stretch(log_bandwidths: Array) -> Array:
    """Derivatives of log-bandwidths in the saturating variable."""
    return 1.0 + np.exp(2.0 * log_bandwidths) / _WIDE**2


LOWEST, HIGHEST = saturate(np.array([-WIDEST, WIDEST]))
