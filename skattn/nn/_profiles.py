"""From queries and keys to attention weights, and back to gradients, block by block.

Weights of a row are K_ij / sum_k K_ik with K a function of a score of the pair. If slope_ij is the
derivative of K_ij in the score over the same sum, and G_ij the derivative of a loss in the weight,
that in the score is slope_ij (G_ij - sum_k w_ik G_ik): K' over the sum, never w times (log K)',
which is 0 times infinity on the edge of a compact kernel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from skattn._attention.engines.tensor import normalized_weights
from skattn._geometry.distances import tensor_differences, tensor_from_nearest, tensor_rounding
from skattn.kernels import Kernel


class Profile(Protocol):
    """A way from queries and keys, (n_batches, n, n_features) each, to weights."""

    @property
    def is_softmax(self) -> bool:
        """Whether weights are the softmax of the products of queries and keys."""
        ...

    def weights(self, queries: Tensor, keys: Tensor, seen: Tensor | None) -> tuple[Tensor, Tensor]:
        """Normalised weights and slopes, (n_batches, n_queries, n_keys); each row sees some key."""
        ...

    def gradients(self, change: Tensor, queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Derivatives in queries and keys, given those in the scores."""
        ...


@dataclass(frozen=True)
class Softmax:
    """exp of the product of a query and a key; the Gaussian kernel, after `fold`."""

    is_softmax = True

    def weights(self, queries: Tensor, keys: Tensor, seen: Tensor | None) -> tuple[Tensor, Tensor]:
        """Softmax of the products, whose slopes are the weights."""
        weights = torch.softmax(_hide(queries @ keys.mT, seen, -torch.inf), dim=-1)
        return weights, weights

    def gradients(self, change: Tensor, queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Derivatives of the products."""
        return change @ keys, change.mT @ queries


@dataclass(frozen=True)
class Radial:
    """A kernel of the distance.

    Where no key is in the support of a compact kernel, the nearest share the weight, and gradients
    are zero.
    """

    kernel: Kernel
    is_softmax = False

    def weights(self, queries: Tensor, keys: Tensor, seen: Tensor | None) -> tuple[Tensor, Tensor]:
        """Kernel weights, and slopes in the squared distance."""
        if self.kernel.smooth_at_zero:
            squared = tensor_from_nearest(queries, keys, seen)
        else:
            squared = _hide(tensor_differences(queries, keys), seen, torch.inf)
        is_compact = math.isfinite(self.kernel.support)
        rounding = tensor_rounding(queries, keys) if is_compact else 0.0
        return normalized_weights(self.kernel, squared, rounding=rounding)

    def gradients(self, change: Tensor, queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Derivatives of the squared distances."""
        by_query = queries * change.sum(dim=-1, keepdim=True) - change @ keys
        by_key = keys * change.sum(dim=-2)[..., None] - change.mT @ queries
        return 2.0 * by_query, 2.0 * by_key


def softmax_weights(queries: Tensor, keys: Tensor, allowed: Tensor | None) -> Tensor:
    """Softmax of the products over the allowed keys, differentiable as often as one likes."""
    return masked_softmax(queries @ keys.mT, allowed)


def masked_softmax(scores: Tensor, allowed: Tensor | None) -> Tensor:
    """Softmax over the allowed keys; zero for a query without any, and no gradient."""
    seen, blind = open_rows(allowed)
    return silence(torch.softmax(_hide(scores, seen, -torch.inf), dim=-1), blind)


def open_rows(allowed: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """Open the fully masked rows of a mask, and say which they are: to be silenced after."""
    if allowed is None:
        return None, None
    blind = ~allowed.any(dim=-1, keepdim=True)
    return allowed | blind, blind


def silence(rows: Tensor, blind: Tensor | None) -> Tensor:
    """Zero in fully masked rows, and no gradient."""
    return rows if blind is None else rows.masked_fill(blind, 0.0)


def _hide(scores: Tensor, seen: Tensor | None, by: float) -> Tensor:
    return scores if seen is None else torch.where(seen, scores, by)
