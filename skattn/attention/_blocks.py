"""Blocks of kernel weights, queries x keys: the inner loop of everything dense."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from skattn.attention._request import Request, Resources

Array = NDArray[Any]  # of float32 or float64
Indices = NDArray[np.intp]
Buffer = NDArray[np.uint8]

# Largest error of a squared distance in float32, where it is allowed.
_SINGLE_TOLERANCE = 5e-5
_EPS = {np.dtype(kind): float(np.finfo(kind).eps) for kind in (np.float32, np.float64)}
# What may be added to the exponent of weights that would underflow: their sums stay finite.
_LIFT = {np.dtype(np.float64): 600.0, np.dtype(np.float32): 70.0}
# Below this number of queries, preparing the keys for matrix products costs more than it saves.
_FEW_QUERIES = 32


class WeightBlocks:
    """Computes weights of blocks of queries and keys, up to a shift of each query.

    Parameters
    ----------
    request : Request
        The queries, keys, kernel, sample weights and own keys.
    resources : Resources
        The precision allowed: expanding |q - k|^2 = |q|^2 + |k|^2 - 2 q.k loses digits.

    Attributes
    ----------
    factor : ndarray of shape (n_keys,)
        What the weights of a block have yet to be multiplied with: the sample weights, folded
        into whatever the block is contracted with; one where they are in the weights already.
    """

    def __init__(self, request: Request, resources: Resources) -> None:
        self.request = request
        double, dtype = np.dtype(np.float64), resources.dtype
        self.dtypes: list[np.dtype] = [double] if dtype == double else [dtype, double]
        tolerance = {dtype: _SINGLE_TOLERANCE, double: resources.tolerance}
        self._reach = {each: np.sqrt(2.0 * tolerance[each] / _EPS[each]) for each in self.dtypes}
        in_weights = not request.kernel.peaks_at_one
        self.factor = np.ones(len(request.keys)) if in_weights else np.exp(request.log_weights)

    @cached_property
    def _query_norms(self) -> Array:
        return np.einsum("ij,ij->i", self.request.queries, self.request.queries)

    @cached_property
    def _key_norms(self) -> Array:
        return np.einsum("ij,ij->i", self.request.keys, self.request.keys)

    @cached_property
    def _key_radius(self) -> float:
        return float(np.sqrt(self._key_norms.max()))

    @cached_property
    def _expanded_keys(self) -> dict[np.dtype, Array]:
        keys = self.request.keys
        rows = np.vstack([keys.T, np.ones(len(keys)), self._key_norms])
        with np.errstate(over="ignore"):  # what overflows in float32 is never routed there
            return {dtype: rows.astype(dtype) for dtype in self.dtypes}

    def expansion(self, rows: slice) -> np.dtype | None:
        """The cheapest type in which squared distances may be expanded, None for differences."""
        if not self.request.kernel.smooth_at_zero or len(self.request.queries) < _FEW_QUERIES:
            return None
        radius = np.sqrt(self._query_norms[rows].max()) + self._key_radius
        return next((dtype for dtype in self.dtypes if radius <= self._reach[dtype]), None)

    def lift(self, rows: slice) -> float:
        """How much the log-weights of distant queries can be raised in passing."""
        dtype = self.expansion(rows)
        liftable = self.request.kernel.is_exponential and self.request.repeats is None
        return _LIFT[dtype] if dtype is not None and liftable else 0.0

    def weights(
        self, rows: slice, columns: slice, buffer: Buffer, lift: float = 0.0
    ) -> tuple[Array, Array]:
        """Weights of a block up to `factor` and a shift of each query, and the shift.

        Weights are exp(log_weight - shift) / factor.

        Parameters
        ----------
        rows, columns : slice
            Which queries and keys.
        buffer : ndarray of uint8
            Memory for the block.
        lift : float, default=0.0
            Raises the log-weights; at most `lift` of the queries.
        """
        kernel = self.request.kernel
        t = self._scaled_distances(rows, columns, buffer, lift)
        if kernel.peaks_at_one:
            weights = kernel.profile(t)
            if self.request.own is not None:
                queries, keys, kept = self.own_entries(rows, columns)
                weights[queries, keys] *= kept.astype(weights.dtype)
            return weights, np.full(len(weights), -lift)
        logits = np.add(kernel.log_profile(t), self.request.log_weights[columns], out=t)
        if self.request.own is not None:
            queries, keys, kept = self.own_entries(rows, columns)
            with np.errstate(divide="ignore"):
                logits[queries, keys] += np.log(kept)
        shift = logits.max(axis=1)
        logits -= np.where(np.isneginf(shift), 0.0, shift)[:, None]
        return np.exp(logits, out=logits), shift

    def slopes(self, rows: slice, columns: slice, buffer: Buffer) -> Array:
        """dK / d(u**2) of a block, times what stays of the own keys."""
        slopes = self.request.kernel.slope(self._scaled_distances(rows, columns, buffer, 0.0))
        if self.request.own is not None:
            queries, keys, kept = self.own_entries(rows, columns)
            slopes[queries, keys] *= kept.astype(slopes.dtype)
        return slopes

    def own_entries(self, rows: slice, columns: slice) -> tuple[Indices, Indices, Array]:
        """Positions in a block of the queries' own keys, and what stays of their weight."""
        assert self.request.own is not None
        own = self.request.own.take(rows)
        queries, keys = own.entries(columns.start, columns.stop)
        return queries, keys, own.kept[queries]

    def _scaled_distances(self, rows: slice, columns: slice, buffer: Buffer, lift: float) -> Array:
        """rate * |q - k|^2 + lift, by a matrix product where that is accurate."""
        dtype = self.expansion(rows)
        shape = (rows.stop - rows.start, columns.stop - columns.start)
        size = shape[0] * shape[1] * (dtype or np.dtype(np.float64)).itemsize
        out = buffer[:size].view(dtype or np.float64).reshape(shape)
        queries, rate = self.request.queries[rows], self.request.kernel.rate
        if dtype is not None:
            scaled = np.empty((shape[0], queries.shape[1] + 2), dtype)
            np.multiply(queries, -2.0 * rate, out=scaled[:, :-2], casting="same_kind")
            scaled[:, -2] = self._query_norms[rows] * rate + lift
            scaled[:, -1] = rate
            return np.matmul(scaled, self._expanded_keys[dtype][:, columns], out=out)
        keys = self.request.keys[columns]
        if keys.shape[1] == 1:
            np.subtract(queries, keys.T, out=out)
            np.multiply(out, out, out=out)
        else:
            cdist(queries, keys, "sqeuclidean", out=out)
        return out if rate == 1.0 else np.multiply(out, rate, out=out)
