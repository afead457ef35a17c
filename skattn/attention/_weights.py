"""Reading the attention weights themselves: all of them, or the largest of each query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from skattn.attention._blocks import WeightBlocks
from skattn.attention._far import FarWeights, far_weights
from skattn.attention._request import Request, Resources
from skattn.attention._threads import run_blocks

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

# Weights below are what underflow was clamped to, not weights.
_NEGLIGIBLE = 1e-295


def dense_weights(request: Request, resources: Resources) -> tuple[Array, NDArray[np.bool_]]:
    """Attention weights of all keys, and which queries are outside every support.

    Memory O(n_queries * n_keys), the result.
    """
    weights = np.zeros((len(request.queries), len(request.keys)))

    def run(row_blocks: Sequence[slice]) -> None:
        for rows in row_blocks:
            weights[rows] = reader.block(rows)

    reader = _Reader(request)
    run_blocks(run, _row_blocks(request, resources), resources.workers(request.n_pairs))
    outside = np.zeros(len(weights), dtype=bool)
    hard = np.flatnonzero(~reader.resolved)

    def receive(far: FarWeights) -> None:
        rows = hard[far.rows]
        weights[rows] = 0.0
        weights[rows[far.queries], far.keys] = far.weights
        outside[rows] = np.isneginf(far.log_shift)

    far_weights(request.take(hard), resources, receive)
    weights /= weights.sum(axis=1, keepdims=True)
    return weights, outside


def top_weights(
    request: Request, top_k: int, resources: Resources
) -> tuple[csr_array, NDArray[np.bool_]]:
    """The `top_k` largest attention weights of each query, and which are outside every support.

    Rows hold at most `top_k` positive entries, largest first, equal ones in the order of the
    keys; they are not renormalised. Memory O(n_queries * top_k) besides the blocks.
    """
    reader = _Reader(request)
    top = _Top(len(request.queries), top_k)

    def run(row_blocks: Sequence[slice]) -> None:
        for rows in row_blocks:
            weights = reader.block(rows)
            totals = np.where(reader.resolved[rows], weights.sum(axis=1), 1.0)
            positions = np.arange(rows.start, rows.stop)
            top.write(positions, *_large_entries(weights, top_k), totals)

    run_blocks(run, _row_blocks(request, resources), resources.workers(request.n_pairs))
    outside = np.zeros(len(request.queries), dtype=bool)
    hard = np.flatnonzero(~reader.resolved)
    top.weights[hard] = 0.0

    def receive(far: FarWeights) -> None:
        totals = np.add.reduceat(far.weights, far.starts)
        top.write(hard[far.rows], far.queries, far.keys, far.weights, totals)
        outside[hard[far.rows]] = np.isneginf(far.log_shift)

    far_weights(request.take(hard), resources, receive)
    return top.array(len(request.keys)), outside


class _Top:
    """The largest weights of each query, and their keys."""

    def __init__(self, n_queries: int, top_k: int) -> None:
        self.weights = np.zeros((n_queries, top_k))
        self.keys = np.zeros((n_queries, top_k), dtype=np.intp)

    def write(
        self, positions: Indices, queries: Indices, keys: Indices, weights: Array, totals: Array
    ) -> None:
        """Keep the largest of the entries (query, key, weight) of a block of queries."""
        order = np.lexsort((keys, -weights, queries))
        queries, keys, weights = queries[order], keys[order], weights[order]
        rank = np.arange(len(queries)) - np.searchsorted(queries, queries)
        kept = rank < self.weights.shape[1]
        place = (positions[queries[kept]], rank[kept])
        self.weights[place] = weights[kept] / totals[queries[kept]]
        self.keys[place] = keys[kept]

    def array(self, n_keys: int) -> csr_array:
        """The positive weights as a sparse array, largest first."""
        stored = self.weights > 0.0
        pointers = np.concatenate([[0], np.cumsum(stored.sum(axis=1))])
        entries = (self.weights[stored], self.keys[stored], pointers)
        return csr_array(entries, shape=(len(stored), n_keys))


class _Reader:
    """Unnormalised weights of full rows, in double precision, and which rows they resolve."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.blocks = WeightBlocks(request, Resources())
        self.resolved = np.zeros(len(request.queries), dtype=bool)
        self.least = request.kernel.trusted_normalizer(np.dtype(np.float64))

    def block(self, rows: slice) -> Array:
        n_rows, n_keys = rows.stop - rows.start, len(self.request.keys)
        buffer = np.empty(n_rows * n_keys * 8, dtype=np.uint8)
        weights, _ = self.blocks.weights(rows, slice(0, n_keys), buffer)
        weights[weights < _NEGLIGIBLE] = 0.0
        weights *= self.blocks.factor
        self.resolved[rows] = weights.sum(axis=1) >= self.least
        return weights


def _row_blocks(request: Request, resources: Resources) -> list[slice]:
    double = replace(resources, dtype=np.dtype(np.float64))
    return double.row_blocks(len(request.queries), len(request.keys), least=1)


def _large_entries(weights: Array, top_k: int) -> tuple[Indices, Indices, Array]:
    """Entries of each row that may be among its `top_k` largest, all of those that are.

    Of equal weights at the end of the list, the first ones.
    """
    n_keys = weights.shape[1]
    n_groups = min(n_keys, max(64, 4 * top_k))
    starts = np.arange(n_groups) * n_keys // n_groups
    # the top_k-th largest of the maxima of groups bounds the top_k-th largest weight from below
    maxima = np.maximum.reduceat(weights, starts, axis=1)
    bound = np.partition(maxima, n_groups - top_k, axis=1)[:, n_groups - top_k]
    large = (weights >= bound[:, None]) & (weights > 0.0)
    crowded = np.flatnonzero(large.sum(axis=1) > 4 * n_groups)
    for row in crowded:
        least = np.partition(weights[row], n_keys - top_k)[n_keys - top_k]
        large[row] = weights[row] > least
        ties = np.flatnonzero((weights[row] == least) & (least > 0.0))
        large[row, ties[: top_k - np.count_nonzero(large[row])]] = True
    queries, keys = np.nonzero(large)
    return queries, keys, weights[queries, keys]
