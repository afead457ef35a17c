r"""Kernels: what weight a scaled distance earns.

A kernel is a radial profile :math:`K(u)` of the scaled distance
:math:`u = \|(q - k) / h\|` between a query and a key. Every built-in profile is scaled so that
:math:`K(0) = 1`, the largest value: the constants of a density cancel in the attention weights.

Functions of this module take the *squared* scaled distance :math:`u^2`, the quantity that distance
computations produce, and assume finite input.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["KERNELS", "CallableKernel", "Kernel", "get_kernel"]

Array = NDArray[np.floating]

# Squared distances this far outside the unit ball still count as on the edge of the uniform kernel:
# dividing by a bandwidth rounds, and 0.3 / 0.1 must not fall outside 3.
_EDGE = 1e-9


class Kernel:
    """A radial profile, its logarithm, and the constants that go with it.

    A new kernel defines `profile`, `log_profile`, `slope` and the class attributes; kernels of
    unbounded support also define `reach`, and `log_decay` when the difference of logarithms
    cancels.

    Attributes
    ----------
    name : str
        The name users write.
    support : float
        Largest scaled distance with a positive weight, inf for unbounded kernels. On the edge
        itself only the uniform kernel is positive.
    rate : float
        `profile` takes ``rate * u**2``: the factor costs nothing when it is part of the distance
        computation.
    peaks_at_one : bool
        Whether K(u) <= K(0) = 1, so that weights can be summed without looking for their maximum.
    is_exponential : bool
        Whether `profile` is the exponential of its argument, so that adding to the argument
        scales all weights and moves them away from underflow.
    smooth_at_zero : bool
        Whether K is a smooth function of u**2 on its support, and so tolerates the absolute error
        of ``|q|**2 + |k|**2 - 2 q.k``.
    has_slope : bool
        Whether K has a derivative, so that bandwidths can be learned by gradients.
    canonical_bandwidth : float
        (R(K) / mu_2(K)**2)**(1/5) of the one-dimensional density proportional to K, with R the
        integral of the squared density and mu_2 its variance. Bandwidths of two kernels in the
        ratio of these numbers smooth alike (Marron and Nolan, 1988).
    peer_bandwidths : mapping of str to float
        What a bandwidth of a peer ("np" for R np, "statsmodels", "sklearn" for
        :class:`sklearn.neighbors.KernelDensity`) is multiplied by to give ours. A peer without
        the kernel is absent.
    """

    name: ClassVar[str]
    support: ClassVar[float] = math.inf
    rate: ClassVar[float] = 1.0
    peaks_at_one: ClassVar[bool] = True
    is_exponential: ClassVar[bool] = False
    has_slope: ClassVar[bool] = True
    smooth_at_zero: ClassVar[bool] = True
    canonical_bandwidth: ClassVar[float]
    peer_bandwidths: ClassVar[Mapping[str, float]] = {}

    def profile(self, t: Array) -> Array:
        """K(u), overwriting ``t = rate * u**2``; positive weights are normal numbers."""
        raise NotImplementedError(f"{type(self).__name__} defines no profile.")

    def log_profile(self, squared: Array) -> Array:
        """log K(u) at ``squared = u**2``, -inf outside the support."""
        raise NotImplementedError(f"{type(self).__name__} defines no log_profile.")

    def slope(self, t: Array) -> Array:
        """dK / d(u**2), overwriting ``t = rate * u**2``; 0 where u is 0 and K has a kink there."""
        raise NotImplementedError(f"{type(self).__name__} defines no slope.")

    def log_slope(self, squared: Array) -> Array:
        """d log K / d(u**2); 0 outside the support, and where u is 0 and K has a kink there."""
        weights = self.profile(self.rate * squared)
        slopes = self.slope(self.rate * squared)
        return np.divide(slopes, weights, out=np.zeros_like(weights), where=weights > 0.0)

    def log_decay(self, nearest: Array, excess: Array) -> Array:
        """log K(u) at u**2 = nearest + excess, less that at nearest; exact however far."""
        return self.log_profile(nearest + excess) - self.log_profile(nearest)

    def reach(self, nearest: Array, margin: float) -> Array:
        """Excess of u**2 over `nearest` at which the log-weight has fallen by `margin`."""
        return np.maximum(self.support**2 - nearest, 0.0)

    def trusted_normalizer(self, dtype: np.dtype) -> float:
        """Smallest sum of weights (keys of unit sample weight) that `profile` determines well.

        Below it, rounding in u**2 or underflow of the weights shows in the prediction, and a
        query is recomputed in the log domain.
        """
        return 1e-250 if dtype == np.float64 else 1e-20


def _exp(t: Array) -> Array:
    # exp, and products with its result, are many times slower where they underflow; a weight this
    # small is as good as zero, since the normaliser is trusted only far above it.
    lowest = -680.0 if t.dtype == np.float64 else -80.0
    if t.size and t.min() < lowest:
        _at_least(t, lowest)
    return np.exp(t, out=t)


def _at_least(t: Array, bound: float) -> Array:
    # a row of bounds takes NumPy's vectorised path, where a scalar takes twice the time
    return np.maximum(t, np.full(t.shape[-1:], bound, t.dtype), out=t)


class Gaussian(Kernel):
    """exp(-u**2 / 2): softmax attention; far away the nearest key takes all."""

    name = "gaussian"
    rate = -0.5
    is_exponential = True
    canonical_bandwidth = (4.0 * math.pi) ** -0.1
    peer_bandwidths: ClassVar = {"np": 1.0, "statsmodels": 1.0, "sklearn": 1.0}

    def profile(self, t: Array) -> Array:
        return _exp(t)

    def slope(self, t: Array) -> Array:
        return np.multiply(self.profile(t), self.rate, out=t)

    def log_profile(self, squared: Array) -> Array:
        return -0.5 * squared

    def log_slope(self, squared: Array) -> Array:
        return np.full_like(squared, -0.5)

    def log_decay(self, nearest: Array, excess: Array) -> Array:
        return -0.5 * excess

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
        return _exp(np.negative(t, out=t))

    def slope(self, t: Array) -> Array:
        u = np.sqrt(t)
        weights = self.profile(t)
        return np.divide(-0.5 * weights, u, out=np.zeros_like(u), where=u > 0.0)

    def log_profile(self, squared: Array) -> Array:
        return -np.sqrt(squared)

    def log_slope(self, squared: Array) -> Array:
        u = np.sqrt(squared)
        return np.divide(-0.5, u, out=np.zeros_like(u), where=u > 0.0)

    def log_decay(self, nearest: Array, excess: Array) -> Array:
        far = np.sqrt(np.maximum(nearest + excess, 0.0)) + np.sqrt(nearest)
        return -excess / np.where(far > 0.0, far, 1.0)

    def reach(self, nearest: Array, margin: float) -> Array:
        return margin * (margin + 2.0 * np.sqrt(nearest))


class Student(Kernel):
    """(1 + u**2 / 7)**-4, Student's t with 7 degrees of freedom; far away, the weighted mean."""

    name = "student"
    rate = 1.0 / 7.0
    canonical_bandwidth = (
        (6.0 / math.gamma(3.5)) ** 2 * math.gamma(7.5) / (5040.0 * math.sqrt(7.0 * math.pi)) / 1.96
    ) ** 0.2

    def profile(self, t: Array) -> Array:
        largest = 1e75 if t.dtype == np.float64 else 1e9
        if t.size and t.max() > largest:
            np.minimum(t, largest, out=t)
        np.add(t, 1.0, out=t)
        np.multiply(t, t, out=t)
        np.multiply(t, t, out=t)
        return np.reciprocal(t, out=t)

    def slope(self, t: Array) -> Array:
        fifth = np.minimum(t, 1e7) + 1.0
        return (-4.0 * self.rate) / fifth**5

    def log_profile(self, squared: Array) -> Array:
        return -4.0 * np.log1p(squared / 7.0)

    def log_slope(self, squared: Array) -> Array:
        return -4.0 / (7.0 + squared)

    def log_decay(self, nearest: Array, excess: Array) -> Array:
        return -4.0 * np.log1p(excess / (7.0 + nearest))

    def reach(self, nearest: Array, margin: float) -> Array:
        return (7.0 + nearest) * math.expm1(min(margin / 4.0, 500.0))


class _Compact(Kernel):
    """A kernel that vanishes from u = 1 on."""

    support = 1.0

    def log_profile(self, squared: Array) -> Array:
        weights = self.profile(np.array(squared, dtype=np.float64))
        with np.errstate(divide="ignore"):
            return np.log(weights)

    def trusted_normalizer(self, dtype: np.dtype) -> float:
        # 1 - u**2 loses digits towards the edge: redo queries that see keys only out there.
        edge = 0.99 if dtype == np.float64 else 0.7
        return float(self.profile(np.array([edge * self.rate]))[0])


class _Polynomial(_Compact):
    """(1 - u**2)**power inside the unit ball."""

    power: ClassVar[int]

    def profile(self, t: Array) -> Array:
        np.subtract(1.0, t, out=t)
        _at_least(t, 0.0)
        return t if self.power == 1 else np.power(t, self.power, out=t)

    def slope(self, t: Array) -> Array:
        np.subtract(1.0, t, out=t)
        if self.power == 1:
            return np.multiply(t > 0.0, -1.0, out=t)
        return np.multiply(_at_least(t, 0.0) ** (self.power - 1), -self.power, out=t)


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


class Tricube(_Compact):
    """(1 - u**3)**3 inside the unit ball, the kernel of loess."""

    name = "tricube"
    canonical_bandwidth = (175.0 / 247.0 / (35.0 / 243.0) ** 2) ** 0.2

    def profile(self, t: Array) -> Array:
        np.clip(t, 0.0, 1.0, out=t)
        np.multiply(t, np.sqrt(t), out=t)
        np.subtract(1.0, t, out=t)
        return np.power(t, 3, out=t)

    def slope(self, t: Array) -> Array:
        u = np.sqrt(np.clip(t, 0.0, 1.0, out=t))
        return -4.5 * u * (1.0 - t * u) ** 2


class Triangular(_Compact):
    """1 - u inside the unit ball."""

    name = "triangular"
    smooth_at_zero = False
    canonical_bandwidth = 24.0**0.2
    peer_bandwidths: ClassVar = {"sklearn": 1.0}

    def profile(self, t: Array) -> Array:
        np.sqrt(t, out=t)
        np.subtract(1.0, t, out=t)
        return _at_least(t, 0.0)

    def slope(self, t: Array) -> Array:
        inside = (t > 0.0) & (t < 1.0)
        return np.divide(-0.5, np.sqrt(t), out=np.zeros_like(t), where=inside)


class Cosine(_Compact):
    """cos(pi u / 2) inside the unit ball."""

    name = "cosine"
    canonical_bandwidth = (math.pi**2 / 16.0 / (1.0 - 8.0 / math.pi**2) ** 2) ** 0.2
    peer_bandwidths: ClassVar = {"sklearn": 1.0}

    def profile(self, t: Array) -> Array:
        np.clip(t, 0.0, 1.0, out=t)
        np.subtract(1.0, np.sqrt(t, out=t), out=t)
        # sin of the complement: exactly zero on the edge, where cos(pi / 2) is not.
        return np.sin(np.multiply(t, 0.5 * math.pi, out=t), out=t)

    def slope(self, t: Array) -> Array:
        # d cos(pi u / 2) / d(u**2) = -(pi / 2)**2 / 2 * sinc(u / 2)
        inside = t < 1.0
        return np.sinc(0.5 * np.sqrt(np.clip(t, 0.0, 1.0))) * inside * (-(math.pi**2) / 8.0)


class Uniform(_Compact):
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
        """What the function returns, checked."""
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


KERNELS: dict[str, Kernel] = {
    kernel.name: kernel
    for kernel in (
        Gaussian(),
        Laplace(),
        Student(),
        Epanechnikov(),
        Biweight(),
        Triweight(),
        Tricube(),
        Triangular(),
        Uniform(),
        Cosine(),
    )
}


def get_kernel(kernel: str | Callable[[Array], Array]) -> Kernel:
    """Return the kernel of a name, or wrap a function from u**2 to log-weights.

    Parameters
    ----------
    kernel : str or callable
        A key of `KERNELS`, or a function taking an array of squared scaled distances and
        returning log-weights of the same shape.

    Returns
    -------
    Kernel
        The kernel.

    Examples
    --------
    >>> import numpy as np
    >>> from skattn.kernels import get_kernel
    >>> get_kernel("epanechnikov").log_profile(np.array([0.0, 0.75, 2.0]))
    array([ 0.        , -1.38629436,        -inf])
    """
    return CallableKernel(kernel) if callable(kernel) else KERNELS[kernel]
