"""Queries far from every key: weights in the log domain, relative to the nearest key.

Where all weights of a query underflow, or no key is in the kernel's support, what matters is how
much farther the other keys are than the nearest one. With r the nearest key,

    |q - k_i|^2 - |q - k_r|^2 = (k_r - k_i) . ((q - k_i) + (q - k_r)),

which loses nothing however far the query is. Only keys near enough to count are looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from skattn.attention._merge import Sums
from skattn.attention._request import Request, Resources, slices
from skattn.attention._threads import run_blocks

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

# exp(-40) of a weight, divided by the number of keys, is below rounding.
_MARGIN = 40.0


@dataclass(frozen=True)
class FarWeights:
    """Weights of a block of queries, as (query, key, log-weight) sorted by query.

    Attributes
    ----------
    rows : slice
        Which queries.
    queries, keys : ndarray of shape (n_entries,)
        Positions: the query within the block, the key among all.
    weights : ndarray of shape (n_entries,)
        exp(log_weight - log_shift); the largest of each query is 1.
    log_shift : ndarray of shape (n_rows,)
        -inf where no key is in the support.
    """

    rows: slice
    queries: Indices
    keys: Indices
    weights: Array
    log_shift: Array

    @property
    def starts(self) -> Indices:
        """First entry of each query."""
        return np.searchsorted(self.queries, np.arange(self.log_shift.size))


def far_sums(request: Request, resources: Resources) -> Sums:
    """Sums over keys for queries that the dense engine cannot resolve, at any distance."""
    sums = Sums.empty(len(request.queries), request.values.shape[1])

    def write(far: FarWeights) -> None:
        values = far.weights[:, None] * request.values[far.keys]
        own, kept = np.zeros(far.log_shift.size), np.ones(far.weights.size)
        if request.own is not None:
            block = request.own.take(far.rows)
            is_own = (block.start[far.queries] <= far.keys) & (far.keys < block.stop[far.queries])
            np.add.at(own, far.queries[is_own], far.weights[is_own])
            kept[is_own] = block.kept[far.queries[is_own]]
        repeats = kept if request.repeats is None else kept * request.repeats[far.keys]
        squares = np.divide(far.weights**2, repeats, out=np.zeros_like(repeats), where=repeats > 0)
        sums.write(
            far.rows,
            Sums(
                far.log_shift,
                np.add.reduceat(values, far.starts, axis=0),
                np.add.reduceat(far.weights, far.starts),
                np.add.reduceat(squares, far.starts),
                own,
            ),
        )

    far_weights(request, resources, write)
    return sums


def far_slopes(request: Request, resources: Resources) -> tuple[Array, Array]:
    """Means of far queries and their derivatives in log-bandwidths, by feature.

    Each log-weight changes with theta_j by -2 (d log K / d u**2) (q_j - k_ij)**2; only differences
    between keys matter, and are taken from the nearest one, so that nothing is lost far away.
    """
    n_queries, n_outputs = len(request.queries), request.values.shape[1]
    means = np.empty((n_queries, n_outputs))
    slopes = np.empty((n_queries, n_outputs, request.keys.shape[1]))

    def write(far: FarWeights) -> None:
        totals = np.add.reduceat(far.weights, far.starts)
        shares = far.weights / totals[far.queries]
        values = request.values[far.keys]
        mean = np.add.reduceat(shares[:, None] * values, far.starts, axis=0)
        queries = request.queries[far.rows][far.queries]
        squares = (queries - request.keys[far.keys]) ** 2
        change = -2.0 * request.kernel.log_slope(squares.sum(axis=1))[:, None] * squares
        change[np.isneginf(far.log_shift)[far.queries]] = 0.0
        change -= change[far.starts][far.queries]
        moved = (shares[:, None] * (values - mean[far.queries]))[:, :, None] * change[:, None, :]
        means[far.rows] = mean
        slopes[far.rows] = np.add.reduceat(moved, far.starts, axis=0)

    far_weights(request, resources, write)
    return means, slopes


def far_weights(
    request: Request, resources: Resources, receive: Callable[[FarWeights], None]
) -> None:
    """Compute the weights of far queries and hand them over, block by block."""
    n_keys, n_features = request.keys.shape
    step = max(1, resources.block_bytes // (8 * n_keys * (n_features + 6)))
    key_norms = np.einsum("ij,ij->i", request.keys, request.keys)

    def run(row_blocks: Sequence[slice]) -> None:
        for rows in row_blocks:
            receive(_block_weights(request, rows, key_norms))

    run_blocks(run, list(slices(len(request.queries), step)), resources.workers(request.n_pairs))


def _block_weights(request: Request, rows: slice, key_norms: Array) -> FarWeights:
    kernel, queries = request.kernel, request.queries[rows]
    log_weights = np.broadcast_to(request.log_weights, (len(queries), len(key_norms)))
    if request.own is not None:
        own = request.own.take(rows)
        own_queries, own_keys = own.entries(0, len(key_norms))
        log_weights = log_weights.copy()
        with np.errstate(divide="ignore"):
            log_weights[own_queries, own_keys] += np.log(own.kept[own_queries])
    margin = _MARGIN + np.log(len(key_norms)) - float(request.log_weights.min())
    entries, keys = _candidates(request, rows, key_norms, log_weights, margin)
    nearest, excess = _excess(queries, request.keys, entries, keys)
    nearest_squared = ((queries - request.keys[nearest]) ** 2).sum(axis=1)

    outside = np.isneginf(kernel.log_profile(nearest_squared))
    ties = excess <= _rounding(queries, request.keys, entries, keys, nearest)
    with np.errstate(invalid="ignore"):  # -inf - -inf outside the support, where ties decide
        decay = kernel.log_decay(nearest_squared[entries], excess)
    decay = np.where(outside[entries], np.where(ties, 0.0, -np.inf), decay)
    logits = decay + log_weights[entries, keys]
    starts = np.searchsorted(entries, np.arange(len(queries)))
    shift = np.maximum.reduceat(logits, starts)
    log_shift = np.where(outside, -np.inf, shift + kernel.log_profile(nearest_squared))
    return FarWeights(rows, entries, keys, np.exp(logits - shift[entries]), log_shift)


def _candidates(
    request: Request, rows: slice, key_norms: Array, log_weights: Array, margin: float
) -> tuple[Indices, Indices]:
    """Keys whose weight may count: (query, key) pairs sorted by query, one a query at least."""
    queries = request.queries[rows]
    # half of |q - k|^2 - |q|^2: without |q|^2, digits survive at any distance
    half = 0.5 * key_norms - queries @ request.keys.T
    half[np.isneginf(log_weights)] = np.inf
    best = half.argmin(axis=1)
    norm = np.sqrt(np.einsum("ij,ij->i", queries, queries))
    largest = np.sqrt(key_norms.max())
    slack = 4.0 * np.finfo(float).eps * (len(request.keys[0]) + 2) * largest * (largest + norm)
    nearest = ((queries - request.keys[best]) ** 2).sum(axis=1)
    reach = request.kernel.reach(nearest, margin)
    limit = half[np.arange(len(best)), best] + 0.5 * reach + 2.0 * slack
    entries, keys = np.nonzero(half <= limit[:, None])
    return entries, keys


def _excess(
    queries: Array, all_keys: Array, entries: Indices, keys: Indices
) -> tuple[Indices, Array]:
    """The nearest candidate of each query, and how much farther the others are, squared."""
    starts = np.searchsorted(entries, np.arange(len(queries)))
    nearest = keys[starts]
    for _ in range(4):  # rounding apart, the first round finds the nearest key
        reference = all_keys[nearest][entries]
        differences = 2.0 * queries[entries] - all_keys[keys] - reference
        excess = np.einsum("ij,ij->i", reference - all_keys[keys], differences)
        least = np.minimum.reduceat(excess, starts)
        if (least >= 0.0).all():
            break
        first = np.flatnonzero(excess == least[entries])
        nearest = keys[first[np.searchsorted(entries[first], np.arange(len(queries)))]]
    return nearest, np.maximum(excess, 0.0)


def _rounding(
    queries: Array, all_keys: Array, entries: Indices, keys: Indices, nearest: Indices
) -> Array:
    """A bound on the rounding error of the excess: keys closer to a tie than this share it."""
    reference = all_keys[nearest][entries]
    size = np.abs(queries[entries]) + np.abs(all_keys[keys]) + np.abs(reference)
    return 8.0 * np.finfo(float).eps * (np.abs(reference - all_keys[keys]) * size).sum(axis=1)
