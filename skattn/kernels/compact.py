"""Kernels that vanish outside the unit ball, other than polynomials."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from skattn.kernels.kernel import Array, Kernel, Numbers, namespace

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["CompactKernel", "Cosine", "Triangular", "Tricube", "Uniform", "at_least", "one_minus"]

# Squared distances this far outside the unit ball still count as on the edge of the uniform kernel:
# dividing by a bandwidth rounds, and 0.3 / 0.1 must not fall outside 3.
_EDGE = 1e-9


class CompactKernel(Kernel):
    """A kernel that vanishes from u = 1 on.

    A new one defines `name`, `inside` and `slope_inside`, for arrays and tensors alike.
    """

    support = 1.0

    def inside(self, squared: Numbers) -> Numbers:
        """K(u) of an array or tensor, for 0 <= u <= 1."""
        raise NotImplementedError(f"{type(self).__name__} does not define its weights.")

    def slope_inside(self, squared: Numbers) -> Numbers:
        """dK / d(u**2) of an array or tensor, for 0 <= u <= 1, or 0 < u <= 1 if K has a kink."""
        raise ValueError(f"kernel {self.name!r} has no slope.")

    def profile(self, t: Numbers) -> Numbers:
        """K(u) of an array or tensor, overwriting ``t = u**2``."""
        xp = namespace(t)
        return xp.where(t < 1.0, self.inside(xp.clip(t, 0.0, 1.0)), 0.0)

    def slope(self, t: Numbers) -> Numbers:
        """dK / d(u**2) of an array or tensor; 0 where u is 0 and K has a kink there."""
        xp = namespace(t)
        if self.smooth_at_zero:
            return self.slope_inside(xp.clip(t, 0.0, 1.0)) * (t < 1.0)
        return self.slope_inside(xp.clip(t, 1e-38, 1.0)) * ((t > 0.0) & (t < 1.0))

    def log_profile(self, squared: Array) -> Array:
        """log K(u), -inf from the edge on."""
        weights = self.profile(np.array(squared, dtype=np.float64))
        with np.errstate(divide="ignore"):
            return np.log(weights)

    def log_slope(self, squared: Array) -> Array:
        """d log K / d(u**2), 0 outside the support."""
        weights, slopes = self.profile(1.0 * squared), self.slope(1.0 * squared)
        return np.divide(slopes, weights, out=np.zeros_like(weights), where=weights > 0.0)

    def tensor_weights(self, squared: Tensor) -> tuple[Tensor, Tensor]:
        """K(u) and dK / d(u**2) of a tensor, as they are."""
        slopes = self.slope(squared.clone())
        return self.profile(squared.clone()), slopes

    def log_decay(self, nearest: Array, excess: Array) -> Array:
        """Difference of log-profiles: all of the support is near."""
        return self.log_profile(nearest + excess) - self.log_profile(nearest)

    def reach(self, nearest: Array, margin: float) -> Array:
        """Excess of u**2 over `nearest` at which the support ends."""
        return np.maximum(self.support**2 - nearest, 0.0)

    def trusted_normalizer(self, dtype: np.dtype) -> float:
        """Weight near the edge, where 1 - u**2 loses digits."""
        edge = 0.99 if dtype == np.float64 else 0.7
        return float(self.profile(np.array([edge]))[0])


class Tricube(CompactKernel):
    """(1 - u**3)**3 inside the unit ball, the kernel of loess."""

    name = "tricube"
    smooth_at_zero = True
    canonical_bandwidth = (175.0 / 247.0 / (35.0 / 243.0) ** 2) ** 0.2

    def profile(self, t: Numbers) -> Numbers:
        xp = namespace(t)
        xp.clip(t, 0.0, 1.0, out=t)
        t *= xp.sqrt(t)
        t = one_minus(t)
        t **= 3
        return t

    def slope(self, t: Numbers) -> Numbers:
        xp = namespace(t)
        u = xp.sqrt(xp.clip(t, 0.0, 1.0, out=t))
        return -4.5 * u * (1.0 - t * u) ** 2


class Triangular(CompactKernel):
    """1 - u inside the unit ball."""

    name = "triangular"
    smooth_at_zero = False
    canonical_bandwidth = 24.0**0.2
    peer_bandwidths: ClassVar = {"sklearn": 1.0}

    def profile(self, t: Numbers) -> Numbers:
        namespace(t).sqrt(t, out=t)
        return at_least(one_minus(t), 0.0)

    def slope_inside(self, squared: Numbers) -> Numbers:
        return -0.5 / namespace(squared).sqrt(squared)


class Cosine(CompactKernel):
    """cos(pi u / 2) inside the unit ball."""

    name = "cosine"
    smooth_at_zero = True
    canonical_bandwidth = (math.pi**2 / 16.0 / (1.0 - 8.0 / math.pi**2) ** 2) ** 0.2
    peer_bandwidths: ClassVar = {"sklearn": 1.0}

    def profile(self, t: Numbers) -> Numbers:
        xp = namespace(t)
        xp.clip(t, 0.0, 1.0, out=t)
        # sin of the complement: exactly zero on the edge, where cos(pi / 2) is not.
        t = one_minus(xp.sqrt(t, out=t))
        t *= 0.5 * math.pi
        return xp.sin(t, out=t)

    def slope_inside(self, squared: Numbers) -> Numbers:
        # d cos(pi u / 2) / d(u**2) = -(pi / 2)**2 / 2 * sinc(u / 2)
        xp = namespace(squared)
        return xp.sinc(0.5 * xp.sqrt(squared)) * (-(math.pi**2) / 8.0)


class Uniform(CompactKernel):
    """1 on the closed unit ball: a mean over a window, edge included."""

    name = "uniform"
    smooth_at_zero = False
    has_slope = False
    canonical_bandwidth = 4.5**0.2
    peer_bandwidths: ClassVar = {"np": 1.0, "sklearn": 1.0}

    def profile(self, t: Array) -> Array:
        return np.less_equal(t, 1.0 + _EDGE, out=t, casting="unsafe")

    def trusted_normalizer(self, dtype: np.dtype) -> float:
        return Kernel.trusted_normalizer(self, dtype)


def at_least(t: Numbers, bound: float) -> Numbers:
    """The larger of t and a bound, overwriting t."""
    if not isinstance(t, np.ndarray):
        return t.clamp_(min=bound)
    # a row of bounds takes NumPy's vectorised path, where a scalar takes twice the time
    return np.maximum(t, np.full(t.shape[-1:], bound, t.dtype), out=t)


def one_minus(t: Numbers) -> Numbers:
    """1 - t, overwriting t."""
    return np.subtract(1.0, t, out=t) if isinstance(t, np.ndarray) else t.neg_().add_(1.0)
