"""Threads over blocks, with the linear algebra library kept to one thread meanwhile."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from threadpoolctl import ThreadpoolController


@functools.cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()  # looks through all loaded libraries: once is enough


def run_blocks(
    task: Callable[[Sequence[slice]], None], blocks: Sequence[slice], n_threads: int
) -> None:
    """Call `task` with every n_threads-th block, in as many threads.

    Each block is owned by one call, so that results do not depend on the number of threads.
    """
    shares = [blocks[i::n_threads] for i in range(min(n_threads, len(blocks)))]
    with _controller().limit(limits=1, user_api="blas"):
        if len(shares) <= 1:
            for share in shares:
                task(share)
        else:
            with ThreadPoolExecutor(len(shares)) as pool:
                list(pool.map(task, shares))
