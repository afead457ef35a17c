r"""Kernels: what weight a scaled distance earns.

A kernel is a radial profile :math:`K(u)` of the scaled distance
:math:`u = \|(q - k) / h\|` between a query and a key. Every built-in profile is scaled so that
:math:`K(0) = 1`, the largest value: the constants of a density cancel in the attention weights.
"""

from collections.abc import Callable, Iterator, Set

from skattn.kernels.callables import CallableKernel
from skattn.kernels.compact import CompactKernel, Cosine, Triangular, Tricube, Uniform
from skattn.kernels.exponential import Gaussian, Laplace
from skattn.kernels.kernel import Array, Kernel, namespace
from skattn.kernels.polynomial import Biweight, Epanechnikov, Triweight
from skattn.kernels.student import Student

__all__ = [
    "DIFFERENTIABLE",
    "KERNELS",
    "CallableKernel",
    "CompactKernel",
    "Kernel",
    "get_kernel",
    "namespace",
]

_UNBOUNDED = Gaussian(), Laplace(), Student()
_POLYNOMIAL = Epanechnikov(), Biweight(), Triweight()
_COMPACT = Tricube(), Triangular(), Uniform(), Cosine()
KERNELS: dict[str, Kernel] = {each.name: each for each in (*_UNBOUNDED, *_POLYNOMIAL, *_COMPACT)}


class _Differentiable(Set[str]):
    """Names of the kernels that have a slope, those added later included."""

    _from_iterable = frozenset

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in KERNELS and KERNELS[name].has_slope

    def __iter__(self) -> Iterator[str]:
        return (name for name, kernel in KERNELS.items() if kernel.has_slope)

    def __len__(self) -> int:
        return sum(kernel.has_slope for kernel in KERNELS.values())


DIFFERENTIABLE = _Differentiable()


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
