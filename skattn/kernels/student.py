"""The kernel with polynomial tails."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from skattn.kernels.kernel import Array, Kernel, finite_least

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Student"]


class Student(Kernel):
    """(1 + u**2 / 7)**-4, Student's t with 7 degrees of freedom; far away, the weighted mean."""

    degrees_of_freedom: ClassVar[float] = 7.0

    name = "student"
    rate = 1.0 / degrees_of_freedom
    smooth_at_zero = True
    canonical_bandwidth = (
        (6.0 / math.gamma(3.5)) ** 2
        * math.gamma(7.5)
        / (5040.0 * math.sqrt(degrees_of_freedom * math.pi))
        / 1.96
    ) ** 0.2

    def profile(self, t: Array) -> Array:
        largest = 1e75 if t.dtype == np.float64 else 1e9
        if t.size and t.max() > largest:
            np.minimum(t, largest, out=t)
        np.add(t, 1.0, out=t)
        np.multiply(t, t, out=t)
        np.multiply(t, t, out=t)
        return np.reciprocal(t, out=t)

    def log_profile(self, squared: Array) -> Array:
        return -4.0 * np.log1p(squared / self.degrees_of_freedom)

    def log_slope(self, squared: Array) -> Array:
        return -4.0 / (self.degrees_of_freedom + squared)

    def tensor_weights(self, squared: Tensor) -> tuple[Tensor, Tensor]:
        # relative to the nearest key, ((7 + u**2) / (7 + nearest))**-4
        scale = finite_least(squared).add_(self.degrees_of_freedom).reciprocal_()
        inverse = squared.mul(scale).add_(self.degrees_of_freedom * scale).reciprocal_()
        weights = inverse * inverse
        weights.mul_(weights)
        return weights, inverse.mul_(weights).mul_(-4.0 * scale)

    def log_decay(self, nearest: Array, excess: Array) -> Array:
        return -4.0 * np.log1p(excess / (self.degrees_of_freedom + nearest))

    def reach(self, nearest: Array, margin: float) -> Array:
        return (self.degrees_of_freedom + nearest) * math.expm1(min(margin / 4.0, 500.0))
