"""What is asked of an engine, and what it may use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skattn.geometry import Own
from skattn.kernels import Kernel

Array = NDArray[np.float64]

# A head of a larger share that is outside its support puts the query outside.
_COUNTING_SHARE = 1e-3
# So many pairs of queries and keys are not worth another thread, or another block.
_FEW_PAIRS = 400_000


@dataclass(frozen=True)
class Radii:
    """Bandwidths that vary: what distances of each query, or of each key, are divided by.

    Attributes
    ----------
    queries : ndarray of shape (n_queries,) or None
        A radius for each query.
    keys : ndarray of shape (n_keys,) or None
        A radius for each key, whose kernel weighs ``K(|q - k_i| / r_i) / r_i**n_features``.
    without : ndarray of shape (n_keys,) or None
        The radius of each key in the absence of one row within `keys` of it: what counts for
        queries that are such rows, left out.
    """

    queries: Array | None = None
    keys: Array | None = None
    without: Array | None = None

    def take(self, queries: slice | NDArray[np.intp]) -> Radii:
        """The radii for some of the queries."""
        return self if self.queries is None else replace(self, queries=self.queries[queries])


@dataclass(frozen=True)
class Line:
    """Coordinates in which local lines are fitted: every feature, in units of order one.

    Attributes
    ----------
    queries : ndarray of shape (n_queries, n_directions)
    keys : ndarray of shape (n_keys, n_directions)
    ridge : float
        Added to the variances of the keys in every direction; it shrinks slopes.
    """

    queries: Array
    keys: Array
    ridge: float = 0.0


@dataclass(frozen=True)
class Head:
    """One of several kinds of attention that are mixed.

    Attributes
    ----------
    gate : ndarray of shape (n_queries,)
        Its share, for each query; shares sum to 1.
    request : Request
        For the same queries, keys and values.
    """

    gate: Array
    request: Request


def outside_of_mixed(
    gates: Sequence[Array], outside: Sequence[NDArray[np.bool_]]
) -> NDArray[np.bool_]:
    """Queries for which some head that counts has no key in its support.

    Parameters
    ----------
    gates : sequence of ndarray of shape (n_queries,)
    outside : sequence of ndarray of shape (n_queries,) of bool
        Of each head.
    """
    counting = np.stack(gates) > _COUNTING_SHARE
    return np.asarray((counting & np.stack(outside)).any(axis=0))


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
    repeats : ndarray of shape (n_keys,) or None
        How many rows each key stands for, where sums over rows of squared weights are wanted.
    radii : Radii or None
        Bandwidths that vary.
    line : Line or None
        Where lines are fitted instead of means.
    heads : tuple of Head
        Where there are any, weights, means and lines are mixed from theirs; coordinates and lines
        of the request are those of the first, what is left out is the same for all.
    """

    queries: Array
    keys: Array
    values: Array
    kernel: Kernel
    log_weights: Array
    own: Own | None = None
    repeats: Array | None = None
    radii: Radii | None = None
    line: Line | None = None
    heads: tuple[Head, ...] = ()

    @property
    def is_plain(self) -> bool:
        """Whether it asks for means under one kind of weights, which engines sum fast."""
        return self.line is None and self.radii is None and not self.heads

    @property
    def n_pairs(self) -> int:
        """Pairs of queries and keys."""
        return len(self.queries) * len(self.keys)

    def take(self, queries: slice | NDArray[np.intp]) -> Request:
        """The same request for some of the queries."""
        return replace(
            self,
            queries=self.queries[queries],
            own=None if self.own is None else self.own.take(queries),
            radii=None if self.radii is None else self.radii.take(queries),
            line=None
            if self.line is None
            else replace(self.line, queries=self.line.queries[queries]),
            heads=tuple(Head(h.gate[queries], h.request.take(queries)) for h in self.heads),
        )

    def leaving_out(self, own: Own) -> Request:
        """The same request, with something else left out."""
        return self._in_all_heads(own=own)

    def of_values(self, values: Array) -> Request:
        """What the same weights make of other values, as means."""
        return self._in_all_heads(values=values, line=None)

    def _in_all_heads(self, **changes: Any) -> Request:
        heads = tuple(Head(h.gate, h.request._in_all_heads(**changes)) for h in self.heads)
        return replace(self, heads=heads, **changes)


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
    tolerance : float
        Largest error in float64 of a squared distance, in bandwidths, that rounding may cause where
        it saves time.
    """

    n_threads: int = 1
    block_bytes: int = 2 << 20
    dtype: np.dtype = np.dtype(np.float64)
    tolerance: float = 5e-13

    def workers(self, n_pairs: int) -> int:
        """Threads worth starting for so many pairs of queries and keys."""
        return min(self.n_threads, max(1, n_pairs // _FEW_PAIRS))

    def row_blocks(self, n_queries: int, n_keys: int, least: int = 256) -> list[slice]:
        """Blocks of queries, as large as is efficient, and some for each of a few threads.

        They do not depend on the number of threads, so neither does the rounding of results.
        """
        rows = max(least, self.block_bytes // (n_keys * self.dtype.itemsize))
        if n_queries * n_keys >= _FEW_PAIRS:
            rows = min(rows, max(1, least // 8, -(-n_queries // 8)))
        return list(slices(n_queries, rows))

    def key_blocks(self, n_rows: int, n_keys: int) -> list[slice]:
        """Blocks of keys that fit beside a block of queries."""
        return list(slices(n_keys, max(1, self.block_bytes // (n_rows * self.dtype.itemsize))))


def slices(length: int, step: int) -> Iterator[slice]:
    """Consecutive slices of `step`, the last one shorter."""
    for start in range(0, length, step):
        yield slice(start, min(start + step, length))
