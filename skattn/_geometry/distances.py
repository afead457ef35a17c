"""Squared distances |q - k|^2 of coordinates, for NumPy blocks and for tensors.

Three ways lead there: differences, which lose nothing; the expansion |q|^2 + |k|^2 - 2 q.k, one
matrix product, for coordinates close enough to their origin that its cancellation stays below a
tolerance; and distances relative to the nearest key,

    |q - k_i|^2 - |q - k_r|^2 = (k_r - k_i) . ((q - k_i) + (q - k_r)),

which lose nothing however far the query is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "Expansion",
    "candidates_near",
    "differences",
    "distances",
    "excess_over_nearest",
    "rounding_of_excess",
    "squared_distances",
    "tensor_differences",
    "tensor_expansion",
    "tensor_from_nearest",
    "tensor_rounding",
    "weighted_squares",
]

Array = NDArray[Any]  # of float32 or float64
Indices = NDArray[np.intp]
ArrayOrTensor = TypeVar("ArrayOrTensor", Array, Any)

_EPS = {np.dtype(kind): float(np.finfo(kind).eps) for kind in (np.float32, np.float64)}
_DOUBLE = np.dtype(np.float64)
# Below this number of queries, preparing the keys for matrix products costs more than it saves.
_FEW_QUERIES = 32


def squared_distances(queries: Array, keys: Array, out: Array | None = None) -> Array:
    """Squared distances (n_queries, n_keys) from differences, in float64."""
    if keys.shape[1] == 1:
        out = np.subtract(queries, keys.T, out=out)
        return np.multiply(out, out, out=out)
    return (
        cdist(queries, keys, "sqeuclidean")
        if out is None
        else cdist(queries, keys, "sqeuclidean", out=out)
    )


def distances(queries: Array, keys: Array) -> Array:
    """Distances (n_queries, n_keys) of coordinates whose squares do not overflow."""
    return cdist(queries, keys)


def differences(queries: Array, keys: Array) -> Array:
    """Keys less queries, feature by feature, (n_features, n_queries, n_keys)."""
    return keys.T[:, None, :] - queries.T[:, :, None]


def weighted_squares(
    weights: ArrayOrTensor, queries: ArrayOrTensor, keys: ArrayOrTensor
) -> ArrayOrTensor:
    """Sums over keys of weights times (q_j - k_ij)**2, (n_queries, n_features).

    Parameters
    ----------
    weights : ndarray or Tensor of shape (n_queries, n_keys)
        Any numbers.
    queries, keys : ndarray or Tensor of shape (n_queries or n_keys, n_features)
        Coordinates.
    """
    total = weights.sum(1)[:, None]
    return queries**2 * total - 2.0 * queries * (weights @ keys) + weights @ keys**2


class Expansion:
    """Squared distances of blocks of queries and keys, by a matrix product where that is accurate.

    Parameters
    ----------
    queries, keys : ndarray of shape (n_queries or n_keys, n_features)
        Coordinates.
    rate : float
        Factor of all distances, at no cost.
    tolerances : mapping of numpy.dtype to float
        Largest error of a squared distance allowed in each precision, cheapest first; empty where
        only differences will do.
    """

    def __init__(
        self, queries: Array, keys: Array, rate: float, tolerances: dict[np.dtype, float]
    ) -> None:
        self.queries, self.keys, self.rate = queries, keys, rate
        usable = tolerances if len(queries) >= _FEW_QUERIES else {}
        self.reach = {kind: np.sqrt(2.0 * each / _EPS[kind]) for kind, each in usable.items()}
        if not self.reach:
            return
        self.query_norms = np.einsum("ij,ij->i", queries, queries)
        key_norms = np.einsum("ij,ij->i", keys, keys)
        self.key_radius = float(np.sqrt(key_norms.max()))
        rows = np.vstack([keys.T, np.ones(len(keys)), key_norms])
        with np.errstate(over="ignore"):  # what overflows in float32 is never routed there
            self.expanded_keys = {kind: rows.astype(kind) for kind in self.reach}

    def dtype(self, rows: slice) -> np.dtype | None:
        """The cheapest type in which distances may be expanded, None for differences."""
        if not self.reach:
            return None
        radius = np.sqrt(self.query_norms[rows].max()) + self.key_radius
        return next((kind for kind, reach in self.reach.items() if radius <= reach), None)

    def scaled(
        self, rows: slice, columns: slice, buffer: NDArray[np.uint8], lift: float = 0.0
    ) -> Array:
        """``rate * |q - k|^2`` of a block, plus `lift` where distances are expanded.

        Parameters
        ----------
        rows, columns : slice
            Queries and keys of the block.
        buffer : ndarray of uint8
            Memory of the result: 8 bytes an entry.
        lift : float, default=0.0
            Added to all entries; only for blocks that have a `dtype`.
        """
        kind = self.dtype(rows)
        shape = (rows.stop - rows.start, columns.stop - columns.start)
        size = shape[0] * shape[1] * (kind or _DOUBLE).itemsize
        out = buffer[:size].view(kind or _DOUBLE).reshape(shape)
        queries = self.queries[rows]
        if kind is None:
            squared_distances(queries, self.keys[columns], out)
            return out if self.rate == 1.0 else np.multiply(out, self.rate, out=out)
        left = np.empty((shape[0], queries.shape[1] + 2), kind)
        np.multiply(queries, -2.0 * self.rate, out=left[:, :-2], casting="same_kind")
        left[:, -2] = self.query_norms[rows] * self.rate + lift
        left[:, -1] = self.rate
        return np.matmul(left, self.expanded_keys[kind][:, columns], out=out)


def candidates_near(
    queries: Array, keys: Array, reach: Callable[[Array], Array], hidden: NDArray[np.bool_]
) -> tuple[Indices, Indices]:
    """Keys within some reach of the nearest: (query, key) pairs by query, one a query at least.

    Parameters
    ----------
    queries, keys : ndarray of shape (n_queries or n_keys, n_features)
        Coordinates, however far apart.
    reach : callable
        Excess over the squared distance of the nearest key (n_queries,) up to which keys count.
    hidden : ndarray of shape (n_queries, n_keys) of bool
        Keys that a query must not see.
    """
    key_norms = np.einsum("ij,ij->i", keys, keys)
    # half of |q - k|^2 - |q|^2: without |q|^2, digits survive at any distance
    half = 0.5 * key_norms - queries @ keys.T
    half[hidden] = np.inf
    best = half.argmin(axis=1)
    norm = np.sqrt(np.einsum("ij,ij->i", queries, queries))
    largest = np.sqrt(key_norms.max())
    slack = 4.0 * _EPS[_DOUBLE] * (keys.shape[1] + 2) * largest * (largest + norm)
    nearest = ((queries - keys[best]) ** 2).sum(axis=1)
    limit = half[np.arange(len(best)), best] + 0.5 * reach(nearest) + 2.0 * slack
    return np.nonzero(half <= limit[:, None])  # type: ignore[return-value]


def excess_over_nearest(
    queries: Array, keys: Array, entries: Indices, candidates: Indices
) -> tuple[Indices, Array]:
    """The nearest candidate of each query, and how much farther the others are, squared.

    Parameters
    ----------
    queries, keys : ndarray of shape (n_queries or n_keys, n_features)
        Coordinates.
    entries, candidates : ndarray of shape (n_pairs,)
        Query and key of each pair, sorted by query.
    """
    starts = np.searchsorted(entries, np.arange(len(queries)))
    nearest = candidates[starts]
    for _ in range(4):  # rounding apart, the first round finds the nearest key
        reference = keys[nearest][entries]
        differences = 2.0 * queries[entries] - keys[candidates] - reference
        excess = np.einsum("ij,ij->i", reference - keys[candidates], differences)
        least = np.minimum.reduceat(excess, starts)
        if (least >= 0.0).all():
            break
        first = np.flatnonzero(excess == least[entries])
        nearest = candidates[first[np.searchsorted(entries[first], np.arange(len(queries)))]]
    return nearest, np.maximum(excess, 0.0)


def rounding_of_excess(
    queries: Array, keys: Array, entries: Indices, candidates: Indices, nearest: Indices
) -> Array:
    """Bound on the rounding error of the excess: keys closer to a tie than this share it."""
    reference = keys[nearest][entries]
    size = np.abs(queries[entries]) + np.abs(keys[candidates]) + np.abs(reference)
    return 8.0 * _EPS[_DOUBLE] * (np.abs(reference - keys[candidates]) * size).sum(axis=1)


def tensor_expansion(queries: Tensor, keys: Tensor) -> Tensor:
    """Squared distances of tensors (..., n, n_features) near the origin, by one matrix product."""
    import torch

    # |q|^2 + |k|^2 - 2 q.k, the squares as two more columns
    ones = torch.ones_like(queries[..., :1])
    left = torch.cat([-2.0 * queries, queries.square().sum(-1, keepdim=True), ones], dim=-1)
    ones = torch.ones_like(keys[..., :1])
    right = torch.cat([keys, ones, keys.square().sum(-1, keepdim=True)], dim=-1)
    return (left @ right.mT).clamp_(min=0.0)


def tensor_differences(queries: Tensor, keys: Tensor) -> Tensor:
    """Squared distances of tensors from differences, accurate also near zero."""
    import torch

    mode = "donot_use_mm_for_euclid_dist"
    return torch.cdist(queries, keys, compute_mode=mode).square_()


def tensor_from_nearest(queries: Tensor, keys: Tensor, seen: Tensor | None) -> Tensor:
    """Squared distances of tensors by one product, that of the nearest key from differences.

    Their error is a rounding error of the distance itself, not of the distance to the origin.

    Parameters
    ----------
    queries, keys : Tensor of shape (n_batches, n_queries or n_keys, n_features)
        Coordinates.
    seen : Tensor of bool, broadcasting to (n_batches, n_queries, n_keys), or None
        Keys that each query sees, at least one; the others are at distance inf.
    """
    import torch

    # half of |q - k|^2 - |q|^2: without |q|^2, digits survive at any distance
    lengths = keys.square().sum(dim=-1)
    half = torch.baddbmm(0.5 * lengths[:, None, :], queries, keys.mT, alpha=-1.0)
    if seen is not None:
        half = torch.where(seen, half, torch.inf)
    least, index = half.min(dim=-1, keepdim=True)
    nearest = torch.gather(keys, 1, index.expand(-1, -1, keys.shape[-1]))
    nearest = (queries - nearest).square().sum(dim=-1, keepdim=True)
    return half.sub_(least).mul_(2.0).add_(nearest)


def tensor_rounding(queries: Tensor, keys: Tensor) -> Tensor:
    """Bound on the rounding error of `tensor_from_nearest`, (..., n_queries, 1)."""
    import torch

    largest = torch.linalg.vector_norm(keys, dim=-1).amax(dim=-1)[..., None, None]
    far = largest + torch.linalg.vector_norm(queries, dim=-1, keepdim=True)
    return 4.0 * (queries.shape[-1] + 2) * torch.finfo(keys.dtype).eps * largest * far
