"""Means and how they change with the bandwidth of each feature.

With theta_j the logarithm of the bandwidth of feature j, u the coordinates and K' = dK / d(u**2),

    d K(|q - k_i|) / d theta_j = -2 K' (q_j - k_ij)**2,

so the slopes are sums over keys of K' times 1, u_j and u_j**2, all of them one matrix product of
the block of weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from skattn.attention._blocks import Buffer, WeightBlocks
from skattn.attention._request import Request, Resources, slices
from skattn.attention._threads import run_blocks

Array = NDArray[np.float64]

# OpenBLAS takes products of up to so many terms without copying the factors, which takes half the
# time for a few columns.
_SMALL_PRODUCT = 1_000_000


@dataclass(frozen=True)
class SlopeSums:
    """Sums over keys of weights, and their derivatives in log-bandwidths; column 0 without values.

    Attributes
    ----------
    totals : ndarray of shape (n_queries, 1 + n_outputs)
        Sums of weights times 1 and the values.
    slopes : ndarray of shape (n_queries, 1 + n_outputs, n_features)
        Their derivatives.
    own : ndarray of shape (n_queries,)
        Weight of the query's own keys.
    """

    totals: Array
    slopes: Array
    own: Array


def slope_sums(request: Request, resources: Resources) -> SlopeSums:
    """Sums and slopes for kernels that have a slope.

    As for the dense engine, sums below ``kernel.trusted_normalizer`` are not determined well.
    Time O(n_queries * n_keys * n_features * n_outputs); memory as the dense engine, and
    O((n_queries + n_keys) * n_features * n_outputs).
    """
    engine = _SlopeEngine(request, resources)
    blocks = resources.row_blocks(len(request.queries), len(request.keys))
    run_blocks(engine.run, blocks, resources.workers(request.n_pairs))
    return engine.sums


class _SlopeEngine:
    def __init__(self, request: Request, resources: Resources) -> None:
        self.request, self.resources = request, resources
        self.blocks = WeightBlocks(request, resources)
        n_queries, n_features = request.queries.shape
        factor, keys = self.blocks.factor, request.keys
        contracted = factor[:, None] * np.column_stack([np.ones(len(keys)), request.values])
        powers = np.column_stack([np.ones(len(keys)), keys, keys**2])
        moments = (contracted[:, :, None] * powers[:, None, :]).reshape(len(keys), -1)
        self.contracted = {dtype: contracted.astype(dtype) for dtype in self.blocks.dtypes}
        with np.errstate(over="ignore"):  # what overflows in float32 is never routed there
            self.moments = {dtype: moments.astype(dtype) for dtype in self.blocks.dtypes}
        n_columns = contracted.shape[1]
        self.sums = SlopeSums(
            np.zeros((n_queries, n_columns)),
            np.zeros((n_queries, n_columns, n_features)),
            np.zeros(n_queries),
        )

    def run(self, row_blocks: Sequence[slice]) -> None:
        """Fill in the sums of some blocks of queries."""
        for rows in row_blocks:
            n_rows = rows.stop - rows.start
            columns = self.resources.key_blocks(n_rows, len(self.request.keys))
            buffer = np.empty(n_rows * (columns[0].stop - columns[0].start) * 8, dtype=np.uint8)
            for block in columns:
                self._add_block(rows, block, buffer)

    def _add_block(self, rows: slice, columns: slice, buffer: Buffer) -> None:
        kernel, sums = self.request.kernel, self.sums
        weights, _ = self.blocks.weights(rows, columns, buffer)
        if self.request.own is not None:
            queries, keys, _ = self.blocks.own_entries(rows, columns)
            own = weights[queries, keys] * self.blocks.factor[columns][keys]
            sums.own[rows] += np.bincount(queries, own, len(weights))
        if kernel.is_exponential:  # the slope is the weight times the rate
            moments = kernel.rate * self._moments(weights, columns)
            sums.totals[rows] += moments[:, :, 0] / kernel.rate
        else:
            sums.totals[rows] += weights @ self.contracted[weights.dtype][columns]
            moments = self._moments(self.blocks.slopes(rows, columns, buffer), columns)
        # sum of K' (q - k)**2 with the square expanded about the centre of the keys
        q, d = self.request.queries[rows][:, None, :], self.request.keys.shape[1]
        zeroth, first, second = moments[:, :, :1], moments[:, :, 1 : d + 1], moments[:, :, d + 1 :]
        sums.slopes[rows] -= 2.0 * (q**2 * zeroth - 2.0 * q * first + second)

    def _moments(self, weights: NDArray[np.floating], columns: slice) -> Array:
        moments = self.moments[weights.dtype][columns]
        product = np.empty((len(weights), moments.shape[1]))
        for some in slices(len(weights), max(1, _SMALL_PRODUCT // moments.size)):
            product[some] = weights[some] @ moments
        return product.reshape(len(weights), 1 + self.request.values.shape[1], -1)
