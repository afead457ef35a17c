"""Threads, memory and precision of a computation, and threads over blocks of queries."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

__all__ = ["Resources", "run_blocks", "single_threaded_blas", "slices"]

# So many pairs of queries and keys are not worth another thread, or another block.
_FEW_PAIRS = 400_000


@dataclass(frozen=True)
class Resources:
    """How a computation may be done.

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
    algorithm : str
        Name of the engine that computes sums; "auto" for the one of least predicted cost.
    """

    n_threads: int = 1
    block_bytes: int = 2 << 20
    dtype: np.dtype = np.dtype(np.float64)
    tolerance: float = 5e-13
    algorithm: str = "auto"

    def workers(self, n_pairs: int) -> int:
        """Threads worth starting for so many pairs of queries and keys."""
        return min(self.n_threads, max(1, n_pairs // _FEW_PAIRS))

    def query_blocks(self, n_queries: int, n_keys: int, least: int = 256) -> list[slice]:
        """Blocks of queries, as large as is efficient, and some for each of a few threads.

        They do not depend on the number of threads, so neither does the rounding of results.
        """
        size = max(least, self.block_bytes // (n_keys * self.dtype.itemsize))
        if n_queries * n_keys >= _FEW_PAIRS:
            size = min(size, max(1, least // 8, -(-n_queries // 8)))
        return list(slices(n_queries, size))

    def key_blocks(self, n_queries: int, n_keys: int) -> list[slice]:
        """Blocks of keys that fit beside a block of queries."""
        return list(slices(n_keys, max(1, self.block_bytes // (n_queries * self.dtype.itemsize))))


def slices(length: int, step: int) -> Iterator[slice]:
    """Consecutive slices of `step`, the last one shorter."""
    for start in range(0, length, step):
        yield slice(start, min(start + step, length))


@functools.cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()  # looks through all loaded libraries: once is enough


class _BlasLimit:
    """One thread for the linear algebra library while anybody computes.

    The first of several computations at the same time sets the limit, the last one restores what
    the user had.
    """

    def __init__(self) -> None:
        self.lock, self.n_users = threading.Lock(), 0
        self.limiter: Any = None

    def enter(self) -> None:
        with self.lock:
            if self.n_users == 0:
                self.limiter = _controller().limit(limits=1, user_api="blas")
            self.n_users += 1

    def leave(self) -> None:
        with self.lock:
            self.n_users -= 1
            if self.n_users == 0 and self.limiter is not None:
                self.limiter.restore_original_limits()


_limit = _BlasLimit()
# A fork copies a lock that another thread may hold, and which nobody in the child releases.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_limit.__init__)  # type: ignore[misc]


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Keep the linear algebra library to one thread; cheap inside another such context."""
    _limit.enter()
    try:
        yield
    finally:
        _limit.leave()


def run_blocks(
    task: Callable[[Sequence[slice]], None], blocks: Sequence[slice], n_threads: int
) -> None:
    """Call `task` with every n_threads-th block, in as many threads.

    Each block is owned by one call, so that results do not depend on the number of threads.
    """
    shares = [blocks[i::n_threads] for i in range(min(n_threads, len(blocks)))]
    with single_threaded_blas():
        if len(shares) <= 1:
            for share in shares:
                task(share)
        else:
            with ThreadPoolExecutor(len(shares)) as pool:
                list(pool.map(task, shares))
