"""Kernel weights of tensors: the built-in kernels and their slopes, on any device."""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["KERNELS_WITH_SLOPE", "kernel_weights"]

KERNELS_WITH_SLOPE = (
    "gaussian",
    "laplace",
    "student",
    "epanechnikov",
    "biweight",
    "triweight",
    "tricube",
    "triangular",
    "cosine",
)
_POWERS = {"epanechnikov": 1, "biweight": 2, "triweight": 3}


def kernel_weights(name: str, squared: Tensor) -> tuple[Tensor, Tensor]:
    """K(u) and dK / d(u**2), both up to the same positive factor of each row.

    Parameters
    ----------
    name : str
        One of `KERNELS_WITH_SLOPE`.
    squared : Tensor of shape (n_queries, n_keys)
        u**2, not negative; inf for keys that have no weight. Some key of each row is finite.

    Returns
    -------
    weights, slopes : Tensor of shape (n_queries, n_keys)
        Slopes are 0 where u is 0 and K has a kink there. All weights of a row may be 0 for kernels
        of compact support.
    """
    if name == "gaussian":
        nearest = squared.amin(dim=1, keepdim=True)
        weights = squared.sub(nearest).mul_(-0.5).exp_()
        return weights, -0.5 * weights
    if name == "student":
        inverse = squared.mul(1.0 / 7.0).add_(1.0).reciprocal_()
        weights = inverse * inverse
        weights.mul_(weights)
        return weights, inverse.mul_(weights).mul_(-4.0 / 7.0)
    if name in _POWERS:
        power, inside = _POWERS[name], torch.clamp(1.0 - squared, min=0.0)
        if power == 1:
            return inside, -(squared < 1.0).to(squared.dtype)
        return inside**power, -power * inside ** (power - 1)
    return _of_distance(name, torch.sqrt(squared))


def _of_distance(name: str, u: Tensor) -> tuple[Tensor, Tensor]:
    """Kernels that are no smooth function of u**2."""
    inverse = torch.where(u > 0.0, 1.0 / u, torch.zeros_like(u))
    if name == "laplace":
        weights = torch.exp(u.amin(dim=1, keepdim=True) - u)
        return weights, -0.5 * weights * inverse
    inside = (u < 1.0).to(u.dtype)
    u = torch.clamp(u, max=1.0)
    if name == "tricube":
        return (1.0 - u**3) ** 3, -4.5 * u * (1.0 - u**3) ** 2
    if name == "triangular":
        return 1.0 - u, -0.5 * inverse * inside
    if name == "cosine":
        angle = 0.5 * math.pi * u
        # sin(angle) / u tends to pi / 2
        slope = torch.where(u > 0.0, torch.sin(angle) * inverse, torch.full_like(u, 0.5 * math.pi))
        return torch.cos(angle) * inside, -0.25 * math.pi * slope * inside
    raise ValueError(f"kernel {name!r} has no slope; use one of {KERNELS_WITH_SLOPE}.")
