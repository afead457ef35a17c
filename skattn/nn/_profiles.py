"""From queries and keys to attention weights, and back to gradients, block by block.

Weights of a row are K_ij / sum_k K_ik with K a function of a score of the pair. If slope_ij is the
derivative of K_ij in the score over the same sum, and G_ij the derivative of a loss in the weight,
that in the score is slope_ij (G_ij - sum_k w_ik G_ik): K' over the sum, never w times (log K)',
which is 0 times infinity on the edge of a compact kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from skattn._attention._torch import kernel_weights

# What cannot be told apart from a distance of zero in |q|**2 + |k|**2 - 2 q.k has another slope
# there: these kernels take differences.
_NOT_SMOOTH = ("laplace", "triangular")


class Profile(Protocol):
    """What makes weights of queries and keys, (n_batches, n, n_features) each."""

    @property
    def is_softmax(self) -> bool:
        """Whether weights are the softmax of the products of queries and keys."""
        ...

    def weights(self, queries: Tensor, keys: Tensor, seen: Tensor | None) -> tuple[Tensor, Tensor]:
        """Normalised weights and slopes, (n_batches, n_queries, n_keys); each row sees some key."""
        ...

    def pull(self, change: Tensor, queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Derivatives in queries and keys, from those in the scores."""
        ...


@dataclass(frozen=True)
class Softmax:
    """exp of the product of a query and a key; the Gaussian kernel, after `fold`."""

    is_softmax = True

    def weights(self, queries: Tensor, keys: Tensor, seen: Tensor | None) -> tuple[Tensor, Tensor]:
        """Softmax of the products; slopes are the weights."""
        weights = torch.softmax(_hide(queries @ keys.mT, seen, -torch.inf), dim=-1)
        return weights, weights

    def pull(self, change: Tensor, queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Of the products."""
        return change @ keys, change.mT @ queries


@dataclass(frozen=True)
class Radial:
    """A kernel of the distance, other than the Gaussian.

    Where no key is in the support of a compact kernel, the nearest share the weight, and gradients
    are zero.
    """

    kernel: str
    is_softmax = False

    def weights(self, queries: Tensor, keys: Tensor, seen: Tensor | None) -> tuple[Tensor, Tensor]:
        """Kernel weights; slopes are in the squared distance."""
        squared = self._squared(queries, keys, seen)
        nearest = squared.amin(dim=-1, keepdim=True)
        if self.kernel == "student":  # its weights relative to the nearest key's: no underflow
            scale = 7.0 / (7.0 + nearest)
            weights, slopes = self._profile((squared - nearest).mul_(scale))
            total = weights.sum(dim=-1, keepdim=True)
            return weights.div_(total), slopes.mul_(scale / total)
        weights, slopes = self._profile(squared)
        total = weights.sum(dim=-1, keepdim=True)
        if self.kernel == "laplace":
            return weights.div_(total), slopes.div_(total)
        outside = total == 0.0
        ties = (squared - nearest <= _rounding(queries, keys)) & outside
        weights = torch.where(outside, ties.to(weights.dtype), weights)
        slopes = torch.where(outside, 0.0, slopes / total)
        return weights / weights.sum(dim=-1, keepdim=True), slopes

    def _profile(self, squared: Tensor) -> tuple[Tensor, Tensor]:
        weights, slopes = kernel_weights(self.kernel, squared.flatten(0, 1))
        return weights.reshape(squared.shape), slopes.reshape(squared.shape)

    def _squared(self, queries: Tensor, keys: Tensor, seen: Tensor | None) -> Tensor:
        """Squared distances, inf where not seen."""
        if self.kernel in _NOT_SMOOTH:
            mode = "donot_use_mm_for_euclid_dist"
            squared = torch.cdist(queries, keys, compute_mode=mode).square_()
            return _hide(squared, seen, torch.inf)
        # half of |q - k|**2 - |q|**2: without |q|**2, digits survive at any distance
        lengths = keys.square().sum(dim=-1)
        half = torch.baddbmm(0.5 * lengths[:, None, :], queries, keys.mT, alpha=-1.0)
        half = _hide(half, seen, torch.inf)
        least, index = half.min(dim=-1, keepdim=True)
        nearest = torch.gather(keys, 1, index.expand(-1, -1, keys.shape[-1]))
        nearest = (queries - nearest).square().sum(dim=-1, keepdim=True)
        return half.sub_(least).mul_(2.0).add_(nearest)

    def pull(self, change: Tensor, queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Of the squared distances."""
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
    """The mask with its fully masked rows opened, and which those are: to be silenced after."""
    if allowed is None:
        return None, None
    blind = ~allowed.any(dim=-1, keepdim=True)
    return allowed | blind, blind


def silence(rows: Tensor, blind: Tensor | None) -> Tensor:
    """Zero in fully masked rows, and no gradient."""
    return rows if blind is None else rows.masked_fill(blind, 0.0)


def _hide(scores: Tensor, seen: Tensor | None, by: float) -> Tensor:
    return scores if seen is None else torch.where(seen, scores, by)


def _rounding(queries: Tensor, keys: Tensor) -> Tensor:
    """How far a squared distance may be off, (n_batches, n_queries, 1): nearer is a tie."""
    reach = torch.linalg.vector_norm(keys, dim=-1).amax(dim=-1)[:, None, None]
    far = reach + torch.linalg.vector_norm(queries, dim=-1, keepdim=True)
    return 4.0 * (queries.shape[-1] + 2) * torch.finfo(keys.dtype).eps * reach * far
