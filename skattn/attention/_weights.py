"""Matrices of weights, all of them or the largest of each query."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from skattn.attention._request import Request, Resources
from skattn.attention._rows import Rows, read_rows

Array = NDArray[np.float64]
Indices = NDArray[np.intp]


def collect_weights(
    request: Request, resources: Resources, top_k: int | None, weigh: Callable[[Rows], Array]
) -> tuple[Array | csr_array, NDArray[np.bool_]]:
    """The weights of all queries that `weigh` makes of the attention weights of each block.

    Parameters
    ----------
    request : Request
    resources : Resources
    top_k : int or None
        How many weights of largest absolute value to keep of each query; None keeps all.
    weigh : callable
        Returns an array of shape (n_rows, n_keys).

    Returns
    -------
    weights : ndarray or csr_array of shape (n_queries, n_keys)
        With `top_k`, a sparse array of at most as many entries a row, largest first, equal ones
        in the order of the keys.
    outside : ndarray of shape (n_queries,) of bool
        Queries without a key in the support.
    """
    n_queries, n_keys = len(request.queries), len(request.keys)
    outside = np.zeros(n_queries, dtype=bool)
    dense = np.empty((n_queries, n_keys if top_k is None else 0))
    top = _TopWeights(n_queries, top_k or 0)

    def receive(block: Rows) -> None:
        outside[block.queries] = block.outside
        if top_k is None:
            dense[block.queries] = weigh(block)
        else:
            top.write(block.queries, weigh(block))

    read_rows(request, resources, receive)
    return (dense if top_k is None else top.array(n_keys)), outside


class _TopWeights:
    """The weights of largest absolute value of each query, and their keys."""

    def __init__(self, n_queries: int, top_k: int) -> None:
        self.weights = np.zeros((n_queries, top_k))
        self.keys = np.zeros((n_queries, top_k), dtype=np.intp)

    def write(self, rows: slice, weights: Array) -> None:
        """Keep the largest of the weights (n_rows, n_keys) of a block of queries."""
        top_k = self.weights.shape[1]
        sizes = np.abs(weights)
        queries, keys = _large_entries(sizes, top_k)
        order = np.lexsort((keys, -sizes[queries, keys], queries))
        queries, keys = queries[order], keys[order]
        rank = np.arange(len(queries)) - np.searchsorted(queries, queries)
        queries, keys, rank = (entries[rank < top_k] for entries in (queries, keys, rank))
        self.weights[rows.start + queries, rank] = weights[queries, keys]
        self.keys[rows.start + queries, rank] = keys

    def array(self, n_keys: int) -> csr_array:
        """The weights that are not zero as a sparse array, largest first."""
        stored = self.weights != 0.0
        pointers = np.concatenate([[0], np.cumsum(stored.sum(axis=1))])
        entries = (self.weights[stored], self.keys[stored], pointers)
        return csr_array(entries, shape=(len(stored), n_keys))


def _large_entries(sizes: Array, top_k: int) -> tuple[Indices, Indices]:
    """Entries of each row that may be among its `top_k` largest, all of those that are.

    Of equal ones at the end of the list, the first ones.
    """
    n_keys = sizes.shape[1]
    n_groups = min(n_keys, max(64, 4 * top_k))
    starts = np.arange(n_groups) * n_keys // n_groups
    # the top_k-th largest of the maxima of groups bounds the top_k-th largest entry from below
    maxima = np.maximum.reduceat(sizes, starts, axis=1)
    bound = np.partition(maxima, n_groups - top_k, axis=1)[:, n_groups - top_k]
    large = (sizes >= bound[:, None]) & (sizes > 0.0)
    crowded = np.flatnonzero(large.sum(axis=1) > 4 * n_groups)
    for row in crowded:
        least = np.partition(sizes[row], n_keys - top_k)[n_keys - top_k]
        large[row] = sizes[row] > least
        ties = np.flatnonzero((sizes[row] == least) & (least > 0.0))
        large[row, ties[: top_k - np.count_nonzero(large[row])]] = True
    queries, keys = np.nonzero(large)
    return queries, keys
