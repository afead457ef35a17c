"""Attention weights of a block of queries and keys, and their gradients.

Weights are K_ij / sum_k K_ik with K a function of a score of query i and key j. If slope_ij is the
derivative of K_ij in the score over the same sum, and G_ij the derivative of a loss in the weight,
that in the score is slope_ij (G_ij - sum_k w_ik G_ik): K' over the sum, never w times (log K)',
which is 0 times infinity on the edge of a compact kernel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from skattn._attention.engines.tensor import normalized_weights
from skattn._geometry.distances import tensor_differences, tensor_from_nearest, tensor_rounding
from skattn.kernels import Kernel


@dataclass(frozen=True)
class Softmax:
    """exp of the product of a query and a key: the Gaussian kernel of folded coordinates.

    Queries and keys are (n_batches, n, n_features); weights (n_batches, n_queries, n_keys).
    """

    is_softmax = True

    def weights(self, queries: Tensor, keys: Tensor, seen: Tensor | None) -> tuple[Tensor, Tensor]:
        """Weights and slopes, which are equal; each query sees some key."""
        weights = torch.softmax(_hide(queries @ keys.mT, seen, -torch.inf), dim=-1)
        return weights, weights

    def gradients(self, change: Tensor, queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Derivatives in queries and keys, given those in the products."""
        return change @ keys, change.mT @ queries


@dataclass(frozen=True)
class Radial:
    """A kernel of the distance; shapes as in `Softmax`."""

    kernel: Kernel
    is_softmax = False

    def weights(self, queries: Tensor, keys: Tensor, seen: Tensor | None) -> tuple[Tensor, Tensor]:
        """Weights, and slopes in the squared distance; each query sees some key."""
        if self.kernel.smooth_at_zero:
            squared = tensor_from_nearest(queries, keys, seen)
        else:
            squared = _hide(tensor_differences(queries, keys), seen, torch.inf)
        is_compact = math.isfinite(self.kernel.support)
        rounding = tensor_rounding(queries, keys) if is_compact else 0.0
        return normalized_weights(self.kernel, squared, rounding=rounding)

    def gradients(self, change: Tensor, queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Derivatives in queries and keys, given those in the squared distances."""
        by_query = queries * change.sum(dim=-1, keepdim=True) - change @ keys
        by_key = keys * change.sum(dim=-2)[..., None] - change.mT @ queries
        return 2.0 * by_query, 2.0 * by_key


Profile = Softmax | Radial


def softmax_weights(queries: Tensor, keys: Tensor, allowed: Tensor | None) -> Tensor:
    """Softmax of the products over the allowed keys, differentiable any number of times."""
    return masked_softmax(queries @ keys.mT, allowed)


def masked_softmax(scores: Tensor, allowed: Tensor | None) -> Tensor:
    """Softmax over the allowed keys; zero for a query without any, and no gradient."""
    seen, blind = open_rows(allowed)
    return silence(torch.softmax(_hide(scores, seen, -torch.inf), dim=-1), blind)


def open_rows(allowed: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """Mask with its fully masked rows opened, and which they are, to be silenced afterwards."""
    if allowed is None:
        return None, None
    blind = ~allowed.any(dim=-1, keepdim=True)
    return allowed | blind, blind


def silence(rows: Tensor, blind: Tensor | None) -> Tensor:
    """Set fully masked rows, and their gradients, to zero."""
    return rows if blind is None else rows.masked_fill(blind, 0.0)


def _hide(scores: Tensor, seen: Tensor | None, by: float) -> Tensor:
    return scores if seen is None else torch.where(seen, scores, by)
