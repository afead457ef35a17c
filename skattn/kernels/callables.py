"""Kernels that are functions of the user."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from skattn.kernels.exponential import Gaussian
from skattn.kernels.kernel import Array, Kernel

__all__ = ["CallableKernel"]


class CallableKernel(Kernel):
    """A user's function from u**2 to log-weights.

    Its maximum is not known, so weights are shifted by the largest of each query; where every
    log-weight is -inf, the query is outside the support. Being a function of u**2 alone, it cannot
    tell keys apart whose squared distances round to the same number: some 1e8 bandwidths away,
    where built-in kernels still can.

    Parameters
    ----------
    function : callable
        Takes an array of squared scaled distances, returns log-weights of the same shape; -inf
        means no weight, NaN and +inf are refused.
    """

    name = "callable"
    peaks_at_one = False
    has_slope = False
    smooth_at_zero = False
    canonical_bandwidth = Gaussian.canonical_bandwidth

    def __init__(self, function: Callable[[Array], Array]) -> None:
        self.function = function

    def log_profile(self, squared: Array) -> Array:
        """Log-weights returned by the function, checked."""
        squared = np.asarray(squared)
        returned = self.function(squared.copy())
        try:
            if np.iscomplexobj(returned):
                raise TypeError("complex numbers")
            log_weights = np.asarray(returned, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"kernel={self.function!r} returned {type(returned).__name__!r}, not real numbers; "
                "a callable kernel returns an array of log-weights."
            ) from error
        if log_weights.shape != squared.shape:
            raise ValueError(
                f"kernel={self.function!r} returned an array of shape {log_weights.shape} for "
                f"squared distances of shape {squared.shape}; a callable kernel returns one "
                "log-weight per squared distance, in the same shape."
            )
        if np.isnan(log_weights).any() or np.isposinf(log_weights).any():
            raise ValueError(
                f"kernel={self.function!r} returned NaN or +inf; a callable kernel returns finite "
                "log-weights, or -inf for no weight. Check it at squared distance 0 and at large "
                "squared distances."
            )
        return log_weights

    def reach(self, nearest: Array, margin: float) -> Array:
        """Zero: outside the support only the nearest key counts."""
        return np.zeros_like(nearest)
