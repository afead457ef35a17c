"""Base classes of kernels, and what a new one must define.

Functions take the *squared* scaled distance u**2, the quantity that distance computations produce,
of arrays or of tensors. PyTorch is loaded only where tensors are handed in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import quad

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Kernel", "exp_in_place", "finite_least", "namespace"]

Array = NDArray[np.floating]
Numbers = Any  # ndarray or Tensor

# Gauss-Legendre nodes and shares of the unit interval.
_NODES, _SHARES = (
    (part + shift) / 2.0
    for part, shift in zip(np.polynomial.legendre.leggauss(4), (1.0, 0.0), strict=True)
)


def namespace(numbers: Numbers) -> Any:
    """Module with the functions of an array or tensor: ``numpy`` or ``torch``.

    Parameters
    ----------
    numbers : ndarray or Tensor
        Whatever the functions are to be applied to.

    Returns
    -------
    module
        Both have ``exp``, ``sqrt``, ``log1p``, ``where``, ``clip`` and so on.
    """
    if isinstance(numbers, (np.ndarray, np.generic)):
        return np
    import torch

    return torch


class Kernel:
    """A radial profile K(u), its derivative, and the constants that go with it.

    A new kernel of unbounded support defines `name`, `log_profile` and `log_slope`, for arrays and
    tensors alike; all else follows from them, and may be overridden where there is a faster way.
    Kernels that vanish beyond some distance are subclasses of `CompactKernel`. Every profile is
    scaled so that K(0) = 1, the largest value. An instance in `KERNELS` is known everywhere.

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
    has_slope : bool
        Whether K has a derivative, so that bandwidths can be learned by gradients.
    smooth_at_zero : bool
        Whether K is a smooth function of u**2 on its support, and so tolerates the absolute error
        of ``|q|**2 + |k|**2 - 2 q.k``.
    canonical_bandwidth : float
        (R(K) / mu_2(K)**2)**(1/5) of the one-dimensional density proportional to K, with R the
        integral of the squared density and mu_2 its variance. Bandwidths of two kernels in the
        ratio of these numbers smooth alike (Marron and Nolan, 1988).
    peer_bandwidths : mapping of str to float
        Factor from a bandwidth of a peer ("np" for R np, "statsmodels", "sklearn" for
        :class:`sklearn.neighbors.KernelDensity`) to ours. A peer without the kernel is absent.

    Examples
    --------
    >>> import numpy as np
    >>> from skattn.kernels import Kernel, namespace
    >>> class Matern(Kernel):
    ...     name = "matern"
    ...
    ...     def log_profile(self, squared):
    ...         xp = namespace(squared)
    ...         v = xp.sqrt(3.0 * squared)
    ...         return xp.log1p(v) - v
    ...
    ...     def log_slope(self, squared):
    ...         return -1.5 / (1.0 + namespace(squared).sqrt(3.0 * squared))
    >>> Matern().profile(np.array([0.0, 3.0]))
    array([1.        , 0.19914827])
    >>> round(Matern().canonical_bandwidth, 4)
    0.6863
    """

    name: ClassVar[str]
    support: ClassVar[float] = math.inf
    rate: ClassVar[float] = 1.0
    peaks_at_one: ClassVar[bool] = True
    is_exponential: ClassVar[bool] = False
    has_slope: ClassVar[bool] = True
    peer_bandwidths: ClassVar[Mapping[str, float]] = {}

    @property
    def smooth_at_zero(self) -> bool:
        """Whether K is Lipschitz in u**2 at zero."""
        return bool(self.log_profile(np.array([1e-12]))[0] > -1e-9)

    @property
    def canonical_bandwidth(self) -> float:
        """The canonical bandwidth, by numerical integration."""

        def integral(factor: Callable[[float, float], float]) -> float:
            def integrand(u: float) -> float:
                return factor(u, float(np.exp(self.log_profile(np.array([u * u])))[0]))

            return 2.0 * float(quad(integrand, 0.0, self.support, limit=200)[0])

        mass = integral(lambda _, weight: weight)
        roughness = integral(lambda _, weight: weight**2) / mass**2
        variance = integral(lambda u, weight: u**2 * weight) / mass
        return (roughness / variance**2) ** 0.2

    def log_profile(self, squared: Numbers) -> Numbers:
        """log K(u) at ``squared = u**2``, of an array or tensor; -inf outside the support."""
        raise NotImplementedError(f"{type(self).__name__} defines no log_profile.")

    def log_slope(self, squared: Numbers) -> Numbers:
        """d log K / d(u**2) of an array or tensor; 0 outside the support and at kinks at zero."""
        raise ValueError(f"kernel {self.name!r} has no slope.")

    def profile(self, t: Array) -> Array:
        """K(u), overwriting ``t = rate * u**2``; positive weights are normal numbers."""
        return exp_in_place(self.log_profile(np.maximum(t / self.rate, 0.0)))

    def slope(self, t: Array) -> Array:
        """dK / d(u**2), overwriting ``t = rate * u**2``; 0 where u is 0 and K has a kink there."""
        squared = np.maximum(t / self.rate, 0.0)
        return self.log_slope(squared) * self.profile(t)

    def tensor_weights(self, squared: Tensor) -> tuple[Tensor, Tensor]:
        """K(u) and dK / d(u**2) of a tensor, both up to the same positive factor of each row.

        Parameters
        ----------
        squared : Tensor of shape (..., n_queries, n_keys)
            u**2, not negative, left as it is; inf for keys that have no weight.

        Returns
        -------
        weights, slopes : Tensor of shape (..., n_queries, n_keys)
            New tensors. Slopes are 0 where u is 0 and K has a kink there. Unless the support is
            bounded, weights are relative to those of the nearest key, so that they do not
            underflow; without any key they are 0.
        """
        is_hidden = squared == math.inf
        squared = squared.masked_fill(is_hidden, 0.0)
        decay = (-self.log_profile(squared)).masked_fill_(is_hidden, math.inf)
        weights = (finite_least(decay) - decay).exp_()
        return weights, weights * self.log_slope(squared)

    def log_decay(self, nearest: Array, excess: Array) -> Array:
        """log K(u) at u**2 = nearest + excess, less that at nearest; exact however far."""
        decay = self.log_profile(nearest + excess) - self.log_profile(nearest)
        if not self.has_slope:
            return decay
        # the difference cancels where excess is small: there, the mean slope in between
        slopes = [self.log_slope(nearest + node * excess) for node in _NODES]
        mean = sum(share * slope for share, slope in zip(_SHARES, slopes, strict=True))
        return np.where(excess < 0.01 * nearest, excess * mean, decay)

    def reach(self, nearest: Array, margin: float) -> Array:
        """Excess of u**2 over `nearest` by which the log-weight has fallen by `margin`."""
        excess = np.ones_like(nearest)
        while (near := self.log_decay(nearest, excess) > -margin).any() and excess.max() < 1e300:
            excess[near] *= 2.0
        return excess

    def trusted_normalizer(self, dtype: np.dtype) -> float:
        """Smallest sum of weights (keys of unit sample weight) that `profile` determines well.

        Below it, rounding in u**2 or underflow of the weights shows in the prediction, and a
        query is recomputed in the log domain.
        """
        return 1e-250 if dtype == np.float64 else 1e-20


def exp_in_place(t: Array) -> Array:
    """exp(t), overwriting t; too small numbers stop at a small normal one."""
    # exp, and products with its result, are many times slower where they underflow; a weight this
    # small is as good as zero, since the normaliser is trusted only far above it.
    lowest = -680.0 if t.dtype == np.float64 else -80.0
    if t.size and t.min() < lowest:
        # a row of bounds takes NumPy's vectorised path, where a scalar takes twice the time
        np.maximum(t, np.full(t.shape[-1:], lowest, t.dtype), out=t)
    return np.exp(t, out=t)


def finite_least(numbers: Tensor) -> Tensor:
    """Smallest entry of each row of a tensor, 0 where all are inf."""
    least = numbers.amin(dim=-1, keepdim=True)
    return least.masked_fill_(least == math.inf, 0.0)
