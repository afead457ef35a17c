"""Threads over blocks, with the linear algebra library kept to one thread meanwhile."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from threadpoolctl import ThreadpoolController


@functools.cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()  # looks through all loaded libraries: once is enough


# Held by the computation that limits BLAS: a second one at the same time must not, or it would
# take the limit for the user's setting and restore that.
_limiting = threading.Lock()


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Keep the linear algebra library to one thread; free of cost inside another such context."""
    if not _limiting.acquire(blocking=False):
        yield
        return
    try:
        with _controller().limit(limits=1, user_api="blas"):
            yield
    finally:
        _limiting.release()


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
