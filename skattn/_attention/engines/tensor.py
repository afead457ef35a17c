"""Attention weights of tensors, and the nearest-key rule for them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from skattn.kernels import Kernel

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["normalized_weights"]


def normalized_weights(
    kernel: Kernel,
    squared: Tensor,
    factors: Tensor | None = None,
    excluded: tuple[Tensor, Tensor, Tensor] | None = None,
    rounding: Tensor | float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Attention weights, and slopes of the kernel over the sum of its weights.

    Outside every key's support all weight goes to the nearest key, shared among ties by their
    factors, and slopes are 0. Without any key, weights are NaN.

    Parameters
    ----------
    kernel : Kernel
        One with a slope.
    squared : Tensor of shape (..., n_queries, n_keys)
        Squared distances in bandwidths; inf where a query does not see a key.
    factors : Tensor of shape (n_keys,) or (..., n_queries, n_keys), default=None
        Factors of the weights, not negative: sample weights, for instance. A key of factor 0 is
        not there.
    excluded : tuple of three Tensors of shape (n_excluded,), default=None
        Queries and keys of pairs that are excluded (of two-dimensional `squared`), and the shares
        of their weights that are retained; those that retain nothing are at distance inf.
    rounding : Tensor of shape (..., n_queries, 1) or float, default=0.0
        Squared distances closer to each other than this are ties.

    Returns
    -------
    weights, slopes : Tensor of shape (..., n_queries, n_keys)
        K(u) and dK / d(u**2), over the sum of K(u) of the query.
    """
    if factors is not None and bool((factors <= 0.0).any()):
        squared = squared.masked_fill(factors <= 0.0, math.inf)
    weights, slopes = kernel.tensor_weights(squared)
    for numbers in (weights, slopes):
        _scale(numbers, factors, excluded)
    total = weights.sum(dim=-1, keepdim=True)
    if math.isinf(kernel.support) and factors is None and excluded is None:
        return weights.div_(total), slopes.div_(total)  # relative to the nearest key: no underflow
    outside = _is_zero(total)
    if bool(outside.any()):
        nearest = squared.amin(dim=-1, keepdim=True)
        ties = ((squared - nearest) <= rounding).to(weights.dtype)
        weights = weights.where(~outside, _scale(ties, factors, excluded))
        slopes = slopes.masked_fill_(outside, 0.0)
        total = weights.sum(dim=-1, keepdim=True)
    return weights.div_(total), slopes.div_(total)


def _scale(
    numbers: Tensor, factors: Tensor | None, excluded: tuple[Tensor, Tensor, Tensor] | None
) -> Tensor:
    """Numbers of pairs times their factors and what is retained of them, in place."""
    if factors is not None:
        numbers.mul_(factors)
    if excluded is not None:
        queries, keys, retained = excluded
        numbers[queries, keys] *= retained
    return numbers


def _is_zero(total: Tensor) -> Tensor:
    """Whether sums of weights are zero, or too small to divide by."""
    import torch

    return total <= torch.finfo(total.dtype).tiny
