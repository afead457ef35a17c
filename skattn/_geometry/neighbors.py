"""Distances to the k-th nearest key, for bandwidths that follow the density of the data."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from skattn._geometry.distances import distances
from skattn._geometry.training_set import Exclusion

__all__ = ["neighbor_distances"]

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

# Neighbours of a block of queries that are looked at together.
_ENTRIES = 1_000_000
# Beyond this many coordinates, or this share of the keys, a tree visits them all, and slowly.
_MOST_COORDINATES, _LARGE_SHARE = 12, 0.05
# Weights are summed with rounding.
_ROUNDING = 1e-9


def neighbor_distances(
    queries: Array,
    keys: Array,
    weights: Array,
    n_neighbors: NDArray[np.intp],
    excluded: Exclusion | None,
) -> Array:
    """Distance from each query to its k-th nearest key, for some k.

    Parameters
    ----------
    queries, keys : ndarray of shape (n_queries or n_keys, n_features)
        Coordinates.
    weights : ndarray of shape (n_keys,)
        Number of rows that each key counts as.
    n_neighbors : ndarray of shape (n_numbers,) of int
        The numbers k, ascending and positive.
    excluded : Exclusion or None
        Keys that do not count for a query.

    Returns
    -------
    ndarray of shape (n_queries, n_numbers)
        Positive: where the k-th nearest key is at distance zero, the distance to the nearest one
        that is not. Where there are fewer than k keys, the distance to the farthest; 1 where all
        are at distance zero.

    Notes
    -----
    Up to a dozen features and for small k by a k-d tree, in O((n_queries + n_keys) log n_keys * k)
    time; otherwise by sorting all distances.
    """
    search = _Neighbors(keys)
    radii = np.empty((len(queries), len(n_neighbors)))
    waiting = np.arange(len(queries))
    count = min(int(n_neighbors[-1]) + 1, len(keys))
    while waiting.size:
        is_complete = count == len(keys)
        unfinished = []
        step = max(1, _ENTRIES // (count if search.has_tree_for(count) else len(keys)))
        for start in range(0, len(waiting), step):
            chosen = waiting[start : start + step]
            block = None if excluded is None else excluded.take(chosen)
            away, neighbors = search.nearest(queries[chosen], count)
            found = _radii(away, _present(weights, neighbors, block), n_neighbors, is_complete)
            radii[chosen] = found
            unfinished.append(chosen[np.isnan(found).any(axis=1)])
        waiting = np.concatenate(unfinished)
        count = min(4 * count, len(keys))
    return radii


class _Neighbors:
    """The nearest keys of queries, nearest first."""

    def __init__(self, keys: Array) -> None:
        self.keys = keys
        self.tree = cKDTree(keys) if keys.shape[1] <= _MOST_COORDINATES else None

    def has_tree_for(self, count: int) -> bool:
        """Whether a tree finds so many faster than all distances do."""
        return self.tree is not None and count <= max(16, _LARGE_SHARE * len(self.keys))

    def nearest(self, queries: Array, count: int) -> tuple[Array, Indices]:
        """Distances and positions, of shape (n_queries, count)."""
        if self.tree is not None and self.has_tree_for(count):
            return self.tree.query(queries, np.arange(1, count + 1))
        away = distances(queries, self.keys)
        if count < len(self.keys):
            neighbors = np.argpartition(away, count - 1, axis=1)[:, :count]
            away = np.take_along_axis(away, neighbors, axis=1)
            order = np.argsort(away, axis=1)
            neighbors = np.take_along_axis(neighbors, order, axis=1)
        else:
            neighbors = order = np.argsort(away, axis=1)
        return np.take_along_axis(away, order, axis=1), neighbors


def _present(weights: Array, neighbors: Indices, excluded: Exclusion | None) -> Array:
    """Weight with which each neighbour counts."""
    present = weights[neighbors]
    if excluded is not None:
        is_excluded = (excluded.start[:, None] <= neighbors) & (neighbors < excluded.stop[:, None])
        present = np.where(is_excluded, present * excluded.retained[:, None], present)
    return present


def _radii(away: Array, present: Array, numbers: NDArray[np.intp], is_complete: bool) -> Array:
    """Radii of queries whose nearest keys are given; NaN where they are too few to tell."""
    totals = present.cumsum(axis=1)
    positive = (away > 0.0) & (present > 0.0)
    radii = np.empty((len(away), len(numbers)))
    for column, number in enumerate(numbers):
        enough = positive & (totals >= number * (1.0 - _ROUNDING))
        first = enough.argmax(axis=1)
        radii[:, column] = np.where(enough.any(axis=1), away[np.arange(len(first)), first], np.nan)
    if is_complete:
        farthest = np.where(positive, away, 0.0).max(axis=1, keepdims=True)
        farthest = np.where(farthest > 0.0, farthest, 1.0)
        radii = np.where(np.isnan(radii), farthest, radii)
    return radii
