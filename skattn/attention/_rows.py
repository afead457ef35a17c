"""Rows of attention weights, block by block: what statistics other than means are read off."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from skattn.attention._blocks import WeightBlocks
from skattn.attention._far import FarWeights, far_weights
from skattn.attention._request import Request, Resources, outside_of_mixed
from skattn.attention._threads import run_blocks

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

# Weights below are what underflow was clamped to, not weights.
_NEGLIGIBLE = 1e-295
# Queries of a block: enough for matrix products with its weights to be efficient. For local lines
# more, where so many bytes hold them, to share among them what is prepared of the keys.
_ROWS, _MOST_ROWS, _BYTES = 64, 192, 1 << 23
# Distances and radii are computed in different ways; so much of them is rounding.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Rows:
    """Attention weights of a block of queries over all keys.

    Attributes
    ----------
    queries : slice
        Which queries.
    weights : ndarray of shape (n_rows, n_keys)
        Rows sum to 1. Not used again by whoever hands it over.
    own_weight : ndarray of shape (n_rows,)
        Weight of the queries' own keys, or of what stays of them.
    outside : ndarray of shape (n_rows,) of bool
        Queries without a key in the support, of some head that counts if there are several.
    heads : tuple of Rows
        Those of each head of the request, which `weights` and `own_weight` are mixed from.
    """

    queries: slice
    weights: Array
    own_weight: Array
    outside: NDArray[np.bool_]
    heads: tuple[Rows, ...] = ()


def read_rows(request: Request, resources: Resources, receive: Callable[[Rows], None]) -> None:
    """Compute the attention weights of all queries and hand them over, block by block.

    `receive` is called from several threads, once for each block.

    Time O(n_queries * n_keys * n_features); memory O(n_keys) for 64 queries a thread; for local
    lines for up to 192, while that is no more than 8 MiB.
    """
    double = replace(resources, dtype=np.dtype(np.float64))
    n_rows = _ROWS
    if request.line is not None and request.radii is None:
        n_rows = int(np.clip(_BYTES // (8 * len(request.keys)), _ROWS, _MOST_ROWS))
    blocks = double.row_blocks(len(request.queries), len(request.keys), least=n_rows)
    reader = _Reader(request, double)

    def run(row_blocks: Sequence[slice]) -> None:
        for queries in row_blocks:
            receive(reader.read(queries))

    run_blocks(run, blocks, double.workers(request.n_pairs))


class _Reader:
    """Attention weights of blocks of queries, by the definition that the request calls for."""

    def __init__(self, request: Request, resources: Resources) -> None:
        self.request, self.resources = request, resources
        self.heads = [_Reader(head.request, resources) for head in request.heads]
        self.fixed = None if self.heads or request.radii is not None else _Fixed(request)

    def read(self, queries: slice) -> Rows:
        if self.heads:
            return self._mixed(queries)
        if self.fixed is not None:
            weights, outside = self.fixed.read(queries, self.resources)
        else:
            weights, outside = _adaptive_weights(self.request.take(queries))
        weights /= weights.sum(axis=1, keepdims=True)
        return Rows(queries, weights, _own_weights(self.request, queries, weights), outside)

    def _mixed(self, queries: slice) -> Rows:
        heads = tuple(reader.read(queries) for reader in self.heads)
        gates = [head.gate[queries] for head in self.request.heads]
        weights, own_weight = np.zeros_like(heads[0].weights), np.zeros(len(gates[0]))
        for gate, head in zip(gates, heads, strict=True):
            weights += gate[:, None] * head.weights
            own_weight += gate * head.own_weight
        weights /= weights.sum(axis=1, keepdims=True)
        outside = outside_of_mixed(gates, [head.outside for head in heads])
        return Rows(queries, weights, own_weight, outside, heads)


class _Fixed:
    """Unnormalised weights of full rows, with queries that underflow in the log domain."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.blocks = WeightBlocks(request, Resources())
        self.least = request.kernel.trusted_normalizer(np.dtype(np.float64))

    def read(self, queries: slice, resources: Resources) -> tuple[Array, NDArray[np.bool_]]:
        n_rows, n_keys = queries.stop - queries.start, len(self.request.keys)
        buffer = np.empty(n_rows * n_keys * 8, dtype=np.uint8)
        weights, _ = self.blocks.weights(queries, slice(0, n_keys), buffer)
        if weights.min() < _NEGLIGIBLE:
            weights[weights < _NEGLIGIBLE] = 0.0
        if (self.blocks.factor != 1.0).any():
            weights *= self.blocks.factor
        outside = np.zeros(n_rows, dtype=bool)
        hard = np.flatnonzero(weights.sum(axis=1) < self.least)

        def write(far: FarWeights) -> None:
            rows = hard[far.rows]
            weights[rows] = 0.0
            weights[rows[far.queries], far.keys] = far.weights
            outside[rows] = np.isneginf(far.log_shift)

        if hard.size:
            far_weights(
                self.request.take(queries.start + hard), replace(resources, n_threads=1), write
            )
        return weights, outside


def _adaptive_weights(request: Request) -> tuple[Array, NDArray[np.bool_]]:
    """Unnormalised weights with bandwidths that vary; the largest of each query is 1."""
    distances = cdist(request.queries, request.keys)
    inverse = inverse_radii(request, distances)
    log_weights = np.broadcast_to(request.log_weights, distances.shape)
    if request.radii is not None and request.radii.keys is not None:
        log_weights = log_weights + request.keys.shape[1] * np.log(inverse)
    if request.own is not None:
        queries, keys = request.own.entries(0, len(request.keys))
        log_weights = log_weights.copy()
        with np.errstate(divide="ignore"):
            log_weights[queries, keys] += np.log(request.own.kept[queries])
    with np.errstate(over="ignore"):
        squared = (distances * inverse) ** 2
    logits = request.kernel.log_profile(squared)
    outside = np.isneginf(np.where(np.isneginf(log_weights), -np.inf, logits).max(axis=1))
    if outside.any():
        squared = np.where(np.isneginf(log_weights), np.inf, squared)[outside]
        nearest = squared.min(axis=1, keepdims=True)
        logits[outside] = np.where(squared <= nearest * (1.0 + _ROUNDING), 0.0, -np.inf)
    logits += log_weights
    logits -= logits.max(axis=1, keepdims=True)
    return np.exp(logits, out=logits), outside


def inverse_radii(request: Request, distances: Array) -> Array:
    """What distances (n_queries, n_keys) are multiplied with, in a shape that broadcasts."""
    radii = request.radii
    if radii is None:
        return np.ones((1, 1))
    inverse: Array = np.ones((1, 1))
    if radii.queries is not None:
        inverse = np.reciprocal(radii.queries)[:, None]
    if radii.keys is None:
        return inverse
    if radii.without is None:
        return inverse / radii.keys
    near = distances <= radii.keys * (1.0 + _ROUNDING)
    if request.own is not None:  # queries that leave nothing out are no neighbours
        near &= (request.own.stop > request.own.start)[:, None]
    radius: Array = np.where(near, radii.without, radii.keys).astype(np.float64)
    return inverse / radius


def _own_weights(request: Request, queries: slice, weights: Array) -> Array:
    if request.own is None:
        return np.zeros(len(weights))
    rows, keys = request.own.take(queries).entries(0, weights.shape[1])
    total = np.asarray(np.bincount(rows, weights[rows, keys], len(weights)), np.float64)
    return total
