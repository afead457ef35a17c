"""Kernels with exponential tails."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from skattn.kernels.kernel import Array, Kernel, exp_in_place, finite_least

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Gaussian", "Laplace"]


class Gaussian(Kernel):
    """exp(-u**2 / 2): softmax attention; far away the nearest key takes all."""

    name = "gaussian"
    rate = -0.5
    is_exponential = True
    smooth_at_zero = True
    canonical_bandwidth = (4.0 * math.pi) ** -0.1
    peer_bandwidths: ClassVar = {"np": 1.0, "statsmodels": 1.0, "sklearn": 1.0}

    def profile(self, t: Array) -> Array:
        return exp_in_place(t)

    def slope(self, t: Array) -> Array:
        return np.multiply(self.profile(t), self.rate, out=t)

    def log_profile(self, squared: Array) -> Array:
        return self.rate * squared

    def log_slope(self, squared: Array) -> Array:
        return np.full_like(squared, self.rate)

    def tensor_weights(self, squared: Tensor) -> tuple[Tensor, Tensor]:
        weights = squared.sub(finite_least(squared)).mul_(self.rate).exp_()
        return weights, self.rate * weights

    def log_decay(self, nearest: Array, excess: Array) -> Array:
        return self.rate * excess

    def reach(self, nearest: Array, margin: float) -> Array:
        return np.full_like(nearest, 2.0 * margin)


class Laplace(Kernel):
    """exp(-u): far away, an exponentially weighted mean of the edge facing the query."""

    name = "laplace"
    smooth_at_zero = False
    canonical_bandwidth = 0.0625**0.2
    peer_bandwidths: ClassVar = {"sklearn": 1.0}

    def profile(self, t: Array) -> Array:
        np.sqrt(t, out=t)
        return exp_in_place(np.negative(t, out=t))

    def slope(self, t: Array) -> Array:
        u = np.sqrt(t)
        weights = self.profile(t)
        return np.divide(-0.5 * weights, u, out=np.zeros_like(u), where=u > 0.0)

    def log_profile(self, squared: Array) -> Array:
        return -np.sqrt(squared)

    def log_slope(self, squared: Array) -> Array:
        return -0.5 / np.sqrt(np.maximum(squared, 1e-38)) * (squared > 0.0)

    def tensor_weights(self, squared: Tensor) -> tuple[Tensor, Tensor]:
        u = squared.sqrt()
        weights = finite_least(u).sub(u).exp_()
        return weights, (-0.5 * weights).div_(u.masked_fill_(u == 0.0, math.inf))

    def log_decay(self, nearest: Array, excess: Array) -> Array:
        far = np.sqrt(np.maximum(nearest + excess, 0.0)) + np.sqrt(nearest)
        return -excess / np.where(far > 0.0, far, 1.0)

    def reach(self, nearest: Array, margin: float) -> Array:
        return margin * (margin + 2.0 * np.sqrt(nearest))
