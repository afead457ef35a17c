"""The dense engine: queries x keys in cache-sized blocks, threads over blocks of queries."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skattn._attention._attention import Attention, Products
from skattn._attention._kernel_blocks import Buffer, KernelBlocks, ThreadMemory
from skattn._attention._moments import Moments, Want, merge, row_moments
from skattn._attention._resources import Resources, slices
from skattn._attention._row_sums import RowSums
from skattn._attention.engines.engine import Engine, Prepared, reason_against_slopes

__all__ = ["Dense"]

Array = NDArray[Any]  # of float32 or float64

_DOUBLE = np.dtype(np.float64)
# Queries whose first block of keys sums to less are likely to underflow altogether.
_DISTANT = {np.dtype(np.float64): 1e-120, np.dtype(np.float32): 1e-10}
# OpenBLAS takes products of up to so many terms without copying the factors, which takes half the
# time for a few columns.
_SMALL_PRODUCT = 1_000_000


class Dense(Engine):
    """Every pair of query and key, without looking for the largest weight where K <= 1.

    Time O(n_queries * n_keys * n_features); memory ``resources.block_bytes`` a thread and
    O((n_queries + n_keys) * (n_features + n_outputs)). Local lines take O(n_directions ** 2) for
    n_features, and full rows of weights for 64 to 192 queries a thread.
    """

    name = "dense"

    def supports(self, attention: Attention, products: Products, want: Want) -> str | None:
        """Everything but slopes of local lines or at scales that vary."""
        return reason_against_slopes(attention, products, want)

    def cost(self, attention: Attention, products: Products, want: Want) -> float:
        """Predicted time in nanoseconds."""
        return attention.n_pairs * (2.0 + 0.1 * attention.keys.shape[1] + 0.1 * products.n_columns)

    def prepare(
        self, attention: Attention, products: Products, want: Want, resources: Resources
    ) -> Prepared:
        """Blocks of queries; keys are visited block by block, or all at once for local lines."""
        if attention.has_scales or products.degree > 0:
            return RowSums(attention, products, want, resources, row_moments)
        kind = _SlopeSums if want & Want.SLOPES else _DenseSums
        return kind(attention, products, want, resources)


class _DenseSums:
    """Sums of weighted means at fixed bandwidths."""

    def __init__(
        self, attention: Attention, products: Products, want: Want, resources: Resources
    ) -> None:
        self.attention, self.products, self.resources = attention, products, resources
        self.has_squares = bool(want & Want.SQUARES)
        self.kernel_blocks = KernelBlocks(attention, resources)
        factor, dtypes = self.kernel_blocks.factor, self.kernel_blocks.dtypes
        columns = np.column_stack([products.values * factor[:, None], factor])
        self.columns = {dtype: columns.astype(dtype) for dtype in dtypes}
        if self.has_squares:
            squared = factor[:, None] ** 2 * products.values
            self.squared = {dtype: squared.astype(dtype) for dtype in dtypes}
        self.blocks = resources.query_blocks(len(attention.queries), len(attention.keys))
        self.memory = ThreadMemory()

    def moments(self, queries: slice) -> Moments:
        """Moments of a block of queries; those that single precision spoils in double."""
        moments = self._moments(queries)
        dtype = self.kernel_blocks.dtype(queries)
        hard = np.flatnonzero(moments.total < self._trusted(dtype))
        if hard.size and dtype != _DOUBLE:
            again = self._in_double(queries.start + hard)
            for block in again.blocks:
                moments.write(hard[block], again._moments(block))
            hard = np.flatnonzero(moments.total < self._trusted(_DOUBLE))
        error = np.zeros_like(moments.total)
        error[hard] = np.inf
        return replace(moments, error=error)

    def _in_double(self, queries: NDArray[np.intp]) -> _DenseSums:
        resources = Resources(1, self.resources.block_bytes, tolerance=self.resources.tolerance)
        want = Want.SQUARES if self.has_squares else Want.SUMS
        return type(self)(self.attention.take(queries), self.products, want, resources)

    def _trusted(self, dtype: np.dtype) -> float:
        """Smallest total that is determined well; squares underflow at half the exponent."""
        least = self.attention.kernel.trusted_normalizer(dtype)
        return least**0.5 if self.has_squares else least

    def _moments(self, queries: slice) -> Moments:
        n_rows = queries.stop - queries.start
        columns = self.resources.key_blocks(n_rows, len(self.attention.keys))
        buffer = self.memory.of_size(n_rows * (columns[0].stop - columns[0].start) * 8)
        moments, lift = self._block_moments(queries, columns[0], buffer), 0.0
        if np.median(moments.total) < _DISTANT[self.resources.dtype] and not self.has_squares:
            lift = self.kernel_blocks.lift(queries)
            moments = self._block_moments(queries, columns[0], buffer, lift)
        for keys in columns[1:]:
            moments = merge(moments, self._block_moments(queries, keys, buffer, lift))
        return moments

    def _block_moments(
        self, queries: slice, keys: slice, buffer: Buffer, lift: float = 0.0
    ) -> Moments:
        weights, shift = self.kernel_blocks.weights(queries, keys, buffer, lift)
        sums = weights @ self.columns[weights.dtype][keys]
        own, squares, has_own = np.zeros(len(weights)), None, self.attention.excluded is not None
        if has_own:
            rows, places, retained = self.kernel_blocks.excluded_entries(queries, keys)
            own_weights = weights[rows, places] * self.kernel_blocks.factor[keys][places]
            own[:] = np.bincount(rows, own_weights, len(weights))
        if self.has_squares:
            if has_own:
                # of the rows a key stands for, the part that stays: its squares are as many fewer
                weights[rows, places] /= np.sqrt(np.where(retained > 0.0, retained, 1.0))
            np.multiply(weights, weights, out=weights)
            squares = weights @ self.squared[weights.dtype][keys]
        return _inside(shift, sums[:, -1], sums[:, :-1], own, squares=squares)


class _SlopeSums(_DenseSums):
    """Sums of weighted means, and how they change with the bandwidth of each feature.

    With theta_j the logarithm of the bandwidth of feature j, u the coordinates and
    K' = dK / d(u**2),

        d K(|q - k_i|) / d theta_j = -2 K' (q_j - k_ij)**2,

    so the slopes are sums over keys of K' times 1, u_j and u_j**2, all of them one matrix product.
    """

    def __init__(
        self, attention: Attention, products: Products, want: Want, resources: Resources
    ) -> None:
        super().__init__(attention, products, want, resources)
        factor, keys = self.kernel_blocks.factor, attention.keys
        contracted = factor[:, None] * np.column_stack([np.ones(len(keys)), products.values])
        powers = np.column_stack([np.ones(len(keys)), keys, keys**2])
        by_power = (contracted[:, :, None] * powers[:, None, :]).reshape(len(keys), -1)
        with np.errstate(over="ignore"):  # what overflows in float32 is never routed there
            self.by_power = {each: by_power.astype(each) for each in self.kernel_blocks.dtypes}

    def _in_double(self, queries: NDArray[np.intp]) -> _SlopeSums:
        resources = Resources(1, self.resources.block_bytes, tolerance=self.resources.tolerance)
        return _SlopeSums(self.attention.take(queries), self.products, Want.SLOPES, resources)

    def _block_moments(
        self, queries: slice, keys: slice, buffer: Buffer, lift: float = 0.0
    ) -> Moments:
        kernel, blocks = self.attention.kernel, self.kernel_blocks
        weights, shift = blocks.weights(queries, keys, buffer, lift)
        own = np.zeros(len(weights))
        if self.attention.excluded is not None:
            rows, places, _ = blocks.excluded_entries(queries, keys)
            own_weights = weights[rows, places] * blocks.factor[keys][places]
            own[:] = np.bincount(rows, own_weights, len(weights))
        if kernel.is_exponential:  # the slope is the weight times the rate
            powers = kernel.rate * self._by_power(weights, keys)
            totals = powers[:, :, 0] / kernel.rate
            totals = np.hstack([totals[:, 1:], totals[:, :1]])
        else:
            totals = weights @ self.columns[weights.dtype][keys]
            powers = self._by_power(blocks.slopes(queries, keys, buffer), keys)
        # sum of K' (q - k)**2 with the square expanded about the centre of the keys
        q, d = self.attention.queries[queries][:, None, :], self.attention.keys.shape[1]
        zeroth, first, second = powers[:, :, :1], powers[:, :, 1 : d + 1], powers[:, :, d + 1 :]
        slopes = -2.0 * (q**2 * zeroth - 2.0 * q * first + second)
        return _inside(shift, totals[:, -1], totals[:, :-1], own, slopes=slopes)

    def _by_power(self, weights: Array, keys: slice) -> Array:
        columns = self.by_power[weights.dtype][keys]
        product = np.empty((len(weights), columns.shape[1]))
        for some in slices(len(weights), max(1, _SMALL_PRODUCT // columns.size)):
            product[some] = weights[some] @ columns
        return product.reshape(len(weights), 1 + self.products.values.shape[1], -1)


def _inside(
    shift: Array,
    total: Array,
    sums: Array,
    own: Array,
    squares: Array | None = None,
    slopes: Array | None = None,
) -> Moments:
    """Moments of queries that, as far as the dense engine can tell, see keys in their support."""
    outside, nearest = np.zeros(len(total), dtype=bool), np.full(len(total), np.inf)
    shift, total, sums = (np.asarray(part, np.float64) for part in (shift, total, sums))
    squares = None if squares is None else squares.astype(np.float64)
    fixed = None if slopes is None else np.zeros(slopes[:, 0].shape)
    return Moments(shift, total, sums, own, outside, nearest, None, squares, slopes, fixed)
