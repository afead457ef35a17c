"""What is asked of an engine, and what it may use."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from skattn.geometry import Own
from skattn.kernels import Kernel

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Request:
    """Sums over keys, in coordinates.

    Attributes
    ----------
    queries : ndarray of shape (n_queries, n_features)
    keys : ndarray of shape (n_keys, n_features)
    values : ndarray of shape (n_keys, n_outputs)
        Of order one.
    kernel : Kernel
    log_weights : ndarray of shape (n_keys,)
        Logarithms of the sample weights, at most 0.
    own : Own or None
        What each query leaves out; at least one key must stay.
    squares : bool
        Whether sums of squared weights are wanted.
    """

    queries: Array
    keys: Array
    values: Array
    kernel: Kernel
    log_weights: Array
    own: Own | None = None
    squares: bool = False

    def take(self, queries: NDArray[np.intp]) -> Request:
        """The same request for some of the queries."""
        own = self.own.take(queries) if self.own is not None else None
        return replace(self, queries=self.queries[queries], own=own)


@dataclass(frozen=True)
class Resources:
    """How much of the machine a computation may use.

    Attributes
    ----------
    n_threads : int
        Threads over blocks of queries.
    block_bytes : int
        Size of the block of weights each thread holds; about the cache of a core is fastest.
    dtype : numpy.dtype
        float32 allows single precision where its error is bounded by 5e-5 of a weight.
    """

    n_threads: int = 1
    block_bytes: int = 2 << 20
    dtype: np.dtype = np.dtype(np.float64)

    def row_blocks(self, n_queries: int, n_keys: int, least: int = 256) -> list[slice]:
        """Blocks of queries, as large as is efficient, and some for each of a few threads.

        They do not depend on the number of threads, so neither does the rounding of results.
        """
        rows = max(least, self.block_bytes // (n_keys * self.dtype.itemsize))
        rows = min(rows, max(1, least // 8, -(-n_queries // 8)))
        return list(_slices(n_queries, rows))

    def key_blocks(self, n_rows: int, n_keys: int) -> list[slice]:
        """Blocks of keys that fit beside a block of queries."""
        return list(_slices(n_keys, max(1, self.block_bytes // (n_rows * self.dtype.itemsize))))


def _slices(length: int, step: int) -> Iterator[slice]:
    for start in range(0, length, step):
        yield slice(start, min(start + step, length))
