"""The one operation: attention of queries over keys.

With coordinates q of a query and k_i, values v_i and sample weights s_i of the keys,

    l_i(q) = log s_i + log K(|q - k_i|)        log-weights
    w_i(q) = exp l_i(q) / sum_j exp l_j(q)     attention weights

everything that is read off the weights is a sum over keys of w_i times columns. `attend` returns
the sums; how they are computed is the engines' business and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from skattn._attention._attention import Attention, Products
from skattn._attention._moments import Moments, Want
from skattn._attention._plan import ENGINES, choose_engine
from skattn._attention._resources import Resources, run_blocks

__all__ = ["attend", "attend_blocks", "attend_exactly"]

# Queries whose sums an engine knows less well are computed again by the exact engine.
_TOLERANCE = 1e-10


def attend(
    attention: Attention,
    products: Products,
    want: Want = Want.SUMS,
    resources: Resources = Resources(),
) -> Moments:
    """Moments of all queries.

    Parameters
    ----------
    attention : Attention
        What weight each key has. Sums of queries that must not see any key are 0.
    products : Products
        Columns to be summed.
    want : Want, default=Want.SUMS
        Sums of squares, or slopes, besides.
    resources : Resources, default=Resources()
        Threads, memory, precision and engine.

    Returns
    -------
    Moments
    """
    if attention.excluded is not None:
        alone = attention.excluded.covers(len(attention.keys))
        if alone.any():
            return _with_nothing(attention, products, want, resources, alone)
    blocks: dict[int, Moments] = {}

    def receive(queries: slice, moments: Moments) -> None:
        blocks[queries.start] = moments

    attend_blocks(attention, products, want, resources, receive)
    return _joined([blocks[start] for start in sorted(blocks)])


def attend_blocks(
    attention: Attention,
    products: Products,
    want: Want,
    resources: Resources,
    receive: Callable[[slice, Moments], None],
) -> None:
    """Compute moments as `attend` does, and hand them over block by block of queries.

    At least one key must stay for every query. `receive` is called from several threads, once for
    each block, so that what is read off the moments is computed in threads too, and moments of many
    columns are never all in memory.
    """
    engine = choose_engine(attention, products, want, resources.algorithm)
    prepared = engine.prepare(attention, products, want, resources)

    def run(blocks: Sequence[slice]) -> None:
        for queries in blocks:
            moments = _absolute(prepared.moments(queries), attention)
            if moments.error is not None:
                hard = np.flatnonzero(moments.error > _TOLERANCE)
                if hard.size:
                    some = attention.take(queries.start + hard)
                    moments.write(hard, attend_exactly(some, products, want))
            receive(queries, moments)

    run_blocks(run, prepared.blocks, resources.workers(attention.n_pairs))


def attend_exactly(attention: Attention, products: Products, want: Want = Want.SUMS) -> Moments:
    """Moments of few queries without a loss, in one thread; parameters as for `attend`."""
    exact = ENGINES["exact"].prepare(attention, products, want, Resources())
    return _absolute(_joined([exact.moments(queries) for queries in exact.blocks]), attention)


def _with_nothing(
    attention: Attention,
    products: Products,
    want: Want,
    resources: Resources,
    alone: NDArray[np.bool_],
) -> Moments:
    """Moments of queries of which some see no key."""
    moments = _nothing(attention, products, want)
    rest = np.flatnonzero(~alone)
    if rest.size:
        moments.write(rest, attend(attention.take(rest), products, want, resources))
    return moments


def _nothing(attention: Attention, products: Products, want: Want) -> Moments:
    """Moments over no key."""
    n, d = attention.queries.shape
    n_outputs, zeros, has_slopes = products.values.shape[1], np.zeros, bool(want & Want.SLOPES)
    regressors = products.regressors
    return Moments(
        zeros(n),
        zeros(n),
        zeros((n, products.n_columns)),
        zeros(n),
        np.ones(n, dtype=bool),
        np.full(n, np.inf),
        None if regressors is None else zeros((n, regressors.shape[1])),
        zeros((n, n_outputs)) if want & Want.SQUARES else None,
        zeros((n, 1 + n_outputs, d)) if has_slopes else None,
        zeros((n, d)) if has_slopes else None,
    )


def _absolute(moments: Moments, attention: Attention) -> Moments:
    """Moments whose shift refers to the log-weights as they were given."""
    if attention.log_offset == 0.0:
        return moments
    return replace(moments, log_shift=moments.log_shift + attention.log_offset)


def _joined(blocks: Sequence[Moments]) -> Moments:
    """Moments of all blocks of queries."""
    if len(blocks) == 1:
        return blocks[0]
    parts: list[NDArray[np.floating] | None] = []
    for columns in zip(*(block.parts() for block in blocks), strict=True):
        known = [column for column in columns if column is not None]
        parts.append(np.concatenate(known) if len(known) == len(blocks) else None)
    return Moments(*parts)  # type: ignore[arg-type]
