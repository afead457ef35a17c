"""Powers of 1 - u**2."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from skattn.kernels.compact import CompactKernel, at_least, one_minus
from skattn.kernels.kernel import Array

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Biweight", "Epanechnikov", "Triweight"]


class _Polynomial(CompactKernel):
    """(1 - u**2)**power inside the unit ball."""

    power: ClassVar[int]
    smooth_at_zero = True

    def profile(self, t: Array) -> Array:
        at_least(one_minus(t), 0.0)
        return t if self.power == 1 else np.power(t, self.power, out=t)

    def slope(self, t: Array) -> Array:
        one_minus(t)
        if self.power == 1:
            return np.multiply(t > 0.0, -1.0, out=t)
        return np.multiply(at_least(t, 0.0) ** (self.power - 1), -self.power, out=t)

    def tensor_weights(self, squared: Tensor) -> tuple[Tensor, Tensor]:
        inside = (1.0 - squared).clamp_(min=0.0)
        if self.power == 1:
            return inside, -(squared < 1.0).to(squared.dtype)
        return inside**self.power, inside ** (self.power - 1) * -self.power


class Epanechnikov(_Polynomial):
    """1 - u**2 inside the unit ball."""

    name = "epanechnikov"
    power = 1
    canonical_bandwidth = 15.0**0.2
    # R np scales its kernel to unit variance, so its support is sqrt(5) of its bandwidths.
    peer_bandwidths: ClassVar = {"np": math.sqrt(5.0), "sklearn": 1.0}


class Biweight(_Polynomial):
    """(1 - u**2)**2 inside the unit ball."""

    name = "biweight"
    power = 2
    canonical_bandwidth = 35.0**0.2


class Triweight(_Polynomial):
    """(1 - u**2)**3 inside the unit ball."""

    name = "triweight"
    power = 3
    canonical_bandwidth = (9450.0 / 143.0) ** 0.2
