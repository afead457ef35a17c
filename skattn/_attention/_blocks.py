"""Weight blocks: attention weights themselves, for what truly needs each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from skattn._attention._attention import Attention
from skattn._attention._kernel_blocks import KernelBlocks, ThreadMemory
from skattn._attention._log_domain import log_domain_weights, rows_at_a_time, scaled_weights
from skattn._attention._resources import Resources, run_blocks, slices
from skattn._geometry.training_set import Exclusion

__all__ = [
    "BlockReader",
    "TopWeights",
    "WeightBlock",
    "WeightReader",
    "queries_of_a_block",
    "read_blocks",
    "squared_weights",
]

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

_DOUBLE = np.dtype(np.float64)
# Weights below are what underflow was clamped to, not weights.
_NEGLIGIBLE = 1e-295
# Queries of a block: enough for matrix products with its weights to be efficient. For local lines
# more, where so many bytes hold them, to share among them what is prepared of the keys.
_QUERIES, _MOST_QUERIES, _BYTES = 64, 192, 1 << 23


@dataclass(frozen=True)
class WeightBlock:
    """Attention weights of a block of queries over all keys.

    Attributes
    ----------
    queries : slice
        The queries of the block.
    weights : ndarray of shape (n_rows, n_keys)
        Rows sum to 1. Valid, and free to be overwritten, until the same thread reads another block.
    own : ndarray of shape (n_rows,)
        Weight of the excluded keys, as far as it is retained.
    outside : ndarray of shape (n_rows,) of bool
        Queries without a key in the support.
    log_total : ndarray of shape (n_rows,)
        Logarithm of the sum of the weights before they were normalised.
    nearest : ndarray of shape (n_rows,)
        Squared distance of the nearest key where `outside`, inf elsewhere.
    """

    queries: slice
    weights: Array
    own: Array
    outside: NDArray[np.bool_]
    log_total: Array
    nearest: Array


class BlockReader:
    """Attention weights of blocks of queries, full rows at a time.

    Parameters
    ----------
    attention : Attention
        Any; bandwidths may vary.
    resources : Resources
        With ``algorithm="exact"`` all weights are computed in the log domain.
    n_queries : int, default=64
        Queries of a block.
    """

    def __init__(
        self, attention: Attention, resources: Resources, n_queries: int = _QUERIES
    ) -> None:
        self.attention = attention
        self.resources = replace(resources, dtype=_DOUBLE)
        in_log_domain = attention.has_scales or resources.algorithm == "exact"
        # full rows are wanted to the last digit: not at the tolerance of criteria
        precise = Resources(block_bytes=resources.block_bytes)
        self.fixed = None if in_log_domain else KernelBlocks(attention, precise)
        self.memory = ThreadMemory()
        self.least = attention.kernel.trusted_normalizer(_DOUBLE)
        shape = len(attention.queries), len(attention.keys)
        self.blocks = self.resources.query_blocks(*shape, least=n_queries)

    def read(self, queries: slice) -> WeightBlock:
        """Weights of some queries."""
        weights, log_shift, outside, nearest = self._unnormalized(queries)
        total = weights.sum(axis=1)
        weights /= total[:, None]
        own = self._own(queries, weights)
        return WeightBlock(queries, weights, own, outside, log_shift + np.log(total), nearest)

    def _unnormalized(self, queries: slice) -> tuple[Array, Array, NDArray[np.bool_], Array]:
        """Weights, their log-shift, and which queries are outside, how far from the nearest key."""
        if self.fixed is None:
            return self._in_log_domain(np.arange(queries.start, queries.stop))
        n_rows, n_keys = queries.stop - queries.start, len(self.attention.keys)
        buffer = self.memory.of_size(n_rows * n_keys * 8)
        weights, log_shift = self.fixed.weights(queries, slice(0, n_keys), buffer)
        if weights.min() < _NEGLIGIBLE:
            weights[weights < _NEGLIGIBLE] = 0.0
        if (self.fixed.factor != 1.0).any():
            weights *= self.fixed.factor
        outside, nearest = np.zeros(n_rows, dtype=bool), np.full(n_rows, np.inf)
        hard = np.flatnonzero(weights.sum(axis=1) < self.least)
        if hard.size:
            found = self._in_log_domain(queries.start + hard)
            weights[hard], log_shift[hard], outside[hard], nearest[hard] = found
        return weights, log_shift, outside, nearest

    def _in_log_domain(self, queries: Indices) -> tuple[Array, Array, NDArray[np.bool_], Array]:
        if self.attention.has_scales:
            return scaled_weights(self.attention.take(queries))
        weights = np.empty((len(queries), len(self.attention.keys)))
        log_shift, nearest = np.empty((2, len(queries)))
        outside = np.empty(len(queries), dtype=bool)
        step = rows_at_a_time(self.attention, self.resources)
        for some in slices(len(queries), step):
            found = log_domain_weights(self.attention.take(queries[some]))
            weights[some], log_shift[some] = found.dense(weights.shape[1]), found.log_shift
            outside[some] = found.outside
            nearest[some] = np.where(found.outside, found.nearest, np.inf)
        return weights, log_shift, outside, nearest

    def _own(self, queries: slice, weights: Array) -> Array:
        if self.attention.excluded is None:
            return np.zeros(len(weights))
        rows, keys = self.attention.excluded.take(queries).entries(0, weights.shape[1])
        return np.bincount(rows, weights[rows, keys], len(weights)).astype(np.float64)


def queries_of_a_block(attention: Attention) -> int:
    """Queries of a block of weights from which local lines are fitted."""
    if attention.has_scales:
        return _QUERIES
    return int(np.clip(_BYTES // (8 * len(attention.keys)), _QUERIES, _MOST_QUERIES))


def squared_weights(weights: Array, excluded: Exclusion | None) -> Array:
    """Squares of a block of weights, in place; of keys in part retained, over what is retained."""
    np.multiply(weights, weights, out=weights)
    if excluded is not None:
        rows, keys = excluded.entries(0, weights.shape[1])
        retained = excluded.retained[rows]
        weights[rows, keys] /= np.where(retained > 0.0, retained, 1.0)
    return weights


class WeightReader(Protocol):
    """A source of weight blocks."""

    @property
    def blocks(self) -> Sequence[slice]:
        """Blocks of queries."""
        ...

    def read(self, queries: slice) -> WeightBlock:
        """Weights of a block of queries."""
        ...


def read_blocks(
    reader: WeightReader, resources: Resources, receive: Callable[[WeightBlock], None]
) -> None:
    """Compute the attention weights of all queries and hand them over, block by block.

    `receive` is called from several threads, once for each block.

    Time O(n_queries * n_keys * n_features); memory O(n_keys) for 64 queries a thread.
    """

    def run(blocks: Sequence[slice]) -> None:
        for queries in blocks:
            receive(reader.read(queries))

    run_blocks(run, reader.blocks, resources.n_threads)


class TopWeights:
    """The weights of largest absolute value of each query, and their keys.

    Parameters
    ----------
    n_queries, top_k : int
        How many weights to keep of each query.
    """

    def __init__(self, n_queries: int, top_k: int) -> None:
        self.weights = np.zeros((n_queries, top_k))
        self.keys = np.zeros((n_queries, top_k), dtype=np.intp)

    def write(self, block: slice, weights: Array) -> None:
        """Keep the largest of the weights (n_rows, n_keys) of a block of queries."""
        top_k = self.weights.shape[1]
        sizes = np.abs(weights)
        queries, keys = _large_entries(sizes, top_k)
        order = np.lexsort((keys, -sizes[queries, keys], queries))
        queries, keys = queries[order], keys[order]
        rank = np.arange(len(queries)) - np.searchsorted(queries, queries)
        queries, keys, rank = (entries[rank < top_k] for entries in (queries, keys, rank))
        self.weights[block.start + queries, rank] = weights[queries, keys]
        self.keys[block.start + queries, rank] = keys

    def array(self, n_keys: int) -> csr_array:
        """Weights that are not zero as a sparse array, largest first, ties in order of the keys."""
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
